package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/vmihailenco/msgpack/v5"
)

// message is about what Discord sends most.
const message = `{"type":0,"tts":false,"timestamp":"2026-03-01T12:00:00.123000+00:00","pinned":false,` +
	`"nonce":"1234567890123456789","mentions":[],"mention_roles":[],"mention_everyone":false,` +
	`"member":{"roles":["81384788765712384","81384788765712385"],"premium_since":null,"pending":false,"nick":"Zoë \ud83d\udc4b",` +
	`"mute":false,"joined_at":"2020-01-01T00:00:00+00:00","flags":0,"deaf":false,"avatar":null},` +
	`"id":"1478030302038921217","flags":0,"embeds":[],"edited_timestamp":null,"content":"a \"quoted\" line\nand – another",` +
	`"components":[],"channel_type":0,"channel_id":"290926798999357250","author":{"username":"zoe","public_flags":64,` +
	`"id":"53908099506183680","global_name":"Zoë","discriminator":"0","avatar":"a_bab14f271d565501444b2ca3be944b25"},` +
	`"attachments":[{"id":"1","width":1920,"height":1080,"duration_secs":1.5}],"guild_id":"290926798626357250"}`

func TestMsgpackRoundTrip(t *testing.T) {
	t.Parallel()
	many := func(n int, element, brackets string) string {
		return brackets[:1] + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + brackets[1:]
	}
	for name, text := range map[string]string{
		"message":             message,
		"scalars":             `[null,true,false,"",0]`,
		"space everywhere":    " { \"a\" : [ 1 ,\t2 ] ,\r\n\"b\" : { } } ",
		"integer widths":      `[0,127,128,255,256,65535,65536,4294967295,4294967296,9007199254740993,18446744073709551615]`,
		"negative widths":     `[-1,-32,-33,-128,-129,-32768,-32769,-2147483648,-2147483649,-9223372036854775808]`,
		"minus zero":          `[-0,-0.0,0.0]`,
		"floats":              `[1.5,1.10,0.1,1e3,1E+2,-2.5e-7,1.7976931348623157e308,5e-324,100000000000000000000,1.0]`,
		"float timestamps":    `[1700000000.123,1700000000123.0]`,
		"ids as numbers":      `{"id":716581622363398147}`,
		"order and doubles":   `{"id":"1","a":2,"id":"3","ID":"4"}`,
		"escapes":             `"\"\\\/\b\f\n\r\t\u0000\u0001\u007f\u00e9\u2028\ufeff"`,
		"pairs":               `["\ud83d\ude00","\uDBFF\uDFFF","\ud800\udc00"]`,
		"escaped names":       `{"\u0069d":1,"a\nb":2}`,
		"text of 31 and 32":   `["` + strings.Repeat("x", 31) + `","` + strings.Repeat("y", 32) + `"]`,
		"text of 255 and 256": `["` + strings.Repeat("x", 255) + `","` + strings.Repeat("y", 256) + `"]`,
		"text of 64 KiB":      `["` + strings.Repeat("x", 65535) + `","` + strings.Repeat("y", 65536) + `"]`,
		"escaped text sizes":  `["\n` + strings.Repeat("x", 30) + `","\n` + strings.Repeat("y", 300) + `","\n` + strings.Repeat("z", 70000) + `"]`,
		"15 elements":         many(15, "1", "[]"),
		"16 elements":         many(16, "1", "[]"),
		"16 members":          many(16, `"k":{"x":[]}`, "{}"),
		"65535 elements":      many(65535, "1", "[]"),
		"65536 elements":      many(65536, "1", "[]"),
		"100000 members":      many(100000, `"k":1`, "{}"),
		"wide within wide":    many(20, many(20, many(20, `"a"`, "[]"), "[]"), "[]"),
		"9000 levels":         strings.Repeat(`[`, 9000) + strings.Repeat(`]`, 9000),
		"9000 levels, mixed":  strings.Repeat(`{"a":[`, 4500) + strings.Repeat(`]}`, 4500),
		"100000 levels":       strings.Repeat(`[`, 1e5) + strings.Repeat(`]`, 1e5),
		"wide and deep":       strings.Repeat(`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,`, 2000) + "0" + strings.Repeat(`]`, 2000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packed, err := wire.ToMsgpack([]byte("kept"), []byte(text))
			if err != nil {
				t.Fatalf("ToMsgpack: %v", err)
			}
			packed, kept := bytes.CutPrefix(packed, []byte("kept"))
			if !kept {
				t.Fatal("ToMsgpack did not append")
			}
			back, err := wire.ToJSON([]byte("kept"), packed)
			if err != nil {
				t.Fatalf("ToJSON: %v", err)
			}
			back, kept = bytes.CutPrefix(back, []byte("kept"))
			if !kept {
				t.Fatal("ToJSON did not append")
			}
			if diff := differ([]byte(text), back); diff != "" {
				t.Fatalf("came back different: %s", diff)
			}
			if !rawjson.Complete(back) {
				t.Fatalf("came back incomplete: %.200s", back)
			}
			again, err := wire.ToMsgpack(nil, back)
			if err != nil || !bytes.Equal(again, packed) {
				t.Fatalf("a second round trip changes the bytes (err %v)", err)
			}
		})
	}
}

