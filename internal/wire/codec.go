package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// ErrNotRepresentable is wrapped by ToMsgpack's errors for valid JSON that would
// come back different: a number that no msgpack number equals, text that is not
// Unicode. Such an entry is written with codec JSON.
var ErrNotRepresentable = errors.New("not representable in msgpack")

// ToMsgpack appends the msgpack form of one JSON value to dst. Members keep
// their order, and a name that comes twice comes twice. Integers within int64 or
// uint64 become msgpack integers; other numbers become a float64 if its shortest
// decimal form is the same number. Empty text (a state that is not known) stays
// empty.
//
// The error wraps ErrNotRepresentable, or rawjson.ErrSyntax if text is not valid
// JSON; dst then comes back as it was. dst must not overlap text. Nesting takes
// memory, not stack.
func ToMsgpack(dst, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return dst, nil
	}
	e := encoder{in: text, out: dst}
	if err := e.run(); err != nil {
		return dst, err
	}
	return e.out, nil
}

// A container is an object or an array that is being written.
type container struct {
	at     int // offset of its header in the output
	count  int // members or elements so far
	object bool
	wide   bool // its header has room for a 32-bit count
}

// wideFrom is the nesting from which a header is written with 32 bits at once.
// Above it a container begins with one byte, and its content moves when it turns
// out to need more: that may happen once a level, so the levels are bounded.
const wideFrom = 32

type encoder struct {
	in   []byte
	pos  int
	out  []byte
	open stack[container]
}

// A stack holds what is open, outermost first. Its first levels need no
// allocation.
type stack[T any] struct {
	few  [wideFrom]T
	more []T
	n    int
}

func (s *stack[T]) push(v T) {
	if s.n < len(s.few) {
		s.few[s.n] = v
	} else {
		s.more = append(s.more[:s.n-len(s.few)], v)
	}
	s.n++
}

// top returns the innermost; there must be one.
func (s *stack[T]) top() *T {
	if s.n <= len(s.few) {
		return &s.few[s.n-1]
	}
	return &s.more[s.n-1-len(s.few)]
}

func (s *stack[T]) pop() { s.n-- }

func (e *encoder) run() error {
	for {
		entered, err := e.value()
		if err != nil {
			return err
		}
		if entered {
			continue
		}
		// A value has ended, and with it perhaps what it is the last of.
		for {
			c := e.space()
			if e.open.n == 0 {
				if e.pos < len(e.in) {
					return e.syntax("the end")
				}
				return nil
			}
			top := e.open.top()
			top.count++
			if c == ',' {
				e.pos++
				if top.object {
					if err := e.name(); err != nil {
						return err
					}
				}
				break
			}
			switch {
			case c == '}' && top.object, c == ']' && !top.object:
				e.pos++
				e.leave()
			case top.object:
				return e.syntax("',' or '}'")
			default:
				return e.syntax("',' or ']'")
			}
		}
	}
}

// value writes the scalar at pos, or the header of a container with pos moved to
// its first value; entered tells which.
func (e *encoder) value() (entered bool, err error) {
	switch c := e.space(); c {
	case '{', '[':
		e.pos++
		e.enter(c == '{')
		closing := byte(']')
		if c == '{' {
			closing = '}'
		}
		if e.space() == closing {
			e.pos++
			e.leave()
			return false, nil
		}
		if c == '{' {
			return true, e.name()
		}
		return true, nil
	case '"':
		return false, e.text()
	case 't':
		return false, e.literal("true", msgpcode.True)
	case 'f':
		return false, e.literal("false", msgpcode.False)
	case 'n':
		return false, e.literal("null", msgpcode.Nil)
	default:
		if c == '-' || c >= '0' && c <= '9' {
			return false, e.number()
		}
		return false, e.syntax("a value")
	}
}

// space moves to the next byte that is not space and returns it, 0 at the end.
func (e *encoder) space() byte {
	for e.pos < len(e.in) {
		switch c := e.in[e.pos]; c {
		case ' ', '\n', '\t', '\r':
			e.pos++
		default:
			return c
		}
	}
	return 0
}

func (e *encoder) name() error {
	if e.space() != '"' {
		return e.syntax("a member name")
	}
	if err := e.text(); err != nil {
		return err
	}
	if e.space() != ':' {
		return e.syntax("':'")
	}
	e.pos++
	return nil
}

func (e *encoder) literal(word string, code byte) error {
	if len(e.in)-e.pos < len(word) || string(e.in[e.pos:e.pos+len(word)]) != word {
		return e.syntax(word)
	}
	e.pos += len(word)
	e.out = append(e.out, code)
	return nil
}

func (e *encoder) enter(object bool) {
	c := container{at: len(e.out), object: object, wide: e.open.n >= wideFrom}
	e.open.push(c)
	if c.wide {
		e.out = append(e.out, 0, 0, 0, 0, 0)
		return
	}
	e.out = append(e.out, 0)
}

