package corpus_test

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"

	"github.com/sluicehq/sluice/internal/corpus"
)

func TestDispatchesHasEveryTypeOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, e := range corpus.Dispatches() {
		if seen[e.Type] || e.Op != 0 || !json.Valid(e.Payload) {
			t.Errorf("%s: seen before %v, op %d, payload of %d bytes", e.Type, seen[e.Type], e.Op, len(e.Payload))
		}
		seen[e.Type] = true
	}
	if len(seen) != 79 {
		t.Errorf("%d types, want 79", len(seen))
	}
}

func TestScenariosKeepBytes(t *testing.T) {
	t.Parallel()
	all := corpus.Scenarios()
	if len(all) != 47 {
		t.Errorf("%d scenarios, want 47", len(all))
	}
	for _, s := range all {
		if s.Number() != "143" {
			continue
		}
		const want = `{"id":"900500000000000001","id":"900500000000000002","ID":"900500000000000003","channel_id":"900200000000000001","Guild_Id":"900100000000000009","guild_id":"900100000000000001"}`
		if got := string(s.Envelopes[0].Payload); got != want {
			t.Errorf("scenario 143:\n got %s\nwant %s", got, want)
		}
	}
}

func TestSessionAndExpected(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		open  func() io.ReadCloser
		lines int
	}{{"Session", corpus.Session, 2106}, {"Expected", corpus.Expected, 875}} {
		r := test.open()
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, 1<<20)
		n := 0
		for scanner.Scan() {
			if n++; !json.Valid(scanner.Bytes()) {
				t.Fatalf("%s: line %d is no JSON", test.name, n)
			}
		}
		if err := scanner.Err(); err != nil || n != test.lines {
			t.Errorf("%s: %d lines, error %v, want %d", test.name, n, err, test.lines)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", test.name, err)
		}
	}
	if n := len(corpus.SessionEnvelopes()); n != 2106 {
		t.Errorf("SessionEnvelopes: %d, want 2106", n)
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	states := corpus.States()
	of := make(map[bool]int)
	for _, s := range states {
		of[corpus.Recorded(s.Type)]++
	}
	if of[true] != 875 || of[false] != 33 {
		t.Errorf("%d recorded states and %d additional ones, want 875 and 33", of[true], of[false])
	}
	for _, e := range corpus.SessionEnvelopes() {
		if s, ok := states[e.Seq()]; ok && s.Type != e.Type {
			t.Errorf("the state of sequence %d is one of %s, the dispatch is %s", e.Seq(), s.Type, e.Type)
		}
	}
}
