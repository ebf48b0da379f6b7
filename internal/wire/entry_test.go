package wire_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files anew")

// entries are what the golden files of the format's first version hold. A file
// that was shipped stays as it is: readers in other languages were built on it.
var entries = map[string]wire.Entry{
	"message-update": {
		Event:   "MESSAGE_UPDATE",
		Payload: []byte(`{"id":"1478030302038921217","channel_id":"290926798999357250","guild_id":"290926798626357250","content":"now"}`),
		State:   []byte(`{"id":"1478030302038921217","channel_id":"290926798999357250","content":"before"}`),
		Shard:   3, Sequence: 70000, Session: "5994471abb01", Received: 1932963600000, Codec: wire.JSON,
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	},
	"unknown-state": {
		Event:   "TYPING_START",
		Payload: []byte(`{"channel_id":"1","user_id":"2","timestamp":1932963600}`),
		Shard:   0, Sequence: 1, Session: "5994471abb01", Received: 1932963600001, Codec: wire.JSON,
	},
	"every-flag": {
		Event:   "GUILD_CREATE",
		Payload: []byte(`{"id":"290926798626357250"}`),
		State:   []byte(`{"id":"290926798626357250"}`),
		Shard:   15, Sequence: 9007199254740993, Session: "5994471abb01", Received: 1932963600002, Codec: wire.JSON,
		Flags: wire.Sync | wire.Synthetic | wire.Slim | wire.Partial,
	},
	"msgpack": {
		Event:   "GUILD_ROLE_DELETE",
		Payload: []byte("\x82\xa8guild_id\xb2290926798626357250\xa7role_id\xa11"),
		State:   []byte("\x82\xa2id\xa11\xa8position\xff"),
		Shard:   0, Sequence: 12, Session: "5994471abb01", Received: 1932963600003, Codec: wire.Msgpack,
	},
	"session-lost": {
		Event:    wire.EventSessionLost,
		Payload:  []byte(`{}`),
		Sequence: 0, Session: "5994471abb01", Received: 1932963600004, Codec: wire.JSON, Flags: wire.Synthetic,
	},
	"redriven": {
		Event:   "orders.created",
		Payload: []byte(`{"order":"A-1","note":"line one\nline two \u0000"}`),
		Shard:   1, Received: 1932963600005, Codec: wire.JSON, Target: "workers/welcome,edit-log",
	},
}

// printable and unprintable are each other's inverse. What a golden file must
// not have as it is, is written <hex>.
var printable, unprintable = func() (*strings.Replacer, *strings.Replacer) {
	var to, from []string
	for c := range 256 {
		if c < ' ' || c == '<' || c >= 0x7f {
			hex := fmt.Sprintf("<%02x>", c)
			to = append(to, string([]byte{byte(c)}), hex)
			from = append(from, hex, string([]byte{byte(c)}))
		}
	}
	return strings.NewReplacer(to...), strings.NewReplacer(from...)
}()

// resp writes arguments the way they go over the connection, with line feeds
// only.
func asText(args []any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\n", len(args))
	for _, arg := range args {
		text := argText(arg)
		fmt.Fprintf(&b, "$%d\n%s\n", len(text), printable.Replace(text))
	}
	return b.String()
}

func argText(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case *string:
		return *v
	case []byte:
		return string(v)
	case *int:
		return strconv.Itoa(*v)
	case *int64:
		return strconv.FormatInt(*v, 10)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		panic(fmt.Sprintf("%T is not an argument go-redis writes as it is", arg))
	}
}

// values is what a reader gets for the arguments of an entry.
func values(args []any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(args); i += 2 {
		m[args[i].(string)] = argText(args[i+1])
	}
	return m
}

func TestEntryGolden(t *testing.T) {
	t.Parallel()
	for name, entry := range entries {
		path := filepath.Join("testdata", "entry-v1", name+".golden")
		got := asText(entry.AppendArgs(nil))
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s is written differently (-golden +now):\n%s", path, diff)
		}
		decoded, err := wire.Decode(parseGolden(t, string(want)))
		if err != nil {
			t.Errorf("Decode of %s: %v", path, err)
		}
		if diff := cmp.Diff(entry, decoded, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("Decode of %s (-want +got):\n%s", path, diff)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "entry-v1", "*.golden"))
	if err != nil || len(files) != len(entries) {
		t.Errorf("%d golden files for %d entries (err %v)", len(files), len(entries), err)
	}
}

// parseGolden reads a golden file back, apart from the code that writes it.
func parseGolden(t *testing.T, text string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	m := map[string]any{}
	var flat []string
	for i := 1; i+1 < len(lines); i += 2 {
		value := unprintable.Replace(lines[i+1])
		if want := fmt.Sprintf("$%d", len(value)); lines[i] != want {
			t.Fatalf("line %d of a golden file is %q, want %q", i+1, lines[i], want)
		}
		flat = append(flat, value)
	}
	if want := fmt.Sprintf("*%d", len(flat)); lines[0] != want {
		t.Fatalf("a golden file begins with %q, want %q", lines[0], want)
	}
	for i := 0; i < len(flat); i += 2 {
		m[flat[i]] = flat[i+1]
	}
	return m
}

