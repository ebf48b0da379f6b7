// Package rawjson reads and rewrites JSON objects without decoding them.
//
// Sluice forwards payloads as the bytes Discord sent, so most of what it asks
// of a payload is where a member's value begins and ends. The scanner here
// answers that in one pass, without allocating. It checks structure (quotes,
// brackets, separators), not the text of numbers and literals: what must be
// valid JSON to the letter goes through [Valid].
//
// Member names match as encoding/json matches them to struct fields: whatever
// their case, and the last one wins. An extractor and a typed listener
// therefore agree on an object that says "id" twice.
package rawjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrSyntax is wrapped by every error of this package.
var ErrSyntax = errors.New("malformed JSON")

// A SyntaxError tells what was expected and where.
type SyntaxError struct {
	Offset int    // bytes from the start of the scanned text
	Want   string // what the grammar allows there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v at byte %d: want %s", ErrSyntax, e.Offset, e.Want)
}

// Unwrap reports ErrSyntax.
func (e *SyntaxError) Unwrap() error { return ErrSyntax }

// An Object walks the members of one JSON object in their order. The zero
// value is an empty object; Reset gives it a text. Not safe for concurrent use.
type Object struct {
	// Key and Value alias the text. Key is the name between its quotes, escapes
	// as they stand; Value is the raw value without surrounding space.
	Key, Value []byte

	data  []byte
	pos   int
	begun bool
	done  bool
	err   error
}

// Reset starts over with data, which must stay unchanged while it is walked.
func (o *Object) Reset(data []byte) { *o = Object{data: data} }

// Next moves to the next member and reports whether there is one.
func (o *Object) Next() bool {
	if o.done || o.err != nil {
		return false
	}
	i := skipSpace(o.data, o.pos)
	if !o.begun {
		o.begun = true
		if i >= len(o.data) || o.data[i] != '{' {
			return o.fail(i, "'{'")
		}
		i = skipSpace(o.data, i+1)
		if i < len(o.data) && o.data[i] == '}' {
			return o.end(i + 1)
		}
	} else {
		if i < len(o.data) && o.data[i] == '}' {
			return o.end(i + 1)
		}
		if i >= len(o.data) || o.data[i] != ',' {
			return o.fail(i, "',' or '}'")
		}
		i = skipSpace(o.data, i+1)
	}
	if i >= len(o.data) || o.data[i] != '"' {
		return o.fail(i, "a member name")
	}
	end := skipString(o.data, i)
	if end < 0 {
		return o.fail(i, "a closed member name")
	}
	o.Key = o.data[i+1 : end-1]
	i = skipSpace(o.data, end)
	if i >= len(o.data) || o.data[i] != ':' {
		return o.fail(i, "':'")
	}
	i = skipSpace(o.data, i+1)
	end = skipValue(o.data, i)
	if end < 0 {
		return o.fail(i, "a value")
	}
	o.Value, o.pos = o.data[i:end], end
	return true
}

// Err reports why the walk ended early, or nil. It wraps ErrSyntax.
func (o *Object) Err() error { return o.err }

// End reports the offset behind the closing brace once Next has returned false
// without an error.
func (o *Object) End() int { return o.pos }

func (o *Object) end(pos int) bool {
	o.done, o.pos = true, pos
	o.Key, o.Value = nil, nil
	return false
}

func (o *Object) fail(offset int, want string) bool {
	o.err = &SyntaxError{Offset: offset, Want: want}
	o.Key, o.Value = nil, nil
	return false
}

// An Array walks the elements of one JSON array in their order.
type Array struct {
	Value []byte // the raw element, aliasing the text

	data  []byte
	pos   int
	begun bool
	done  bool
	err   error
}

// Reset starts over with data, which must stay unchanged while it is walked.
func (a *Array) Reset(data []byte) { *a = Array{data: data} }

// Next moves to the next element and reports whether there is one.
func (a *Array) Next() bool {
	if a.done || a.err != nil {
		return false
	}
	i := skipSpace(a.data, a.pos)
	if !a.begun {
		a.begun = true
		if i >= len(a.data) || a.data[i] != '[' {
			return a.fail(i, "'['")
		}
		i = skipSpace(a.data, i+1)
		if i < len(a.data) && a.data[i] == ']' {
			a.done, a.pos = true, i+1
			return false
		}
	} else {
		if i < len(a.data) && a.data[i] == ']' {
			a.done, a.pos = true, i+1
			return false
		}
		if i >= len(a.data) || a.data[i] != ',' {
			return a.fail(i, "',' or ']'")
		}
		i = skipSpace(a.data, i+1)
	}
	end := skipValue(a.data, i)
	if end < 0 {
		return a.fail(i, "a value")
	}
	a.Value, a.pos = a.data[i:end], end
	return true
}

// Err reports why the walk ended early, or nil. It wraps ErrSyntax.
func (a *Array) Err() error { return a.err }

func (a *Array) fail(offset int, want string) bool {
	a.err = &SyntaxError{Offset: offset, Want: want}
	a.Value = nil
	return false
}

// Complete reports whether data is one structurally whole value with nothing
// but space around it.
func Complete(data []byte) bool {
	i := skipSpace(data, 0)
	end := skipValue(data, i)
	return end >= 0 && skipSpace(data, end) == len(data)
}

