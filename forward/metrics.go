package forward

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	registered "github.com/sluicehq/sluice/internal/metrics"
)

// metrics are a shard's counters. They count whether or not anyone collects them.
type metrics struct {
	dispatches, entries, repeated, unscannable prometheus.Counter
	commits, refused, recovered                prometheus.Counter
	slim, shed, jsonFallback                   prometheus.Counter
	sessionsLost, gaps, trimmed, trimPasses    prometheus.Counter
	stalled, streamEntries, streamBytes        prometheus.Gauge
	commitSeconds, batchItems                  prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, shard int) *metrics {
	labels := prometheus.Labels{"shard": strconv.Itoa(shard)}
	counter := func(name, help string) prometheus.Counter {
		return registered.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return registered.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels, Buckets: buckets}))
	}
	return &metrics{
		dispatches:    counter("dispatches_total", "Dispatches taken from the gateway."),
		entries:       counter("entries_total", "Entries appended to streams."),
		repeated:      counter("repeated_total", "Dispatches dropped because their sequence was not above the last one's."),
		unscannable:   counter("unscannable_total", "Payloads that are no JSON object, forwarded as they are."),
		commits:       counter("commits_total", "Batches committed."),
		refused:       counter("commits_refused_total", "Commits sent again because the session record had been written to."),
		recovered:     counter("commits_recovered_total", "Commits found executed after their reply was lost."),
		slim:          counter("slim_total", "Entries that went without their bulky arrays."),
		shed:          counter("shed_total", "Dispatches replaced by a notice because Redis does not take their size."),
		jsonFallback:  counter("json_fallback_total", "Entries written as JSON because msgpack can't hold a value of theirs."),
		sessionsLost:  counter("sessions_lost_total", "Sessions that Discord ended or that could not be resumed."),
		gaps:          counter("sequence_gaps_total", "Jumps of the sequence inside a session."),
		trimmed:       counter("trimmed_total", "Entries trimmed from the streams."),
		trimPasses:    counter("trim_passes_total", "Looks at the streams' bounds."),
		stalled:       gauge("stalled", "1 while commits do not get through."),
		streamEntries: gauge("stream_entries", "Entries in the shard's streams at the last look."),
		streamBytes:   gauge("stream_bytes", "Memory of the shard's streams at the last look, as Redis estimates it."),
		commitSeconds: histogram("commit_seconds", "Time from a batch to its confirmation.", prometheus.ExponentialBuckets(0.0002, 2, 16)),
		batchItems:    histogram("batch_dispatches", "Dispatches in a commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
	}
}
