package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// walk returns an object's members as "key=value".
func walk(text string) (members []string, end int, err error) {
	var o rawjson.Object
	for o.Reset([]byte(text)); o.Next(); {
		members = append(members, string(o.Key)+"="+string(o.Value))
	}
	if o.Next() {
		members = append(members, "one more behind the end")
	}
	return members, o.End(), o.Err()
}

func TestObject(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []string
	}{
		{`{}`, nil},
		{" \t\r\n{ } ", nil},
		{`{"a":1}`, []string{"a=1"}},
		{" {\n\"a\" :\t1 , \"b\" : [ 1 , 2 ] } ", []string{"a=1", "b=[ 1 , 2 ]"}},
		{`{"a":"}","b":"\"","c":"\\","d":"\\\"}"}`, []string{`a="}"`, `b="\""`, `c="\\"`, `d="\\\"}"`}},
		{`{"\"a\"":null,"":true,"a":false}`, []string{`\"a\"=null`, "=true", "a=false"}},
		{`{"a":-1.5e+10,"b":{"c":[{"d":"]"}]},"a":2}`, []string{"a=-1.5e+10", `b={"c":[{"d":"]"}]}`, "a=2"}},
		{`{"1234567":"12345678","12345678":"1234567"}`, []string{`1234567="12345678"`, `12345678="1234567"`}},
		{`{"long":"` + strings.Repeat("x", 100) + `\\\"` + `"}`, []string{`long="` + strings.Repeat("x", 100) + `\\\""`}},
	}
	for _, test := range tests {
		got, end, err := walk(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
		if want := strings.LastIndexByte(test.text, '}') + 1; end != want {
			t.Errorf("%s: End() = %d, want %d", test.text, end, want)
		}
	}
}

func TestObjectErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text   string
		offset int
		want   string
	}{
		{``, 0, "'{'"},
		{`[]`, 0, "'{'"},
		{`{`, 1, "a member name"},
		{`{a:1}`, 1, "a member name"},
		{`{"a`, 1, "a closed member name"},
		{`{"a\"`, 1, "a closed member name"},
		{`{"a"}`, 4, "':'"},
		{`{"a":}`, 5, "a value"},
		{`{"a":`, 5, "a value"},
		{`{"a":"b`, 5, "a value"},
		{`{"a":"b\`, 5, "a value"},
		{`{"a":[1,2}`, 5, "a value"},
		{`{"a":{]}`, 5, "a value"},
		{`{"a":1`, 6, "',' or '}'"},
		{`{"a":1 "b":2}`, 7, "',' or '}'"},
		{`{"a":1,}`, 7, "a member name"},
		{`{,}`, 1, "a member name"},
		{`{"a":+1}`, 5, "a value"},
	}
	for _, test := range tests {
		_, _, err := walk(test.text)
		syntax, ok := errors.AsType[*rawjson.SyntaxError](err)
		if !ok || !errors.Is(err, rawjson.ErrSyntax) {
			t.Errorf("%s: error %v, want a SyntaxError", test.text, err)
			continue
		}
		if syntax.Offset != test.offset || syntax.Want != test.want {
			t.Errorf("%s: want %s at %d, expected %s at %d", test.text, syntax.Want, syntax.Offset, test.want, test.offset)
		}
		if text := err.Error(); !strings.Contains(text, test.want) || !strings.Contains(text, fmt.Sprint(test.offset)) {
			t.Errorf("%s: error text %q", test.text, text)
		}
	}
}

func TestArray(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		want []string
		bad  bool
	}{
		{`[]`, nil, false},
		{` [ ] `, nil, false},
		{`[1, "a,]" ,[[]],{"b":[]} , null]`, []string{`1`, `"a,]"`, `[[]]`, `{"b":[]}`, `null`}, false},
		{``, nil, true},
		{`{}`, nil, true},
		{`[`, nil, true},
		{`[1`, []string{"1"}, true},
		{`[1 2]`, []string{"1"}, true},
		{`[1,]`, []string{"1"}, true},
		{`[,1]`, nil, true},
	}
	for _, test := range tests {
		var (
			a   rawjson.Array
			got []string
		)
		for a.Reset([]byte(test.text)); a.Next(); {
			got = append(got, string(a.Value))
		}
		if a.Next() {
			t.Errorf("%s: an element behind the end", test.text)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.text, diff)
		}
		if (a.Err() != nil) != test.bad || (test.bad && !errors.Is(a.Err(), rawjson.ErrSyntax)) {
			t.Errorf("%s: error %v, want one: %v", test.text, a.Err(), test.bad)
		}
	}
}

func TestNestingIsCheckedAtAnyDepth(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 63, 64, 65, 66, 127, 128, 129, 200, 100_000} {
		// Objects and arrays by turns, so that a lost level shows.
		var open, shut []byte
		for i := range depth {
			if i%3 == 0 {
				open, shut = append(open, `{"a":`...), append(shut, '}')
			} else {
				open, shut = append(open, '['), append(shut, ']')
			}
		}
		for i, j := 0, len(shut)-1; i < j; i, j = i+1, j-1 {
			shut[i], shut[j] = shut[j], shut[i]
		}
		text := append(append(bytes.Clone(open), '1'), shut...)
		if !rawjson.Complete(text) {
			t.Errorf("depth %d: whole, but not to Complete", depth)
		}
		if rawjson.Complete(text[:len(text)-1]) {
			t.Errorf("depth %d: the last bracket is missing, but not to Complete", depth)
		}
		for _, at := range []int{0, depth / 2, depth - 1} {
			wrong := bytes.Clone(text)
			wrong[len(open)+1+at] ^= '}' ^ ']'
			if rawjson.Complete(wrong) {
				t.Errorf("depth %d: bracket %d is of the other kind, but Complete", depth, at)
			}
		}
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`1`, ` -1.5E+7 `, `null`, `""`, `"\""`, `{}`, `[[],{}]`, " \r\n\t[ ] "} {
		if !rawjson.Complete([]byte(text)) {
			t.Errorf("Complete(%s) = false", text)
		}
	}
	for _, text := range []string{``, ` `, `"`, `"\"`, `{`, `{}}`, `[}`, `1 2`, `{} x`, `x`, `]`} {
		if rawjson.Complete([]byte(text)) {
			t.Errorf("Complete(%s) = true", text)
		}
	}
}

func TestScalars(t *testing.T) {
	t.Parallel()
	tests := []struct {
		value    string
		text     string
		isText   bool
		id       string // empty: none
		n        int64
		isInt    bool
		null, is bool
	}{
		{value: `"abc"`, text: "abc", isText: true, id: "abc"},
		{value: `""`, text: "", isText: true},
		{value: `"a\u0062\n"`, text: "ab\n", isText: true, id: "ab\n"},
		{value: `"\ud83d"`, text: "\ufffd", isText: true, id: "\ufffd"},
		{value: "\"\xff\"", text: "\ufffd", isText: true, id: "\ufffd"},
		{value: `"\x"`},
		{value: `"`},
		{value: `42`, id: "42", n: 42, isInt: true},
		{value: `-42`, id: "-42", n: -42, isInt: true},
		{value: `18446744073709551615`, id: "18446744073709551615"},
		{value: `1.5`},
		{value: `1e3`},
		{value: `null`, null: true},
		{value: `true`, is: true},
		{value: `false`},
		{value: `{}`},
		{value: `[]`},
		{value: ``},
	}
	for _, test := range tests {
		v := []byte(test.value)
		if text, ok := rawjson.Text(v); string(text) != test.text || ok != test.isText {
			t.Errorf("Text(%s) = %q, %v, want %q, %v", v, text, ok, test.text, test.isText)
		}
		if id := rawjson.ID(v); string(id) != test.id {
			t.Errorf("ID(%s) = %q, want %q", v, id, test.id)
		}
		if n, ok := rawjson.Int(v); ok != test.isInt || (ok && n != test.n) {
			t.Errorf("Int(%s) = %d, %v, want %d, %v", v, n, ok, test.n, test.isInt)
		}
		if rawjson.IsNull(v) != test.null || rawjson.IsTrue(v) != test.is {
			t.Errorf("%s: IsNull %v, IsTrue %v", v, rawjson.IsNull(v), rawjson.IsTrue(v))
		}
	}
	if !rawjson.IsObject([]byte(" {")) || rawjson.IsObject([]byte("[")) || rawjson.IsObject(nil) {
		t.Error("IsObject")
	}
	if !rawjson.Valid([]byte(`{"a":1}`)) || rawjson.Valid([]byte(`{"a":1x}`)) {
		t.Error("Valid")
	}
}

func TestKeyIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		key, name string
		want      bool
	}{
		{"guild_id", "guild_id", true},
		{"Guild_ID", "guild_id", true},
		{"guild_ix", "guild_id", false},
		{"guildid", "guild_id", false},
		{`\u0067uild_id`, "guild_id", true},
		{`\u0047uild_id`, "guild_id", true},
		{`guild\_id`, "guild_id", false},
		{`\\id`, `\id`, true},
		{"guild_id ", "guild_id", false},
		{"", "", true},
		{"u\u017fer", "user", true},
		{"\u212aind", "kind", true},
		{`\u212aind`, "kind", true},
		{"GR\u00d6SSE", "gr\u00f6sse", true},
		// Other characters that differ in that one bit are not letters.
		{"[", "{", false},
		{"@", "`", false},
	}
	for _, test := range tests {
		if got := rawjson.KeyIs([]byte(test.key), test.name); got != test.want {
			t.Errorf("KeyIs(%s, %q) = %v, want %v", test.key, test.name, got, test.want)
		}
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	const text = `{"id":1,"a":{"id":2},"ID":3,"n":null}`
	tests := []struct{ obj, name, want string }{
		{text, "id", "3"},
		{text, "a", `{"id":2}`},
		{text, "n", "null"},
		{text, "none", ""},
		{`[1]`, "id", ""},
		{``, "id", ""},
		{`{"id":1,"x":`, "id", "1"},
	}
	for _, test := range tests {
		if got := rawjson.Get([]byte(test.obj), test.name); string(got) != test.want {
			t.Errorf("Get(%s, %q) = %s, want %s", test.obj, test.name, got, test.want)
		}
	}
	if rawjson.Get([]byte(text), "none") != nil {
		t.Error("Get of a missing member is not nil")
	}
}

func TestWalkDoesNotAllocate(t *testing.T) {
	payload := corpus.Dispatch("MESSAGE_CREATE").Payload
	if n := testing.AllocsPerRun(100, func() {
		var o rawjson.Object
		for o.Reset(payload); o.Next(); {
			if len(o.Value) == 0 {
				t.Error("an empty value")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestMergeDoesNotAllocate(t *testing.T) {
	payload := corpus.Dispatch("MESSAGE_UPDATE").Payload
	dst := make([]byte, 0, 2*len(payload))
	if n := testing.AllocsPerRun(100, func() { dst = rawjson.AppendMerged(dst[:0], payload, payload) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// reference returns an object's members as encoding/json's tokenizer sees them:
// the name decoded, the value as it stands.
func reference(data []byte) (names []string, values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		names, values = append(names, name.(string)), append(values, value)
	}
	return names, values, nil
}

func seed(f *testing.F) {
	for _, e := range corpus.Dispatches() {
		if len(e.Payload) < 4096 {
			f.Add([]byte(e.Payload))
		}
	}
	for _, s := range corpus.Scenarios() {
		f.Add([]byte(s.Envelopes[0].Raw))
	}
	for _, text := range []string{``, `{`, `{"a":"\\\"","b":[{}]}`, `{"a" : 1 , "a":2}`, ` [1,[2,"]"]]`, `{"a":"\ud83d","\u0061":1}`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(text))
	}
}

func FuzzObject(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var o rawjson.Object
		var keys, values []string
		for o.Reset(data); o.Next(); {
			keys, values = append(keys, string(o.Key)), append(values, string(o.Value))
		}
		if !json.Valid(data) || !rawjson.IsObject(data) {
			if rawjson.IsObject(data) && o.Err() == nil {
				if end := o.End(); end > len(data) || !rawjson.Complete(data[:end]) {
					t.Errorf("%q: walked to its end at %d, which is not complete", data, end)
				}
			}
			return
		}
		if o.Err() != nil {
			t.Fatalf("%q is valid: %v", data, o.Err())
		}
		if rest := bytes.TrimSpace(data[o.End():]); len(rest) != 0 {
			t.Errorf("%q: ends at %d", data, o.End())
		}
		wantNames, wantValues, err := reference(data)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) != len(wantNames) {
			t.Fatalf("%q: %d members, want %d", data, len(keys), len(wantNames))
		}
		for i := range keys {
			name, ok := rawjson.Text([]byte(`"` + keys[i] + `"`))
			if !ok || string(name) != wantNames[i] || values[i] != string(wantValues[i]) {
				t.Errorf("%q: member %d is %q = %s, want %q = %s", data, i, name, values[i], wantNames[i], wantValues[i])
			}
		}
	})
}

func FuzzKeyIs(f *testing.F) {
	for _, key := range []string{"sticker_ids", "STICKER_ids", `\u0073ticker_ids`, "\u017fticker_ids", "stic\u212aer_ids", "sticker_id", "\xffticker_ids"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		var v struct {
			Field *int `json:"sticker_ids"`
		}
		if err := json.Unmarshal([]byte(`{"`+key+`":1}`), &v); err != nil || strings.Contains(key, `"`) {
			return // no name, or several
		}
		if got := rawjson.KeyIs([]byte(key), "sticker_ids"); got != (v.Field != nil) {
			t.Errorf("KeyIs(%q) = %v, encoding/json says %v", key, got, v.Field != nil)
		}
	})
}

func FuzzComplete(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		complete := rawjson.Complete(data)
		if json.Valid(data) && !complete {
			t.Errorf("%q is valid and not complete", data)
		}
		if complete && len(data) > 0 {
			// Complete is about structure: of an object or a string no part is whole.
			text := bytes.TrimSpace(data)
			if c := text[0]; (c == '{' || c == '[' || c == '"') && rawjson.Complete(text[:len(text)-1]) {
				t.Errorf("%q is complete, and without its last byte too", text)
			}
		}
	})
}

func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":2}}`), []byte(`{"b":null,"d":[1]}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":3,"a":4}`))
	f.Add([]byte(`[]`), []byte(`{}`))
	f.Add([]byte(`{ }`), []byte(` { "x" : "\"" } `))
	f.Fuzz(func(t *testing.T, old, update []byte) {
		const before = "kept"
		merged := rawjson.AppendMerged([]byte(before), old, update)
		emptied := rawjson.AppendEmptied([]byte(before), old, "a")
		without := rawjson.AppendWithout([]byte(before), old, func(key, _ []byte) bool { return string(key) == "a" })
		for _, got := range [][]byte{merged, emptied, without} {
			if !bytes.HasPrefix(got, []byte(before)) {
				t.Fatalf("%q, %q: what was there before is %q", old, update, got)
			}
		}
		var was, is map[string]json.RawMessage
		if json.Unmarshal(old, &was) != nil || json.Unmarshal(update, &is) != nil || was == nil || is == nil || bytes.ContainsRune(old, '\\') || bytes.ContainsRune(update, '\\') || !utf8.Valid(old) || !utf8.Valid(update) {
			return // names are compared as they stand
		}
		want := map[string]json.RawMessage{}
		for name, value := range was {
			want[name] = value
		}
		for name, value := range is {
			want[name] = value
		}
		compare(t, "AppendMerged", merged[len(before):], want)
		want = map[string]json.RawMessage{}
		for name, value := range was {
			if name != "a" {
				want[name] = value
			}
		}
		compare(t, "AppendWithout", without[len(before):], want)
		for name, value := range was {
			if strings.EqualFold(name, "a") && len(name) == 1 {
				value = json.RawMessage(`""`)
			}
			want[name] = value
		}
		compare(t, "AppendEmptied", emptied[len(before):], want)
	})
}

func compare(t *testing.T, what string, text []byte, want map[string]json.RawMessage) {
	t.Helper()
	got := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s made %q: %v", what, text, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s made %q (-want +got):\n%s", what, text, diff)
	}
}

func TestMergeWithManyMembers(t *testing.T) {
	t.Parallel()
	object := func(from, to int, value string) []byte {
		b := []byte{'{'}
		for i := from; i < to; i++ {
			if i > from {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `"k%d":%s`, i, value)
		}
		return append(b, '}')
	}
	for _, n := range []int{0, 1, 47, 48, 49, 50, 200} {
		got := map[string]int{}
		merged := rawjson.AppendMerged(nil, object(0, n, "1"), object(n/2, n+n/2, "2"))
		if err := json.Unmarshal(merged, &got); err != nil {
			t.Fatal(err)
		}
		for i := range n + n/2 {
			want := 2
			if i < n/2 {
				want = 1
			}
			if v := got[fmt.Sprintf("k%d", i)]; v != want {
				t.Errorf("%d members: k%d = %d, want %d", n, i, v, want)
			}
		}
		if len(got) != n+n/2 || bytes.Count(merged, []byte{':'}) != n+n/2 {
			t.Errorf("%d members: %d in the merged object", n, len(got))
		}
	}
}

func TestMergeOfWhatIsNoObject(t *testing.T) {
	t.Parallel()
	tests := []struct{ old, update, want string }{
		{`null`, `{"a":1}`, `{"a":1}`},
		{``, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `null`, `{"a":1}`},
		{`{"a":1}`, `[1]`, `{"a":1}`},
		{`{"a":1}`, `{"a":`, `{"a":1}`},
		{`{"a":1,`, `{"b":2}`, `{"b":2}`},
		{`1`, `2`, `2`},
	}
	for _, test := range tests {
		if got := rawjson.AppendMerged(nil, []byte(test.old), []byte(test.update)); string(got) != test.want {
			t.Errorf("merge %s over %s: %s, want %s", test.update, test.old, got, test.want)
		}
	}
	for _, text := range []string{``, `null`, `[1]`, `{"a":`} {
		if got := rawjson.AppendWithout(nil, []byte(text), func(_, _ []byte) bool { return true }); string(got) != text {
			t.Errorf("AppendWithout(%s) = %s", text, got)
		}
		if got := rawjson.AppendEmptied(nil, []byte(text), "a"); string(got) != text {
			t.Errorf("AppendEmptied(%s) = %s", text, got)
		}
	}
}

func BenchmarkComplete(b *testing.B) {
	payload := corpus.Dispatch("MESSAGE_CREATE").Payload
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		if !rawjson.Complete(payload) {
			b.Fatal("not complete")
		}
	}
}

func BenchmarkAppendMerged(b *testing.B) {
	payload := corpus.Dispatch("MESSAGE_UPDATE").Payload
	var dst []byte
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		dst = rawjson.AppendMerged(dst[:0], payload, payload)
	}
}
