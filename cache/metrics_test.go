package cache_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/cache"
)

// TestMetricsByKind counts what memory answered, what Redis was asked, and what
// memory holds.
func TestMetricsByKind(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBench(t, cache.Config{Metrics: reg})
	read := func(name, kind string) float64 {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != "sluice_cache_"+name {
				continue
			}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "kind" && l.GetValue() == kind {
						return m.GetCounter().GetValue() + m.GetGauge().GetValue()
					}
				}
			}
		}
		t.Fatalf("no %s of kind %s", name, kind)
		return 0
	}
	want := func(what string, kind string, hits, misses, entries float64) {
		t.Helper()
		b.store.Confirm(b.number)
		if h, m, e := read("hits_total", kind), read("misses_total", kind), read("memory_entries", kind); h != hits || m != misses || e != entries {
			t.Errorf("%s, kind %s: %v hits, %v misses, %v entries, want %v, %v, %v", what, kind, h, m, e, hits, misses, entries)
		}
	}
	b.do("MESSAGE_CREATE", message)
	want("a new message", "message", 0, 0, 1)
	b.do("MESSAGE_UPDATE", message)
	want("an edit", "message", 1, 0, 1)
	b.do("MESSAGE_REACTION_ADD", `{"user_id":"5",`+x+`}`)
	want("a reaction", "message", 2, 1, 2) // what is beside it was not known
	b.do("GUILD_ROLE_UPDATE", `{"guild_id":"1","role":{"id":"7"}}`)
	want("a role", "role", 0, 1, 1)
	want("a role", "message", 2, 1, 2)
	if bytes, all := read("memory_entry_bytes", "message"), float64(b.store.Bytes()); bytes < float64(len(message)) || bytes >= all {
		t.Errorf("messages use %v bytes of %v", bytes, all)
	}
	b.forget()
	b.do("MESSAGE_DELETE", message)
	want("after a takeover", "message", 2, 2, 3) // it and what is beside it are known to be gone
	want("after a takeover", "role", 0, 1, 0)
	if n := read("memory_entry_bytes", "role"); n != 0 {
		t.Errorf("roles use %v bytes, none is in memory", n)
	}
}

// TestMemoryIsAccountedByKind finds that the kinds add up to what is used, but for
// what is of no kind.
func TestMemoryIsAccountedByKind(t *testing.T) {
	t.Parallel()
	b := newBench(t, cache.Config{MemoryBytes: 300 << 10})
	for i, e := range recorded() {
		b.do(e.Type, string(e.Payload))
		if err := b.store.CheckMemory(); err != nil {
			t.Fatalf("after %s (%d): %v", e.Type, i, err)
		}
	}
}