// leave completes the header of the innermost container.
func (e *encoder) leave() {
	c := *e.open.top()
	e.open.pop()
	fixed, short, long := msgpcode.FixedArrayLow, msgpcode.Array16, msgpcode.Array32
	if c.object {
		fixed, short, long = msgpcode.FixedMapLow, msgpcode.Map16, msgpcode.Map32
	}
	switch {
	case c.wide:
		e.out[c.at] = long
		binary.BigEndian.PutUint32(e.out[c.at+1:], uint32(c.count))
	case c.count < 16:
		e.out[c.at] = fixed | byte(c.count)
	case c.count <= math.MaxUint16:
		e.widen(c.at, 2)
		e.out[c.at] = short
		binary.BigEndian.PutUint16(e.out[c.at+1:], uint16(c.count))
	default:
		e.widen(c.at, 4)
		e.out[c.at] = long
		binary.BigEndian.PutUint32(e.out[c.at+1:], uint32(c.count))
	}
}

// widen makes room for n bytes behind the byte at offset at.
func (e *encoder) widen(at, n int) {
	end := len(e.out)
	e.out = append(e.out, 0, 0, 0, 0)[:end+n]
	copy(e.out[at+1+n:], e.out[at+1:end])
}

// text writes the string that begins at pos.
func (e *encoder) text() error {
	start := e.pos + 1
	ascii := true
	for i := start; i < len(e.in); i++ {
		switch c := e.in[i]; {
		case c == '"':
			raw := e.in[start:i]
			if !ascii && !utf8.Valid(raw) {
				return fmt.Errorf("%w: the string at byte %d is not UTF-8", ErrNotRepresentable, e.pos)
			}
			e.out = appendTextHeader(e.out, len(raw))
			e.out = append(e.out, raw...)
			e.pos = i + 1
			return nil
		case c == '\\':
			return e.escaped()
		case c < ' ':
			e.pos = i
			return e.syntax("an escaped control character")
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	e.pos = len(e.in)
	return e.syntax("a closing quote")
}

// escaped is text for a string with escapes in it.
func (e *encoder) escaped() error {
	begin, at := e.pos, len(e.out)
	e.out = append(e.out, 0, 0, 0, 0, 0) // the longest header
	for i := begin + 1; i < len(e.in); {
		switch c := e.in[i]; {
		case c == '"':
			body := e.out[at+5:]
			if !utf8.Valid(body) {
				return fmt.Errorf("%w: the string at byte %d is not UTF-8", ErrNotRepresentable, begin)
			}
			e.out = appendTextHeader(e.out[:at], len(body)) // never reaches body
			e.out = append(e.out, body...)
			e.pos = i + 1
			return nil
		case c < ' ':
			e.pos = i
			return e.syntax("an escaped control character")
		case c != '\\':
			e.out = append(e.out, c)
			i++
		default:
			if i+1 >= len(e.in) {
				e.pos = i
				return e.syntax("an escape")
			}
			if e.in[i+1] != 'u' {
				plain := unescaped[e.in[i+1]]
				if plain == 0 {
					e.pos = i
					return e.syntax("an escape")
				}
				e.out = append(e.out, plain)
				i += 2
				continue
			}
			r, ok := hex4(e.in, i+2)
			if !ok {
				e.pos = i
				return e.syntax("four hexadecimal digits")
			}
			i += 6
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if i+1 < len(e.in) && e.in[i] == '\\' && e.in[i+1] == 'u' {
					low, ok = hex4(e.in, i+2)
				}
				if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
					return fmt.Errorf("%w: the string at byte %d has half a surrogate pair", ErrNotRepresentable, begin)
				}
				i += 6
			}
			e.out = utf8.AppendRune(e.out, r)
		}
	}
	e.pos = len(e.in)
	return e.syntax("a closing quote")
}

