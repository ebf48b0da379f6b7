package listener

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// Bounds of the search for the member at fault.
const (
	maxBlameDepth = 6
	maxBlameTries = 20000
	maxBlameBytes = 200
)

// blame returns the path of the member for which data can't be decoded into a
// value of type t, empty if it is data itself. Decoders of discordgo's types keep
// the path to themselves, so it decodes again, member for member: slow, and only
// ever done for what is to become a dead letter.
func blame(data []byte, t reflect.Type) string {
	s := blamer{typ: t}
	path := s.descend(bytes.TrimSpace(data), nil, nil, "", 0)
	return path[:min(len(path), maxBlameBytes)]
}

type blamer struct {
	typ   reflect.Type
	tries int
}

// descend looks into data, which stands between the texts before and behind.
func (s *blamer) descend(data, before, behind []byte, path string, depth int) string {
	if depth >= maxBlameDepth || len(data) == 0 {
		return path
	}
	switch data[0] {
	case '{':
		var o rawjson.Object
		for o.Reset(data); o.Next(); {
			open := concat(before, []byte(`{"`), o.Key, []byte(`":`))
			shut := concat([]byte(`}`), behind)
			if s.fails(o.Value, open, shut) {
				name := string(o.Key)
				if path != "" {
					name = path + "." + name
				}
				return s.descend(o.Value, open, shut, name, depth+1)
			}
		}
	case '[':
		var a rawjson.Array
		n := 0
		for a.Reset(data); a.Next(); n++ {
			open, shut := concat(before, []byte(`[`)), concat([]byte(`]`), behind)
			if s.fails(a.Value, open, shut) {
				return s.descend(a.Value, open, shut, path+"["+strconv.Itoa(n)+"]", depth+1)
			}
		}
	}
	return path
}

func (s *blamer) fails(value, before, behind []byte) bool {
	if s.tries++; s.tries > maxBlameTries {
		return false
	}
	return json.Unmarshal(concat(before, value, behind), reflect.New(s.typ).Interface()) != nil
}

func concat(parts ...[]byte) []byte {
	var all []byte
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}
