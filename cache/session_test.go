package cache_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// commands gathers what a store wants written.
type commands [][]any

func (c *commands) Command(name string, _ int) { *c = append(*c, []any{name}) }
func (c *commands) Text(arg string)            { c.add(arg) }
func (c *commands) Bytes(arg []byte)           { c.add(arg) }

func (c *commands) add(arg any) {
	last := &(*c)[len(*c)-1]
	*last = append(*last, arg)
}

func (c *commands) exec(t testing.TB, rdb redis.Cmdable) {
	t.Helper()
	if len(*c) == 0 {
		return
	}
	_, err := rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, args := range *c {
			p.Do(t.Context(), args...)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("commit of %d commands: %v", len(*c), err)
	}
	*c = (*c)[:0]
}

func change(eventType string, payload []byte) *cache.Change {
	c := new(cache.Change)
	c.Set(eventType, payload, 1_762_268_400_000)
	return c
}

func newStore(t testing.TB, rdb redis.Cmdable, prefix string, cfg cache.Config) *cache.Store {
	t.Helper()
	s, err := cache.NewStore(prefix, 0, 1, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(t.Context(), rdb); err != nil {
		t.Fatal(err)
	}
	return s
}

// comparable decodes a state without what a GUILD_CREATE's children lack.
func comparable(t testing.TB, raw []byte) any {
	t.Helper()
	if len(raw) == 0 {
		return nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("state %.200q: %v", raw, err)
	}
	strip := func(v any) {
		if m, ok := v.(map[string]any); ok {
			delete(m, "guild_id")
			delete(m, "newly_created")
		}
	}
	strip(v)
	if list, ok := v.([]any); ok {
		for _, v := range list {
			strip(v)
		}
	}
	return v
}

// TestSession replays the recorded session in batches of random size, of which
// up to two are unconfirmed, and compares every previous state.
func TestSession(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  cache.Config
		cold bool // forgets everything after each batch
	}{
		{name: "warm"},
		{name: "1 MiB of memory", cfg: cache.Config{MemoryBytes: 1 << 20}},
		{name: "no memory to speak of", cfg: cache.Config{MemoryBytes: 1}},
		{name: "cold", cold: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Client(t)
			store := newStore(t, rdb, redistest.Prefix(t), test.cfg)
			want, got := corpus.States(), 0
			random := rand.New(rand.NewPCG(1, 2))
			var inFlight commands
			number := uint64(0)
			for envelopes := corpus.SessionEnvelopes(); len(envelopes) > 0; {
				n := min(1+random.IntN(100), len(envelopes))
				number++
				store.Begin(number)
				changes := make([]*cache.Change, n)
				for i, e := range envelopes[:n] {
					changes[i] = change(e.Type, e.Payload)
				}
				if _, err := store.Prefetch(t.Context(), rdb, changes); err != nil {
					t.Fatal(err)
				}
				var batch commands
				for i, c := range changes {
					if err := store.Apply(c, &batch); err != nil {
						t.Fatalf("Apply(%s, s %d): %v", envelopes[i].Type, envelopes[i].Seq(), err)
					}
					e, known := want[envelopes[i].Seq()]
					if known && corpus.Recorded(e.Type) {
						got++
					}
					if diff := cmp.Diff(comparable(t, e.Previous), comparable(t, c.State)); diff != "" {
						t.Fatalf("state of %s, s %d (-want +got):\n%s", envelopes[i].Type, envelopes[i].Seq(), diff)
					}
				}
				// The batch before this one reaches Redis only now.
				inFlight.exec(t, rdb)
				store.Confirm(number - 1)
				inFlight = batch
				envelopes = envelopes[n:]
				if test.cold {
					inFlight.exec(t, rdb)
					store.Reset()
					if err := store.Load(t.Context(), rdb); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got != 875 {
				t.Errorf("%d previous states compared, want 875", got)
			}
		})
	}
}
