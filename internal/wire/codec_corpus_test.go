package wire_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/wire"
)

// Whatever Discord has sent comes back the same, or is refused so that the entry
// goes out as JSON: the latter only where msgpack has no such value.
func TestMsgpackOfTheCorpus(t *testing.T) {
	t.Parallel()
	refused := map[string]int{}
	check := func(name string, payload []byte) {
		packed, err := wire.ToMsgpack(nil, payload)
		if errors.Is(err, wire.ErrNotRepresentable) {
			refused[name]++
			return
		}
		if err != nil {
			t.Errorf("%s: ToMsgpack: %v", name, err)
			return
		}
		back, err := wire.ToJSON(nil, packed)
		if err != nil {
			t.Errorf("%s: ToJSON: %v", name, err)
			return
		}
		if diff := differ(payload, back); diff != "" {
			t.Errorf("%s: came back different: %s", name, diff)
		}
	}
	for _, e := range corpus.Dispatches() {
		check(e.Type, e.Payload)
	}
	for _, e := range corpus.SessionEnvelopes() {
		check("session", e.Payload)
	}
	for _, s := range corpus.Scenarios() {
		for _, e := range s.Envelopes {
			check(s.Name, e.Payload)
		}
	}
	expected := corpus.Expected()
	defer expected.Close()
	states := bufio.NewScanner(expected)
	states.Buffer(nil, 4<<20)
	for states.Scan() {
		var of struct{ Previous json.RawMessage }
		if err := json.Unmarshal(states.Bytes(), &of); err != nil {
			t.Fatal(err)
		}
		check("state", of.Previous)
	}
	if err := states.Err(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"129-raw-int-through-float": 1, "139-lone-surrogate": 1}
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}
