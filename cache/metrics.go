package cache

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	registered "github.com/sluicehq/sluice/internal/metrics"
	"github.com/sluicehq/sluice/internal/wire"
)

// metrics are a store's counters. They count whether or not anyone collects them.
type metrics struct {
	hits, misses, evicted, trimmed prometheus.Counter
	bytes                          prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, shard wire.Shard) *metrics {
	label := prometheus.Labels{"shard": strconv.Itoa(shard.ID)}
	counter := func(name, help string) prometheus.Counter {
		return registered.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_cache_" + name, Help: help, ConstLabels: label}))
	}
	return &metrics{
		hits:    counter("hits_total", "Lookups for a previous state that memory answered."),
		misses:  counter("misses_total", "Lookups for a previous state that went to Redis."),
		evicted: counter("evicted_total", "Objects dropped from memory to keep it within its bound; they stay in Redis."),
		trimmed: counter("messages_trimmed_total", "Messages dropped to keep a channel within messages_per_channel."),
		bytes: registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_cache_memory_bytes", Help: "Memory in use, values and bookkeeping.", ConstLabels: label,
		})),
	}
}