// Both ways to write an entry write the same.
func TestAppendRESP(t *testing.T) {
	t.Parallel()
	for _, e := range []wire.Entry{
		{},
		{Event: "MESSAGE_UPDATE", Payload: []byte("{\"a\":\"\r\n\"}"), State: []byte("x"), Shard: 12, Sequence: -3, Session: "s", Received: 1_762_268_400_000,
			Codec: wire.Msgpack, Flags: wire.Sync | wire.Slim, Trace: "00-1", Target: "g:l"},
	} {
		words, err := resp.Words(e.AppendRESP(resp.AppendCommand(nil, wire.FieldWords)))
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, w := range words {
			got = append(got, string(w))
		}
		for _, arg := range e.AppendArgs(nil) {
			want = append(want, argText(arg))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("AppendRESP (-AppendArgs +got):\n%s", diff)
		}
	}
}

func TestFieldsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	args := new(wire.Entry).AppendArgs([]any{"XADD"})
	var names []string
	for i := 1; i < len(args); i += 2 {
		names = append(names, args[i].(string))
	}
	want := []string{"event", "payload", "state", "shard", "sequence", "session", "received", "codec", "flags", "trace", "target"}
	if diff := cmp.Diff(want, names); diff != "" || args[0] != "XADD" {
		t.Errorf("AppendArgs (-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	whole := func() map[string]any {
		e := entries["message-update"]
		return values(e.AppendArgs(nil))
	}
	for _, name := range wire.Fields {
		m := whole()
		delete(m, name)
		_, err := wire.Decode(m)
		if !errors.Is(err, wire.ErrEntry) || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("Decode without %q = %v, want an error that names it", name, err)
		}
	}
	for field, value := range map[string]any{
		"shard": "one", "sequence": "1.5", "received": "", "codec": "v99", "payload": 7, "event": nil,
	} {
		m := whole()
		m[field] = value
		if _, err := wire.Decode(m); !errors.Is(err, wire.ErrEntry) || !strings.Contains(err.Error(), field) {
			t.Errorf("Decode with %s = %v: %v, want an error that names it", field, value, err)
		}
	}
	if _, err := wire.Decode(nil); !errors.Is(err, wire.ErrEntry) {
		t.Errorf("Decode(nil) = %v, want ErrEntry", err)
	}
}

func TestDecodePassesOverWhatIsNewer(t *testing.T) {
	t.Parallel()
	e := entries["every-flag"]
	m := values(e.AppendArgs(nil))
	m["compression"] = "none"
	m["flags"] = "sync,sparkling,slim,,partial,synthetic"
	got, err := wire.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for f, want := range map[wire.Flags]string{
		0:                                 "",
		wire.Sync:                         "sync",
		wire.Synthetic:                    "synthetic",
		wire.Slim:                         "slim",
		wire.Partial:                      "partial",
		wire.Sync | wire.Partial:          "sync,partial",
		wire.Synthetic | wire.Slim:        "synthetic,slim",
		wire.Sync | wire.Slim | 1<<7:      "sync,slim",
		wire.Partial | wire.Slim | 0b0011: "sync,synthetic,slim,partial",
	} {
		if got := f.String(); got != want {
			t.Errorf("Flags(%b).String() = %q, want %q", uint8(f), got, want)
		}
		if got := wire.ParseFlags(want); got != f&0b1111 {
			t.Errorf("ParseFlags(%q) = %b, want %b", want, got, f&0b1111)
		}
	}
	for text, want := range map[string]wire.Flags{
		"partial,sync": wire.Sync | wire.Partial, "SYNC": 0, " sync": 0, ",": 0, "sync,sync": wire.Sync, "newer": 0,
	} {
		if got := wire.ParseFlags(text); got != want {
			t.Errorf("ParseFlags(%q) = %b, want %b", text, got, want)
		}
	}
}

func FuzzDecodeIsTheInverse(f *testing.F) {
	f.Add("MESSAGE_CREATE", []byte(`{}`), []byte{}, 0, int64(1), "abc", int64(2), true, byte(3), "", "")
	f.Add("", []byte{0, 255}, []byte("\r\n$5"), -1, int64(-1<<63), "\x00", int64(1<<63-1), false, byte(15), "t", "g/a,b")
	f.Fuzz(func(t *testing.T, event string, payload, state []byte, shard int, sequence int64, session string,
		received int64, packed bool, flags byte, trace, target string) {
		want := wire.Entry{
			Event: event, Payload: payload, State: state, Shard: shard, Sequence: sequence, Session: session,
			Received: received, Codec: wire.JSON, Flags: wire.Flags(flags) & 0b1111, Trace: trace, Target: target,
		}
		if packed {
			want.Codec = wire.Msgpack
		}
		args := want.AppendArgs(nil)
		got, err := wire.Decode(values(args))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Payload, payload) || !bytes.Equal(got.State, state) {
			t.Fatalf("payload %q and state %q came back as %q and %q", payload, state, got.Payload, got.State)
		}
		if diff := cmp.Diff(args, got.AppendArgs(nil), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("Decode is not the inverse (-written +read):\n%s", diff)
		}
	})
}

func FuzzDecodeForeignFields(f *testing.F) {
	f.Add("shard", "x", "codec", "json")
	f.Fuzz(func(t *testing.T, name, value, other, another string) {
		e := entries["redriven"]
		m := values(e.AppendArgs(nil))
		m[name], m[other] = value, another
		if _, err := wire.Decode(m); err != nil && !errors.Is(err, wire.ErrEntry) {
			t.Fatalf("Decode: %v, want ErrEntry", err)
		}
	})
}
