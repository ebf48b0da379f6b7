package cache_test

import (
	"testing"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/redistest"
)

// discard takes commands and forgets them.
type discard struct{ n int }

func (d *discard) Command(string, int) { d.n++ }
func (d *discard) Text(string)         {}
func (d *discard) Bytes([]byte)        {}

// BenchmarkApply scans, looks up and applies one dispatch whose previous state is
// in memory.
func BenchmarkApply(b *testing.B) {
	payloads := make(map[string][]byte)
	for _, e := range corpus.SessionEnvelopes() {
		switch {
		case e.Type == "GUILD_CREATE" && (len(e.Payload) < 50_000 || len(e.Payload) > 400_000):
		case payloads[e.Type] == nil && len(e.Payload) > 400:
			payloads[e.Type] = e.Payload
		}
	}
	for _, eventType := range []string{"MESSAGE_CREATE", "MESSAGE_UPDATE", "PRESENCE_UPDATE", "GUILD_MEMBER_UPDATE", "TYPING_START", "GUILD_CREATE"} {
		b.Run(eventType, func(b *testing.B) {
			payload := payloads[eventType]
			rdb := redistest.Client(b)
			store := newStore(b, rdb, redistest.Prefix(b), cache.Config{})
			var out discard
			var number uint64
			apply := func(eventType string) {
				number++
				store.Begin(number)
				c := change(eventType, payload)
				if _, err := store.Prefetch(b.Context(), rdb, []*cache.Change{c}); err != nil {
					b.Fatal(err)
				}
				if err := store.Apply(c, &out); err != nil {
					b.Fatal(err)
				}
				store.Confirm(number)
			}
			if eventType == "MESSAGE_UPDATE" {
				apply("MESSAGE_CREATE")
			}
			apply(eventType)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				apply(eventType)
			}
		})
	}
}
