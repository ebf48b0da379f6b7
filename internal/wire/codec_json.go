package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// ErrMsgpack is wrapped by ToJSON's errors. They tell the offset and what is
// wrong there.
var ErrMsgpack = errors.New("not msgpack that JSON can say")

// ToJSON appends the JSON form of one msgpack value to dst. It reads what
// ToMsgpack writes and what other writers may: every width of integer, float,
// string, array and map, and bin, which is read as text. Members keep their
// order. Empty bytes stay empty.
//
// The error wraps ErrMsgpack for bytes that break off or go on behind the value,
// extension types, text that is not UTF-8, names that are not text, NaN and the
// infinities; dst then comes back as it was. dst must not overlap packed.
func ToJSON(dst, packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return dst, nil
	}
	d := decoder{in: packed, out: dst}
	if err := d.run(); err != nil {
		return dst, err
	}
	return d.out, nil
}

// A pending container is one whose content is being read.
type pending struct {
	left   uint32 // elements or members still to come
	object bool
}

type decoder struct {
	in   []byte
	pos  int
	out  []byte
	open stack[pending]
}

func (d *decoder) run() error {
	for {
		if err := d.value(); err != nil {
			return err
		}
		for {
			if d.open.n == 0 {
				if d.pos != len(d.in) {
					return d.fail("bytes behind the value")
				}
				return nil
			}
			top := d.open.top()
			if top.left == 0 {
				if top.object {
					d.out = append(d.out, '}')
				} else {
					d.out = append(d.out, ']')
				}
				d.open.pop()
				continue
			}
			top.left--
			if last := d.out[len(d.out)-1]; last != '{' && last != '[' {
				d.out = append(d.out, ',')
			}
			if top.object {
				if err := d.name(); err != nil {
					return err
				}
			}
			break
		}
	}
}

// value reads a scalar, or the header of a container.
func (d *decoder) value() error {
	c := d.in[d.pos:]
	if len(c) == 0 {
		return d.fail("the bytes end where a value is wanted")
	}
	code := c[0]
	switch {
	case msgpcode.IsFixedMap(code):
		d.pos++
		return d.enter(uint32(code&msgpcode.FixedMapMask), true)
	case msgpcode.IsFixedArray(code):
		d.pos++
		return d.enter(uint32(code&msgpcode.FixedArrayMask), false)
	case msgpcode.IsString(code), msgpcode.IsBin(code):
		return d.text()
	case code <= msgpcode.PosFixedNumHigh:
		d.pos++
		d.out = strconv.AppendUint(d.out, uint64(code), 10)
		return nil
	case code >= msgpcode.NegFixedNumLow:
		d.pos++
		d.out = strconv.AppendInt(d.out, int64(int8(code)), 10)
		return nil
	}
	switch code {
	case msgpcode.Nil:
		d.pos++
		d.out = append(d.out, "null"...)
	case msgpcode.True:
		d.pos++
		d.out = append(d.out, "true"...)
	case msgpcode.False:
		d.pos++
		d.out = append(d.out, "false"...)
	case msgpcode.Array16, msgpcode.Array32, msgpcode.Map16, msgpcode.Map32:
		width := 2
		if code == msgpcode.Array32 || code == msgpcode.Map32 {
			width = 4
		}
		n, ok := d.fixed(width)
		if !ok {
			return d.fail("the bytes end in a count")
		}
		return d.enter(uint32(n), code == msgpcode.Map16 || code == msgpcode.Map32)
	case msgpcode.Uint8, msgpcode.Uint16, msgpcode.Uint32, msgpcode.Uint64:
		n, ok := d.fixed(1 << (code - msgpcode.Uint8))
		if !ok {
			return d.fail("the bytes end in a number")
		}
		d.out = strconv.AppendUint(d.out, n, 10)
	case msgpcode.Int8, msgpcode.Int16, msgpcode.Int32, msgpcode.Int64:
		width := 1 << (code - msgpcode.Int8)
		n, ok := d.fixed(width)
		if !ok {
			return d.fail("the bytes end in a number")
		}
		unused := 64 - 8*width
		d.out = strconv.AppendInt(d.out, int64(n<<unused)>>unused, 10)
	case msgpcode.Float:
		n, ok := d.fixed(4)
		if !ok {
			return d.fail("the bytes end in a number")
		}
		return d.float(float64(math.Float32frombits(uint32(n))), 32)
	case msgpcode.Double:
		n, ok := d.fixed(8)
		if !ok {
			return d.fail("the bytes end in a number")
		}
		return d.float(math.Float64frombits(n), 64)
	default:
		return d.fail("a type that JSON has not (code 0x" + strconv.FormatUint(uint64(code), 16) + ")")
	}
	return nil
}

