package cachemodel

import (
	"encoding/json"
	"slices"
	"strings"
)

// Canonical returns JSON in the one form that texts of the same meaning share:
// no spaces, members sorted, numbers as they were written. A leading space stays:
// it says that the value is known in part. What is no JSON is returned as it is.
func Canonical(text string) string {
	value, partial := strings.CutPrefix(text, part)
	d := json.NewDecoder(strings.NewReader(value))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return text
	}
	if partial {
		return part + encode(v)
	}
	return encode(v)
}

// Normal returns c with canonical values and without what says nothing: what is
// kept beside an entity and equals what the entity itself says.
func (c Content) Normal() Content {
	out := make(Content, len(c))
	for key, fields := range c {
		kept := make(map[string]string, len(fields))
		for field, value := range fields {
			entity, what, beside := strings.Cut(field, ":")
			if !beside {
				kept[field] = Canonical(value)
			} else if of, known := fields[entity]; !known || !idle(of, what, value) {
				kept[field] = besideForm(what, value)
			}
		}
		if len(kept) > 0 {
			out[key] = kept
		}
	}
	return out
}

// idle reports whether what is kept beside an entity is what it says itself.
func idle(entity, what, value string) bool {
	switch what {
	case "voice":
		return Canonical(value) == "{}"
	case "poll":
		own := `{"answer_counts":[]}`
		if results := member(member(entity, "poll"), "results"); isObject(results) {
			own = results
		}
		return besideForm(what, value) == besideForm(what, own)
	case "reactions":
		own := member(entity, what)
		return Canonical(value) == Canonical(own) || (value == "[]" && !isArray(own))
	}
	return value == member(entity, what)
}

// besideForm is Canonical, and leaves the answers of a poll out that nobody chose.
func besideForm(what, value string) string {
	if what == "poll" {
		chosen := slices.DeleteFunc(elements(member(value, "answer_counts")), func(a string) bool {
			count, _ := number(a, "count")
			return isObject(a) && count == 0 && member(a, "me_voted") != "true"
		})
		value = `{"answer_counts":[` + strings.Join(chosen, ",") + "]}"
	}
	return Canonical(value)
}
