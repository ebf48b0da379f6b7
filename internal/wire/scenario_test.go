package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/sluicehq/sluice/internal/wire"
)

// Every width of an integer is the same number again, and the entry's own numbers
// are decimal text.
func TestScenario163SmallIntsChangeType(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{0, 3, 100, 127, 128, 255, 256, 70_000, 1 << 32, 1_932_963_600_000, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MaxUint64} {
		text, err := json.Marshal(map[string]uint64{"n": n})
		if err != nil {
			t.Fatal(err)
		}
		packed, err := wire.ToMsgpack(nil, text)
		if err != nil {
			t.Fatalf("ToMsgpack(%s): %v", text, err)
		}
		back, err := wire.ToJSON(nil, packed)
		if err != nil || !bytes.Equal(back, text) {
			t.Errorf("%s came back as %s, %v", text, back, err)
		}
		// As a library writes it.
		other, err := msgpack.Marshal(map[string]uint64{"n": n})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := wire.ToJSON(nil, other); err != nil || !bytes.Equal(back, text) {
			t.Errorf("%s of a library came back as %s, %v", text, back, err)
		}
	}
	e := entries["every-flag"]
	got, err := wire.Decode(values(e.AppendArgs(nil)))
	if err != nil || got.Sequence != 9007199254740993 || got.Shard != 15 {
		t.Errorf("Decode = %+v, %v", got, err)
	}
}

// A payload is no bytes inside of bytes: an object, null and nothing stay apart.
func TestScenario165RawJSONBecomesBin(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"id":"1"}`, `null`, `[]`, `{}`} {
		packed, err := wire.ToMsgpack(nil, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if kind := packed[0]; kind >= 0xc4 && kind <= 0xc6 {
			t.Errorf("%s became binary", text)
		}
		back, err := wire.ToJSON(nil, packed)
		if err != nil || string(back) != text {
			t.Errorf("%s came back as %s, %v", text, back, err)
		}
	}
	seen := map[string]bool{}
	for _, payload := range []string{`{}`, `null`, ``} {
		e := entries["message-update"]
		e.Payload = []byte(payload)
		got, err := wire.Decode(values(e.AppendArgs(nil)))
		if err != nil || string(got.Payload) != payload {
			t.Errorf("payload %q came back as %q, %v", payload, got.Payload, err)
		}
		seen[string(got.Payload)] = true
	}
	if len(seen) != 3 {
		t.Errorf("payloads %v, want three", seen)
	}
}

// What a newer gateway adds is passed over; what can't be read is refused by name,
// for the worker to dead-letter it.
func TestScenario171EnvelopeVersionSkew(t *testing.T) {
	t.Parallel()
	e := entries["message-update"]
	newer := values(e.AppendArgs(nil))
	newer["compression"], newer["version"] = "none", "2"
	newer["flags"] = "partial,gzip"
	got, err := wire.Decode(newer)
	want := e
	want.Flags = wire.Partial
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Decode (-want +got): %v\n%s", err, diff)
	}
	for _, codec := range []string{"v99", "unknown", "", "JSON", "gzip"} {
		m := values(e.AppendArgs(nil))
		m["codec"] = codec
		if _, err := wire.Decode(m); !errors.Is(err, wire.ErrEntry) {
			t.Errorf("Decode with codec %q = %v, want ErrEntry", codec, err)
		}
	}
}