// Valid reports whether data is valid JSON to the letter.
func Valid(data []byte) bool { return json.Valid(data) }

// IsObject reports whether value begins as an object does.
func IsObject(value []byte) bool {
	i := skipSpace(value, 0)
	return i < len(value) && value[i] == '{'
}

// IsNull reports whether value is the literal null.
func IsNull(value []byte) bool { return string(value) == "null" }

// IsTrue reports whether value is the literal true.
func IsTrue(value []byte) bool { return string(value) == "true" }

// Text returns the contents of a JSON string. It aliases value unless the string
// has escapes. ok is false for anything but a string.
func Text(value []byte) (text []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return nil, false
	}
	in := value[1 : len(value)-1]
	if bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return in, true
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}

// ID returns the text of an identifier: the contents of a non-empty string, or
// the digits of an integer (Discord sends both). It is nil for anything else.
// Identifiers are opaque: no form is checked.
func ID(value []byte) []byte {
	if len(value) == 0 {
		return nil
	}
	if value[0] == '"' {
		text, _ := Text(value)
		if len(text) == 0 {
			return nil
		}
		return text
	}
	for i, c := range value {
		if (c < '0' || c > '9') && (c != '-' || i != 0) {
			return nil
		}
	}
	return value
}

// Int returns the value of a JSON integer that fits an int64.
func Int(value []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	return n, err == nil
}

// KeyIs reports whether the member name key matches name, which is lower case:
// letters match in both cases, escapes are resolved.
func KeyIs(key []byte, name string) bool {
	if len(key) < len(name) {
		return false
	}
	if len(key) == len(name) && equalFold(key, name) {
		return true
	}
	for _, c := range key {
		if c == '\\' || c >= utf8.RuneSelf {
			return keyIsSlow(key, name)
		}
	}
	return false
}

// equalFold compares two texts of the same length.
func equalFold(key []byte, name string) bool {
	for i, c := range key {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// keyIsSlow resolves what Discord does not write: escapes, and letters outside
// ASCII that are another case of one inside (encoding/json takes \u017f for an s).
func keyIsSlow(key []byte, name string) bool {
	quoted := make([]byte, 0, len(key)+2)
	quoted = append(append(append(quoted, '"'), key...), '"')
	text, ok := Text(quoted)
	return ok && strings.EqualFold(string(text), name)
}

// Get returns the value of the member called name (lower case), nil if obj has
// none or is no object. The last one wins.
func Get(obj []byte, name string) []byte {
	var (
		o     Object
		found []byte
	)
	o.Reset(obj)
	for o.Next() {
		if KeyIs(o.Key, name) {
			found = o.Value
		}
	}
	return found
}

func skipSpace(data []byte, i int) int {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\t', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// skipString returns the offset behind the string that begins at i, or -1. It
// looks at eight bytes at a time: most strings are names and identifiers, too
// short for a call of bytes.IndexByte to pay.
func skipString(data []byte, i int) int {
	i++
	for i+8 <= len(data) {
		word := binary.LittleEndian.Uint64(data[i:])
		found := bytesEqual(word, quotes) | bytesEqual(word, backslashes)
		if found == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(found) >> 3
		if data[i] == '"' {
			return i + 1
		}
		i += 2
	}
	for i < len(data) {
		switch data[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
		i++
	}
	return -1
}

const (
	ones        = 0x0101010101010101
	quotes      = ones * '"'
	backslashes = ones * '\\'
)

// bytesEqual marks the high bits of the bytes in which a and b are equal. What is
// above the lowest mark need not be true.
func bytesEqual(a, b uint64) uint64 {
	x := a ^ b
	return (x - ones) & ^x & (ones << 7)
}

// skipValue returns the offset behind the value that begins at i, or -1. It
// keeps no stack for the first 64 levels' worth of brackets but a bit set, and
// never recurses, so that nesting costs nothing.
func skipValue(data []byte, i int) int {
	if i >= len(data) {
		return -1
	}
	switch c := data[i]; {
	case c == '"':
		return skipString(data, i)
	case c == '{' || c == '[':
		return skipNested(data, i)
	case c == '-' || (c >= '0' && c <= '9') || c == 't' || c == 'f' || c == 'n':
		for i++; i < len(data); i++ {
			c := data[i]
			if (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '-' || c == '+' || c == 'E' {
				continue
			}
			return i
		}
		return i
	}
	return -1
}

// special marks the bytes skipNested stops at.
var special = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true}

func skipNested(data []byte, i int) int {
	var (
		kinds uint64 // one bit a level, 1 for an object; the lowest is the innermost
		deep  []bool // levels beyond 64, outermost first
		depth int
	)
	for i < len(data) {
		c := data[i]
		if !special[c] {
			i++
			continue
		}
		switch c {
		case '"':
			if i = skipString(data, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			if depth >= 64 {
				deep = append(deep, kinds>>63 == 1)
			}
			kinds <<= 1
			if c == '{' {
				kinds |= 1
			}
			depth++
		default:
			if (c == '}') != (kinds&1 == 1) {
				return -1
			}
			kinds >>= 1
			if n := len(deep); n > 0 {
				if deep[n-1] {
					kinds |= 1 << 63
				}
				deep = deep[:n-1]
			}
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}