// fixed moves behind the code at pos and the big-endian number of width bytes
// that follows it.
func (d *decoder) fixed(width int) (n uint64, ok bool) {
	if len(d.in)-d.pos-1 < width {
		return 0, false
	}
	b := d.in[d.pos+1 : d.pos+1+width]
	d.pos += 1 + width
	switch width {
	case 1:
		return uint64(b[0]), true
	case 2:
		return uint64(binary.BigEndian.Uint16(b)), true
	case 4:
		return uint64(binary.BigEndian.Uint32(b)), true
	default:
		return binary.BigEndian.Uint64(b), true
	}
}

// enter begins a container whose header has been read.
func (d *decoder) enter(n uint32, object bool) error {
	d.open.push(pending{left: n, object: object})
	if object {
		d.out = append(d.out, '{')
	} else {
		d.out = append(d.out, '[')
	}
	return nil
}

func (d *decoder) name() error {
	if d.pos >= len(d.in) {
		return d.fail("the bytes end where a name is wanted")
	}
	if c := d.in[d.pos]; !msgpcode.IsString(c) && !msgpcode.IsBin(c) {
		return d.fail("a name that is not text")
	}
	if err := d.text(); err != nil {
		return err
	}
	d.out = append(d.out, ':')
	return nil
}

func (d *decoder) text() error {
	var (
		n  uint64
		ok = true
	)
	switch c := d.in[d.pos]; c {
	case msgpcode.Str8, msgpcode.Bin8:
		n, ok = d.fixed(1)
	case msgpcode.Str16, msgpcode.Bin16:
		n, ok = d.fixed(2)
	case msgpcode.Str32, msgpcode.Bin32:
		n, ok = d.fixed(4)
	default:
		n = uint64(c & msgpcode.FixedStrMask)
		d.pos++
	}
	if !ok || n > uint64(len(d.in)-d.pos) {
		return d.fail("the bytes end in a text")
	}
	text := d.in[d.pos : d.pos+int(n)]
	if !utf8.Valid(text) {
		return d.fail("text that is not UTF-8")
	}
	d.pos += int(n)
	d.out = appendQuoted(d.out, text)
	return nil
}

func appendQuoted(out, text []byte) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	start := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		out = append(out, text[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(out, text[start:]...), '"')
}

// float writes f so that a reader sees a float again: 1 is written 1.0. Minus
// zero stays -0, an integer's text in JSON that only a float can hold.
func (d *decoder) float(f float64, bits int) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return d.fail("a number that JSON has not")
	}
	if f == 0 && math.Signbit(f) {
		d.out = append(d.out, "-0"...)
		return nil
	}
	at := len(d.out)
	d.out = strconv.AppendFloat(d.out, f, 'g', -1, bits)
	for _, c := range d.out[at:] {
		if c == '.' || c == 'e' {
			return nil
		}
	}
	d.out = append(d.out, ".0"...)
	return nil
}

func (d *decoder) fail(what string) error {
	return fmt.Errorf("%w: %s, at byte %d", ErrMsgpack, what, d.pos)
}
