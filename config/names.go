package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func lookup(path string) *key {
	for i := range keys {
		if keys[i].path == path {
			return &keys[i]
		}
	}
	return nil
}

// isBelowKey reports whether path is a setting, or within the value of one.
func isBelowKey(path string) bool {
	for i := range keys {
		if rest, ok := strings.CutPrefix(path, keys[i].path); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return false
}

func paths() []string {
	all := make([]string, len(keys))
	for i := range keys {
		all[i] = keys[i].path
	}
	return all
}

func flagNames() []string {
	all := []string{fileFlag}
	for i := range keys {
		if !keys[i].noFlag {
			all = append(all, keys[i].path)
		}
	}
	return all
}

func isSection(name string) bool { return len(below(name)) > 0 }

// below returns the settings of a section.
func below(section string) []string {
	var found []string
	for _, path := range paths() {
		if strings.HasPrefix(path, section+".") {
			found = append(found, path)
		}
	}
	return found
}

func contains(names []string, name string) bool { return slices.Contains(names, name) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nearest returns the name that takes the fewest changes to get to.
func nearest(name string, names []string) string {
	return slices.MinFunc(names, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
}

// distance is the number of bytes to insert, delete, replace or swap with their
// neighbour to get from a to b.
func distance(a, b string) int {
	two, one, now := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := range len(a) {
		now[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			now[j+1] = min(one[j+1]+1, now[j]+1, one[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], two[j-1]+1)
			}
		}
		two, one, now = one, now, two
	}
	return one[len(b)]
}

// toText returns what a value of the file would be as a variable. Only an object
// setting takes a mapping.
func toText(value any, object bool) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int, int64, uint64, bool:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case time.Time:
		return v.Format(time.RFC3339Nano), nil
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			text, err := toText(item, false)
			if err != nil {
				return "", err
			}
			items[i] = text
		}
		return strings.Join(items, ","), nil
	case map[string]any:
		if object {
			b, err := json.Marshal(v)
			return string(b), err
		}
	}
	return "", errors.New("a value is wanted, not a mapping")
}

// reasonOf returns why a file can't be read, without its path, which is named
// beside it.
func reasonOf(err error) string {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err.Error()
	}
	return err.Error()
}

// yamlReason returns what is wrong with a file. Values of it, which the parser
// quotes where a mapping is wanted, may be secrets.
func yamlReason(err error) string {
	text := err.Error()
	if strings.Contains(text, "cannot unmarshal") {
		return "it is no mapping of sections"
	}
	if _, after, ok := strings.Cut(text, "yaml: "); ok {
		return after
	}
	return text
}

// plain is a text of the documentation without its markup.
func plain(doc string) string {
	doc = strings.ReplaceAll(doc, "`", "'")
	for {
		before, rest, ok := strings.Cut(doc, "](")
		if !ok {
			return doc
		}
		_, after, _ := strings.Cut(rest, ")")
		open := strings.LastIndexByte(before, '[')
		doc = before[:open] + before[open+1:] + after
	}
}
