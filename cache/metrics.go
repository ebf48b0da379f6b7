package cache

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/dispatch"
	registered "github.com/sluicehq/sluice/internal/metrics"
	"github.com/sluicehq/sluice/internal/wire"
)

// metrics are a store's counters. They count whether or not anyone collects them.
type metrics struct {
	hits, misses               [numKinds]prometheus.Counter
	entries, kindBytes         [numKinds]prometheus.Gauge
	evicted, trimmed, expelled prometheus.Counter
	bytes                      prometheus.Gauge
	shown                      [numKinds]held
}

func newMetrics(reg prometheus.Registerer, shard wire.Shard) *metrics {
	label := prometheus.Labels{"shard": strconv.Itoa(shard.ID)}
	counter := func(name, help string) prometheus.Counter {
		return registered.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_cache_" + name, Help: help, ConstLabels: label}))
	}
	counters := func(name, help string) (of [numKinds]prometheus.Counter) {
		vec := registered.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_cache_" + name, Help: help, ConstLabels: label}, []string{"kind"}))
		for i, kind := range dispatch.Kinds {
			of[i] = vec.WithLabelValues(string(kind))
		}
		return of
	}
	gauges := func(name, help string) (of [numKinds]prometheus.Gauge) {
		vec := registered.Register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_cache_" + name, Help: help, ConstLabels: label}, []string{"kind"}))
		for i, kind := range dispatch.Kinds {
			of[i] = vec.WithLabelValues(string(kind))
		}
		return of
	}
	return &metrics{
		hits:      counters("hits_total", "Lookups that memory answered, by kind."),
		misses:    counters("misses_total", "Lookups that went to Redis, by kind."),
		entries:   gauges("memory_entries", "Objects in memory, and what is known not to exist, by kind."),
		kindBytes: gauges("memory_entry_bytes", "Memory that they use, by kind."),
		evicted:   counter("evicted_total", "Objects dropped from memory to keep it within its bound; they stay in Redis."),
		trimmed:   counter("messages_trimmed_total", "Messages dropped to keep a channel within messages_per_channel."),
		expelled:  counter("invites_trimmed_total", "Invites dropped to keep a guild within what Discord lets it have."),
		bytes: registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_cache_memory_bytes", Help: "Memory in use, values and bookkeeping.", ConstLabels: label,
		})),
	}
}

// holds notes what memory holds.
func (m *metrics) holds(used int64, held *[numKinds]held) {
	m.bytes.Set(float64(used))
	for i := range held {
		if held[i] != m.shown[i] {
			m.shown[i] = held[i]
			m.entries[i].Set(float64(held[i].entries))
			m.kindBytes[i].Set(float64(held[i].bytes))
		}
	}
}
