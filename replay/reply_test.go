package replay_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/replay"
)

// answer returns entries as Redis sends them to XCLAIM: each is its fields and
// values, nil for an entry that is gone.
func answer(entries ...[]string) []byte {
	var b strings.Builder
	bulk := func(s string) { fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(s), s) }
	fmt.Fprintf(&b, "*%d\r\n", len(entries))
	for i, fields := range entries {
		if fields == nil {
			b.WriteString("*-1\r\n")
			continue
		}
		b.WriteString("*2\r\n")
		bulk(fmt.Sprintf("17000-%d", i))
		fmt.Fprintf(&b, "*%d\r\n", len(fields))
		for _, f := range fields {
			bulk(f)
		}
	}
	return []byte(b.String())
}

// words returns an entry's fields and values in their order.
func words(e wire.Entry) (fields []string) {
	for _, arg := range e.AppendArgs(nil) {
		v := reflect.Indirect(reflect.ValueOf(arg)).Interface()
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		fields = append(fields, fmt.Sprint(v))
	}
	return fields
}

// TestReadEntries holds what is read off a connection to wire.Decode.
func TestReadEntries(t *testing.T) {
	t.Parallel()
	full := wire.Entry{
		Event: "MESSAGE_UPDATE", Payload: []byte(`{"a":"` + strings.Repeat("x", 900) + `"}`), State: []byte(`{"b":2}`),
		Shard: 3, Sequence: 1 << 40, Session: "abcdef012345", Received: 1700000000123, Codec: wire.JSON,
		Flags: wire.Sync | wire.Slim, Trace: "00-1-2-01", Target: "g:l",
	}
	bare := wire.Entry{Event: "orders.created", Sequence: -1, Codec: wire.Msgpack}
	swapped := words(full)
	swapped[0], swapped[1], swapped[6], swapped[7] = swapped[6], swapped[7], swapped[0], swapped[1]
	without := func(field string) []string {
		var fields []string
		for i := 0; i < len(words(full)); i += 2 {
			if words(full)[i] != field {
				fields = append(fields, words(full)[i:i+2]...)
			}
		}
		return fields
	}
	with := func(field, value string) []string {
		fields := words(full)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == field {
				fields[i+1] = value
			}
		}
		return fields
	}
	tests := map[string][]string{
		"full":          words(full),
		"bare":          words(bare),
		"other order":   swapped,
		"field added":   append([]string{"new", "1"}, append(words(full), "newer", "2")...),
		"no fields":     {},
		"bad shard":     with("shard", "x"),
		"huge sequence": with("sequence", "99999999999999999999"),
		"bad received":  with("received", ""),
		"bad codec":     with("codec", "zstd"),
		"new flag":      with("flags", "sync,later"),
	}
	for _, field := range wire.Fields {
		tests["without "+field] = without(field)
	}
	for name, fields := range tests {
		values := map[string]any{}
		for i := 0; i < len(fields); i += 2 {
			values[fields[i]] = fields[i+1]
		}
		want, wantErr := wire.Decode(values)
		for _, buffer := range []int{64, 300, 256 << 10} {
			got, bad, err := replay.ReadEntries(answer(nil, fields, words(bare)), buffer)
			if err != nil {
				t.Errorf("%s, buffer %d: %v", name, buffer, err)
				continue
			}
			if len(got) != 2 {
				t.Errorf("%s, buffer %d: %d entries, want 2", name, buffer, len(got))
				continue
			}
			if (bad[0] != nil) != (wantErr != nil) {
				t.Errorf("%s, buffer %d: error %v, want %v", name, buffer, bad[0], wantErr)
			}
			if bad[0] != nil && !errors.Is(bad[0], wire.ErrEntry) {
				t.Errorf("%s: %v does not wrap ErrEntry", name, bad[0])
			}
			if diff := cmp.Diff(want, got[0], cmpopts.EquateEmpty()); wantErr == nil && diff != "" {
				t.Errorf("%s, buffer %d (-want +got):\n%s", name, buffer, diff)
			}
			if got[1].Event != bare.Event || bad[1] != nil {
				t.Errorf("%s, buffer %d: the entry behind it is %+v, %v", name, buffer, got[1], bad[1])
			}
		}
	}
}

func FuzzReadEntries(f *testing.F) {
	f.Add(answer(words(wire.Entry{Event: "READY", Codec: wire.JSON})))
	f.Add(answer(nil, []string{}))
	f.Add([]byte("-NOGROUP no such group\r\n"))
	f.Add([]byte("*1\r\n*2\r\n$3\r\n1-1\r\n*-1\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		small, _, errSmall := replay.ReadEntries(data, 128)
		large, _, errLarge := replay.ReadEntries(data, 64<<10)
		if errSmall == nil && (errLarge != nil || len(small) != len(large)) {
			t.Errorf("%d entries with a small buffer, %d (%v) with a large one", len(small), len(large), errLarge)
		}
	})
}
