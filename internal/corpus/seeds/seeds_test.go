package seeds_test

import (
	"testing"

	"github.com/sluicehq/sluice/internal/corpus/seeds"
)

func TestSessionsAreWhole(t *testing.T) {
	t.Parallel()
	for _, s := range seeds.Sessions {
		all := s.Envelopes()
		if len(all) != s.Dispatches {
			t.Errorf("%s: %d dispatches, want %d", s.Name, len(all), s.Dispatches)
		}
		for i, e := range all {
			if e.Seq() != int64(i+1) || e.Type == "" || e.Payload == nil {
				t.Fatalf("%s: line %d is sequence %d, type %q, %d bytes of payload", s.Name, i+1, e.Seq(), e.Type, len(e.Payload))
			}
		}
		if all[0].Type != "READY" {
			t.Errorf("%s begins with %s", s.Name, all[0].Type)
		}
	}
}