// What we write, the library that others read it with must read the same.
func TestMsgpackIsReadByTheLibrary(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		message,
		`{"a":[1,-1,200,70000,5000000000,18446744073709551615,-129,-40000,-3000000000,1.5],"b":{"c":null,"d":true},"e":"` +
			strings.Repeat("é", 200) + `"}`,
		`[` + strings.Repeat(`{"k":"v"},`, 70000) + `0]`,
	} {
		packed, err := wire.ToMsgpack(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		dec := msgpack.NewDecoder(bytes.NewReader(packed))
		got, err := dec.DecodeInterface()
		if err != nil {
			t.Fatalf("the library does not read %.60s: %v", text, err)
		}
		if n, err := io.Copy(io.Discard, dec.Buffered()); n != 0 || err != nil {
			t.Fatalf("the library left %d bytes of %.60s", n, text)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		for text, into := range map[*any][]byte{&a: []byte(text), &b: again} {
			d := json.NewDecoder(bytes.NewReader(into))
			d.UseNumber()
			if err := d.Decode(text); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("the library reads %.60s differently (-JSON +msgpack):\n%s", text, diff)
		}
	}
}

// What the library writes, we must read.
func TestJSONOfTheLibrarysMsgpack(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	enc := msgpack.NewEncoder(&packed)
	steps := []struct {
		write func() error
		want  string
	}{
		{func() error { return enc.EncodeNil() }, `null`},
		{func() error { return enc.EncodeBool(true) }, `true`},
		{func() error { return enc.EncodeBool(false) }, `false`},
		{func() error { return enc.EncodeUint8(7) }, `7`},
		{func() error { return enc.EncodeUint16(7) }, `7`},
		{func() error { return enc.EncodeUint32(7) }, `7`},
		{func() error { return enc.EncodeUint64(1<<64 - 1) }, `18446744073709551615`},
		{func() error { return enc.EncodeInt8(-7) }, `-7`},
		{func() error { return enc.EncodeInt16(-7) }, `-7`},
		{func() error { return enc.EncodeInt32(-7) }, `-7`},
		{func() error { return enc.EncodeInt64(-1 << 63) }, `-9223372036854775808`},
		{func() error { return enc.EncodeInt(-5) }, `-5`},
		{func() error { return enc.EncodeInt(100) }, `100`},
		{func() error { return enc.EncodeFloat32(0.1) }, `0.1`},
		{func() error { return enc.EncodeFloat64(2) }, `2.0`},
		{func() error { return enc.EncodeFloat64(1e300) }, `1e+300`},
		{func() error { return enc.EncodeString("a\"b") }, `"a\"b"`},
		{func() error { return enc.EncodeBytes([]byte(`{"a":1}`)) }, `"{\"a\":1}"`},
		{func() error { return enc.EncodeArrayLen(0) }, `[]`},
		{func() error { return enc.EncodeMapLen(0) }, `{}`},
		{func() error { return enc.EncodeBytes(bytes.Repeat([]byte("x"), 300)) }, `"` + strings.Repeat("x", 300) + `"`},
		{func() error { return enc.EncodeBytes(bytes.Repeat([]byte("x"), 70000)) }, `"` + strings.Repeat("x", 70000) + `"`},
	}
	want := []string{}
	if err := enc.EncodeArrayLen(len(steps)); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if err := s.write(); err != nil {
			t.Fatal(err)
		}
		want = append(want, s.want)
	}
	got, err := wire.ToJSON(nil, packed.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("["+strings.Join(want, ",")+"]", string(got)); diff != "" {
		t.Errorf("ToJSON (-want +got):\n%s", diff)
	}
}

func TestToMsgpackRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		want error
	}{
		{`1e400`, wire.ErrNotRepresentable},
		{`-1e400`, wire.ErrNotRepresentable},
		{`1e-400`, wire.ErrNotRepresentable},
		{`1e99999999999999999999`, wire.ErrNotRepresentable},
		{`18446744073709551616`, wire.ErrNotRepresentable},
		{`-9223372036854775809`, wire.ErrNotRepresentable},
		{`9007199254740993.0`, wire.ErrNotRepresentable},
		{`0.1000000000000000055511151231257827`, wire.ErrNotRepresentable},
		{`{"a":[0.12345678901234567890]}`, wire.ErrNotRepresentable},
		{`"\ud83d"`, wire.ErrNotRepresentable},
		{`"\udc00"`, wire.ErrNotRepresentable},
		{`"\udc00\ud83d"`, wire.ErrNotRepresentable},
		{`"\ud83dx"`, wire.ErrNotRepresentable},
		{`"\ud83d\n"`, wire.ErrNotRepresentable},
		{`{"\ud83d":1}`, wire.ErrNotRepresentable},
		{"\"\xff\"", wire.ErrNotRepresentable},
		{"\"\\n\xed\xa0\x80\"", wire.ErrNotRepresentable},
		{` `, rawjson.ErrSyntax},
		{`{`, rawjson.ErrSyntax},
		{`[1`, rawjson.ErrSyntax},
		{`[1,]`, rawjson.ErrSyntax},
		{`[1 2]`, rawjson.ErrSyntax},
		{`[1}`, rawjson.ErrSyntax},
		{`{"a"}`, rawjson.ErrSyntax},
		{`{"a":1]`, rawjson.ErrSyntax},
		{`{"a":1,}`, rawjson.ErrSyntax},
		{`{1:1}`, rawjson.ErrSyntax},
		{`1 2`, rawjson.ErrSyntax},
		{`tru`, rawjson.ErrSyntax},
		{`nul`, rawjson.ErrSyntax},
		{`truex`, rawjson.ErrSyntax},
		{`01`, rawjson.ErrSyntax},
		{`-`, rawjson.ErrSyntax},
		{`+1`, rawjson.ErrSyntax},
		{`1.`, rawjson.ErrSyntax},
		{`.5`, rawjson.ErrSyntax},
		{`1e`, rawjson.ErrSyntax},
		{`1e+`, rawjson.ErrSyntax},
		{`NaN`, rawjson.ErrSyntax},
		{`"`, rawjson.ErrSyntax},
		{`"\`, rawjson.ErrSyntax},
		{`"\x"`, rawjson.ErrSyntax},
		{`"\u12"`, rawjson.ErrSyntax},
		{`"\u12g4"`, rawjson.ErrSyntax},
		{`"\ud83d\u12"`, wire.ErrNotRepresentable},
		{"\"a\nb\"", rawjson.ErrSyntax},
		{"\"\\n\x01\"", rawjson.ErrSyntax},
	} {
		got, err := wire.ToMsgpack([]byte("kept"), []byte(tc.text))
		if !errors.Is(err, tc.want) || string(got) != "kept" {
			t.Errorf("ToMsgpack(%q) = %q, %v, want an error that is %q", tc.text, got, err, tc.want)
		}
	}
}

func TestToJSONRefuses(t *testing.T) {
	t.Parallel()
	for name, packed := range map[string]string{
		"ext":                       "\xc7\x01\x05x",
		"fixext":                    "\xd4\x05x",
		"timestamp":                 "\xd6\xff\x00\x00\x00\x00",
		"never used code":           "\xc1",
		"number as a name":          "\x81\x01\x01",
		"nil as a name":             "\x81\xc0\x01",
		"array as a name":           "\x81\x90\x01",
		"bytes behind":              "\x01\x01",
		"array breaks off":          "\x92\x01",
		"map breaks off":            "\x81",
		"map breaks off at a value": "\x81\xa1a",
		"count breaks off":          "\xdc\x00",
		"huge count":                "\xdd\xff\xff\xff\xff",
		"huge text":                 "\xdb\xff\xff\xff\xffabc",
		"text breaks off":           "\xa5abc",
		"length breaks off":         "\xda\x00",
		"number breaks off":         "\xcf\x00\x00",
		"int breaks off":            "\xd3\x00",
		"float breaks off":          "\xca\x00",
		"double breaks off":         "\xcb\x00",
		"text that is not UTF-8":    "\xa1\xff",
		"bin that is not UTF-8":     "\xc4\x01\xff",
		"NaN":                       "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
		"infinity":                  "\xca\x7f\x80\x00\x00",
	} {
		got, err := wire.ToJSON([]byte("kept"), []byte(packed))
		if !errors.Is(err, wire.ErrMsgpack) || string(got) != "kept" {
			t.Errorf("ToJSON of %s = %q, %v, want an error that is ErrMsgpack", name, got, err)
		}
	}
}

func TestEmptyStaysEmpty(t *testing.T) {
	t.Parallel()
	packed, err := wire.ToMsgpack(nil, nil)
	if err != nil || len(packed) != 0 {
		t.Errorf("ToMsgpack of nothing = %q, %v, want nothing", packed, err)
	}
	text, err := wire.ToJSON(nil, nil)
	if err != nil || len(text) != 0 {
		t.Errorf("ToJSON of nothing = %q, %v, want nothing", text, err)
	}
}

func TestTranscodingDoesNotAllocate(t *testing.T) {
	text := []byte(message)
	packed, back := make([]byte, 0, 4096), make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		p, err := wire.ToMsgpack(packed[:0], text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ToJSON(back[:0], p); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a round trip into large enough buffers allocates %v times, want 0", n)
	}
}

func FuzzToMsgpack(f *testing.F) {
	for _, seed := range []string{
		message, `[1.10,-0,1e3,0.1]`, `"\ud83d\ude00\n"`, `{"a":{"a":[]},"a":0}`, `0e99999999999`, `-0.0e5`, `1e400`,
		`{"":""}`, `[[[[[[]]]]]]`, `123456789012345678901234567890`, `1.7976931348623157e309`, "\"\xff\"", ` [ ] `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		packed, err := wire.ToMsgpack(nil, text)
		if len(text) == 0 {
			return
		}
		if valid := json.Valid(text); !valid && len(text) < 10000 && !errors.Is(err, rawjson.ErrSyntax) &&
			!errors.Is(err, wire.ErrNotRepresentable) {
			t.Fatalf("ToMsgpack(%q) takes what is not JSON (err %v)", text, err)
		} else if valid && errors.Is(err, rawjson.ErrSyntax) {
			t.Fatalf("ToMsgpack(%q) does not take JSON: %v", text, err)
		}
		if err != nil {
			return
		}
		back, err := wire.ToJSON(nil, packed)
		if err != nil {
			t.Fatalf("ToJSON(ToMsgpack(%q)): %v", text, err)
		}
		if diff := differ(text, back); diff != "" {
			t.Fatalf("%q came back as %q: %s", text, back, diff)
		}
	})
}

func FuzzToJSON(f *testing.F) {
	seed, err := wire.ToMsgpack(nil, []byte(message))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	for _, s := range []string{"\xdd\xff\xff\xff\xff", "\xde\x00\x01\xc4\x01a\xca\x3f\x80\x00\x00", "\xc7\x01\x05x", "\x81\xa1a\x93\xc0\xc3\xd0\x80"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		text, err := wire.ToJSON(nil, packed)
		if err != nil || len(packed) == 0 {
			return
		}
		if len(packed) < 5000 && !json.Valid(text) {
			t.Fatalf("ToJSON(%x) = %q, which is not JSON", packed, text)
		}
		// A float32's shortest form may be no float64's, so only what does
		// come back must come back the same.
		again, err := wire.ToMsgpack(nil, text)
		if err != nil {
			if !errors.Is(err, wire.ErrNotRepresentable) {
				t.Fatalf("ToMsgpack(%q): %v", text, err)
			}
			return
		}
		back, err := wire.ToJSON(nil, again)
		if err != nil || differ(text, back) != "" {
			t.Fatalf("%q came back as %q, %v", text, back, err)
		}
	})
}

// differ compares two JSON texts token by token: order and doubled names count,
// numbers are compared as numbers. It says where they part, or nothing.
func differ(a, b []byte) string {
	x, y := json.NewDecoder(bytes.NewReader(a)), json.NewDecoder(bytes.NewReader(b))
	x.UseNumber()
	y.UseNumber()
	for i := 0; ; i++ {
		s, errX := x.Token()
		u, errY := y.Token()
		if errX == io.EOF && errY == io.EOF {
			return ""
		}
		if errX != nil || errY != nil {
			return fmt.Sprintf("token %d: %v, %v", i, errX, errY)
		}
		m, isNumber := s.(json.Number)
		n, alsoNumber := u.(json.Number)
		if isNumber && alsoNumber {
			if !sameNumber(string(m), string(n)) {
				return fmt.Sprintf("token %d: %s became %s", i, m, n)
			}
			continue
		}
		if s != u {
			return fmt.Sprintf("token %d: %v became %v", i, s, u)
		}
	}
}

func sameNumber(a, b string) bool {
	if strings.HasPrefix(a, "-") != strings.HasPrefix(b, "-") {
		return false
	}
	isZero := func(s string) bool {
		mantissa, _, _ := strings.Cut(strings.ToLower(s), "e")
		return strings.Trim(mantissa, "-0.") == ""
	}
	if isZero(a) || isZero(b) {
		return isZero(a) && isZero(b)
	}
	x, okX := new(big.Rat).SetString(a)
	y, okY := new(big.Rat).SetString(b)
	return okX && okY && x.Cmp(y) == 0
}

func BenchmarkToMsgpack(b *testing.B) {
	text, out := []byte(message), make([]byte, 0, 4096)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ToMsgpack(out[:0], text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkToJSON(b *testing.B) {
	packed, err := wire.ToMsgpack(nil, []byte(message))
	if err != nil {
		b.Fatal(err)
	}
	out := make([]byte, 0, 4096)
	b.SetBytes(int64(len(packed)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.ToJSON(out[:0], packed); err != nil {
			b.Fatal(err)
		}
	}
}