// unescaped maps the letter of a short escape to what it stands for.
var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func hex4(in []byte, i int) (r rune, ok bool) {
	if i+4 > len(in) {
		return 0, false
	}
	for _, c := range in[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func appendTextHeader(out []byte, n int) []byte {
	switch {
	case n < 32:
		return append(out, msgpcode.FixedStrLow|byte(n))
	case n <= math.MaxUint8:
		return append(out, msgpcode.Str8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(out, msgpcode.Str16), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(out, msgpcode.Str32), uint32(n))
	}
}

// number writes the number that begins at pos.
func (e *encoder) number() error {
	begin, i := e.pos, e.pos
	negative := e.in[i] == '-'
	if negative {
		i++
	}
	first := i
	var whole uint64
	fits := true
	for ; i < len(e.in) && isDigit(e.in[i]); i++ {
		d := uint64(e.in[i] - '0')
		if whole > (math.MaxUint64-d)/10 {
			fits = false
		}
		whole = whole*10 + d
	}
	if i == first || e.in[first] == '0' && i > first+1 {
		return e.syntax("a number")
	}
	integer := true
	if i < len(e.in) && e.in[i] == '.' {
		integer = false
		i++
		first = i
		for i < len(e.in) && isDigit(e.in[i]) {
			i++
		}
		if i == first {
			return e.syntax("a number")
		}
	}
	if i < len(e.in) && e.in[i]|0x20 == 'e' {
		integer = false
		i++
		if i < len(e.in) && (e.in[i] == '+' || e.in[i] == '-') {
			i++
		}
		first = i
		for i < len(e.in) && isDigit(e.in[i]) {
			i++
		}
		if i == first {
			return e.syntax("a number")
		}
	}
	e.pos = i
	switch {
	case integer && fits && !negative:
		e.out = appendUint(e.out, whole)
		return nil
	case integer && fits && whole != 0 && whole <= 1<<63: // negative; -0 is a float
		e.out = appendNegative(e.out, -int64(whole))
		return nil
	}
	text := e.in[begin:i]
	f, err := strconv.ParseFloat(string(text), 64)
	var buf [32]byte
	if err != nil || !sameDecimal(text, strconv.AppendFloat(buf[:0], f, 'e', -1, 64)) {
		return fmt.Errorf("%w: the number %s at byte %d", ErrNotRepresentable, string(text[:min(len(text), 40)]), begin)
	}
	e.out = binary.BigEndian.AppendUint64(append(e.out, msgpcode.Double), math.Float64bits(f))
	return nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func appendUint(out []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(out, byte(n))
	case n <= math.MaxUint8:
		return append(out, msgpcode.Uint8, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(out, msgpcode.Uint16), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(out, msgpcode.Uint32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(out, msgpcode.Uint64), n)
	}
}

func appendNegative(out []byte, n int64) []byte {
	switch {
	case n >= -32:
		return append(out, byte(n))
	case n >= math.MinInt8:
		return append(out, msgpcode.Int8, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(out, msgpcode.Int16), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(out, msgpcode.Int32), uint32(n))
	default:
		return binary.BigEndian.AppendUint64(append(out, msgpcode.Int64), uint64(n))
	}
}

// A decimal is a number text without the zeros that do not count: its sign, its
// digits from the first to the last that is not 0, and the power of ten of the
// last one.
type decimal struct {
	negative    bool
	whole, part []byte // the digits, before and after the point
	exponent    int64
	ok          bool // the exponent is within reason, or there are no digits
}

func parseDecimal(text []byte) decimal {
	var d decimal
	if len(text) > 0 && text[0] == '-' {
		d.negative, text = true, text[1:]
	}
	d.ok = true
	mantissa := text
	for i, c := range text {
		if c|0x20 == 'e' {
			mantissa = text[:i]
			n, err := strconv.ParseInt(string(text[i+1:]), 10, 32)
			d.exponent, d.ok = n, err == nil
			break
		}
	}
	d.whole = mantissa
	for i, c := range mantissa {
		if c == '.' {
			d.whole, d.part = mantissa[:i], mantissa[i+1:]
			break
		}
	}
	d.exponent -= int64(len(d.part))
	for n := len(d.part); n > 0 && d.part[n-1] == '0'; n = len(d.part) {
		d.part = d.part[:n-1]
		d.exponent++
	}
	if len(d.part) == 0 {
		for n := len(d.whole); n > 0 && d.whole[n-1] == '0'; n = len(d.whole) {
			d.whole = d.whole[:n-1]
			d.exponent++
		}
	}
	for len(d.whole) > 0 && d.whole[0] == '0' {
		d.whole = d.whole[1:]
	}
	if len(d.whole) == 0 {
		for len(d.part) > 0 && d.part[0] == '0' {
			d.part = d.part[1:]
		}
	}
	if len(d.whole)+len(d.part) == 0 {
		d.exponent, d.ok = 0, true
	}
	return d
}

func (d *decimal) digit(i int) byte {
	if i < len(d.whole) {
		return d.whole[i]
	}
	return d.part[i-len(d.whole)]
}

// sameDecimal reports whether two number texts are the same number.
func sameDecimal(a, b []byte) bool {
	x, y := parseDecimal(a), parseDecimal(b)
	n := len(x.whole) + len(x.part)
	if !x.ok || !y.ok || x.negative != y.negative || x.exponent != y.exponent || n != len(y.whole)+len(y.part) {
		return false
	}
	for i := range n {
		if x.digit(i) != y.digit(i) {
			return false
		}
	}
	return true
}

func (e *encoder) syntax(want string) error {
	return &rawjson.SyntaxError{Offset: e.pos, Want: want}
}
