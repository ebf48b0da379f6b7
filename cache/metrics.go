package cache

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

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
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_cache_" + name, Help: help, ConstLabels: label}))
	}
	return &metrics{
		hits:    counter("hits_total", "Lookups for a previous state that memory answered."),
		misses:  counter("misses_total", "Lookups for a previous state that went to Redis."),
		evicted: counter("evicted_total", "Objects dropped from memory to keep it within its bound; they stay in Redis."),
		trimmed: counter("messages_trimmed_total", "Messages dropped to keep a channel within messages_per_channel."),
		bytes: register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_cache_memory_bytes", Help: "Memory in use, values and bookkeeping.", ConstLabels: label,
		})),
	}
}

// register registers c, or returns the one that is already there under its
// name: a shard that is taken over again counts on.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	var already prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &already) {
		if c, ok := already.ExistingCollector.(C); ok {
			return c
		}
	}
	return c
}
