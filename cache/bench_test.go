package cache_test

import (
	"bytes"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/redistest"
)

// discard takes commands and forgets them.
type discard struct{ n int }

func (d *discard) Command(string, int) { d.n++ }
func (d *discard) Text(string)         {}
func (d *discard) Bytes([]byte)        {}

// BenchmarkApply scans, looks up and applies one dispatch of each type: with what it
// asks for in memory (warm), and with everything to be read from Redis (cold: one
// round trip). What a dispatch removes is there again each time.
func BenchmarkApply(b *testing.B) {
	payloads := map[string][]byte{"GUILD_CREATE 154 members": guildOf154()}
	for _, e := range recorded() {
		payloads[e.Type] = e.Payload
	}
	names := []string{"GUILD_CREATE 154 members"}
	for i := range dispatch.Types {
		names = append(names, dispatch.Types[i].Name)
	}
	for _, name := range names {
		eventType := name
		if dispatch.Lookup(name) == nil {
			eventType = "GUILD_CREATE"
		}
		for _, mode := range []struct {
			name string
			cfg  cache.Config
		}{{"warm", cache.Config{}}, {"cold", cache.Config{MemoryBytes: 1}}} {
			do := dispatch.Lookup(eventType).Cache.Do
			if do == dispatch.Ignore && (mode.name == "cold" || eventType != "TYPING_START") {
				continue // they are all the same
			}
			b.Run(name+"/"+mode.name, func(b *testing.B) {
				rdb := redistest.Client(b)
				bench := &bench{t: b, rdb: rdb, store: newStore(b, rdb, redistest.Prefix(b), mode.cfg), now: 1_762_268_400_000}
				fill(bench)
				removes := do == dispatch.Remove || do == dispatch.RemoveMany || do == dispatch.GuildDelete
				payload := payloads[name]
				var out discard
				apply := func(eventType string, payload []byte) {
					bench.number++
					bench.store.Begin(bench.number)
					c := new(cache.Change)
					if err := c.Set(eventType, payload, bench.now); err != nil {
						b.Fatal(err)
					}
					if _, err := bench.store.Prefetch(b.Context(), rdb, []*cache.Change{c}); err != nil {
						b.Fatal(err)
					}
					if err := bench.store.Apply(c, &out); err != nil {
						b.Fatal(err)
					}
					bench.store.Confirm(bench.number)
				}
				apply(eventType, payload)
				b.SetBytes(int64(len(payload)))
				b.ReportAllocs()
				for b.Loop() {
					if removes && mode.name == "warm" {
						b.StopTimer()
						fill(bench)
						b.StartTimer()
					}
					apply(eventType, payload)
				}
			})
		}
	}
}

// fill commits one dispatch of each type that removes nothing: the guild, entities,
// then what refers to them.
func fill(b *bench) {
	b.t.Helper()
	stage := func(do dispatch.Action) int {
		switch do {
		case dispatch.Ready, dispatch.GuildCreate:
			return 0
		case dispatch.Put, dispatch.Replace:
			return 1
		case dispatch.Ignore, dispatch.Remove, dispatch.RemoveMany, dispatch.GuildDelete, dispatch.SyncThreads:
			return -1
		}
		return 2
	}
	for now := range 3 {
		for _, e := range recorded() {
			if stage(dispatch.Lookup(e.Type).Cache.Do) == now {
				b.build(e.Type, string(e.Payload))
			}
		}
	}
	b.commit()
}

// recorded returns a dispatch of each type. Those that are about a message are about
// the one that is created.
var recorded = sync.OnceValue(func() []corpus.Envelope {
	all := corpus.Dispatches()
	for i := range all {
		all[i].Payload = bytes.ReplaceAll(all[i].Payload, []byte("1435282584296030418"), []byte("1435282605269868760"))
	}
	return all
})

// guildOf154 returns the snapshot of a recorded guild with 154 members.
func guildOf154() []byte {
	for _, e := range corpus.SessionEnvelopes() {
		if e.Type == "GUILD_CREATE" && len(e.Payload) > 50_000 && len(e.Payload) < 400_000 {
			return e.Payload
		}
	}
	panic("no such guild is recorded")
}
