package forward

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	registered "github.com/sluicehq/sluice/internal/metrics"
)

// metrics are a shard's counters. They count whether or not anyone collects them.
type metrics struct {
	received, published, repeated, unscannable prometheus.Counter
	commits, refused, recovered                prometheus.Counter
	slim, jsonFallback                         prometheus.Counter
	sessionsLost, gaps, trimmed, trimPasses    prometheus.Counter
	stalled, streamLength, streamBytes         prometheus.Gauge
	lengthLimit, bytesLimit, spoolBytes        prometheus.Gauge
	commitSeconds, publishSeconds, batchItems  prometheus.Histogram
	shed                                       *prometheus.CounterVec // by reason
	groups                                     groupMetrics
}

// Reasons of shed.
const shedTooLarge = "too_large"

func newMetrics(reg prometheus.Registerer, shard int) *metrics {
	labels := prometheus.Labels{"shard": strconv.Itoa(shard)}
	counters := func(name, help string, by ...string) *prometheus.CounterVec {
		return registered.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}, by))
	}
	counter := func(name, help string) prometheus.Counter {
		return registered.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}))
	}
	byGroup := func(name, help string) *prometheus.GaugeVec {
		return registered.Register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels}, []string{"group"}))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return registered.Register(reg, prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_forward_" + name, Help: help, ConstLabels: labels, Buckets: buckets}))
	}
	m := &metrics{
		received:       counter("dispatch_received_total", "Dispatches taken from the gateway."),
		published:      counter("published_total", "Entries appended to streams."),
		repeated:       counter("repeated_total", "Dispatches dropped because their sequence was not above the last one's."),
		unscannable:    counter("unscannable_total", "Payloads that are no JSON object, forwarded as they are."),
		commits:        counter("commits_total", "Batches committed."),
		refused:        counter("commits_refused_total", "Commits sent again because the session record had been written to."),
		recovered:      counter("commits_recovered_total", "Commits found executed after their reply was lost."),
		slim:           counter("slim_total", "Entries that went without their bulky arrays."),
		jsonFallback:   counter("json_fallback_total", "Entries written as JSON because msgpack can't hold a value of theirs."),
		sessionsLost:   counter("sessions_lost_total", "Sessions that Discord ended or that could not be resumed."),
		gaps:           counter("sequence_gaps_total", "Jumps of the sequence inside a session."),
		trimmed:        counter("trimmed_total", "Entries trimmed from the streams."),
		trimPasses:     counter("trim_passes_total", "Looks at the streams' bounds."),
		stalled:        gauge("stalled", "1 while commits do not get through."),
		streamLength:   gauge("stream_length", "Entries in the shard's streams at the last look."),
		streamBytes:    gauge("stream_bytes", "Memory of the shard's streams at the last look, as Redis estimates it."),
		lengthLimit:    gauge("stream_length_limit", "What stream_length may be: forward.max_length."),
		bytesLimit:     gauge("stream_bytes_limit", "What stream_bytes may be: forward.max_bytes."),
		spoolBytes:     gauge("spool_bytes", "What has been received and waits for Redis, as it is counted against forward.buffer_bytes."),
		commitSeconds:  histogram("commit_seconds", "Time from a batch to its confirmation.", prometheus.ExponentialBuckets(0.0002, 2, 16)),
		publishSeconds: histogram("publish_seconds", "Time from when a batch's oldest dispatch was read from the socket to the batch's confirmation.", []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300}),
		batchItems:     histogram("batch_dispatches", "Dispatches in a commit.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}),
		shed:           counters("shed_total", "Dispatches replaced by a notice, by reason: too_large, Redis does not take their size.", "reason"),
		groups: groupMetrics{
			lag:       byGroup("group_lag_entries", "Entries the group has not read; none where Redis does not tell (before 7.0)."),
			behind:    byGroup("group_lag_seconds", "Age of the oldest entry the group has not read."),
			pending:   byGroup("group_pending", "Entries read and not acknowledged."),
			oldest:    byGroup("group_oldest_pending_seconds", "Age of the oldest entry read and not acknowledged."),
			unserved:  byGroup("group_unserved_seconds", "Time since a live worker of the group was last seen."),
			abandoned: byGroup("group_abandoned", "1 if nobody has served the group for forward.abandon_after: entries are no longer kept for it."),
			unread:    counters("trimmed_unread_total", "Entries trimmed before the group had read them.", "group"),
			unacked:   counters("trimmed_unacked_total", "Entries trimmed after the group had read, before it had acknowledged them.", "group"),
		},
	}
	m.shed.WithLabelValues(shedTooLarge)
	return m
}

// newIdentifyRemaining returns the gauge that all shards share.
func newIdentifyRemaining(reg prometheus.Registerer) prometheus.Gauge {
	return registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_forward_identify_remaining", Help: "Identifies that Discord had left for the day when it was last asked, which is before each identify.",
	}))
}

// groupMetrics are the numbers of the groups that read a shard.
type groupMetrics struct {
	lag, behind, pending, oldest, unserved, abandoned *prometheus.GaugeVec
	unread, unacked                                   *prometheus.CounterVec

	mu sync.Mutex
	// Guarded by mu.
	known map[string]bool
}

// maxGroups is how many groups have numbers of their own: anybody who may use Redis
// can make groups. What others lose is counted under otherGroups.
const (
	maxGroups   = 64
	otherGroups = "(other)"
)

// label returns the group's label, and whether it is its own.
func (m *groupMetrics) label(name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known[name] {
		if len(m.known) >= maxGroups {
			return otherGroups, false
		}
		if m.known == nil {
			m.known = make(map[string]bool)
		}
		m.known[name] = true
	}
	return name, true
}

func (m *groupMetrics) set(name string, s standing, unserved time.Duration, abandoned bool) {
	label, own := m.label(name)
	if !own {
		return
	}
	if s.lag < 0 {
		m.lag.DeleteLabelValues(label)
	} else {
		m.lag.WithLabelValues(label).Set(float64(s.lag))
	}
	m.behind.WithLabelValues(label).Set(s.behind.Seconds())
	m.pending.WithLabelValues(label).Set(float64(s.pending))
	m.oldest.WithLabelValues(label).Set(s.oldest.Seconds())
	m.unserved.WithLabelValues(label).Set(unserved.Seconds())
	given := 0.0
	if abandoned {
		given = 1
	}
	m.abandoned.WithLabelValues(label).Set(given)
	m.unread.WithLabelValues(label) // counters are there, at 0, before they rise
	m.unacked.WithLabelValues(label)
}

func (m *groupMetrics) lost(name string, n missed) {
	label, _ := m.label(name)
	m.unread.WithLabelValues(label).Add(float64(n.unread))
	m.unacked.WithLabelValues(label).Add(float64(n.unacked))
}

// forget drops the numbers of a group that is gone.
func (m *groupMetrics) forget(name string) {
	m.hide(name)
	m.unread.DeleteLabelValues(name)
	m.unacked.DeleteLabelValues(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// hide drops where a group stands; what it has lost stays.
func (m *groupMetrics) hide(name string) {
	for _, gauge := range []*prometheus.GaugeVec{m.lag, m.behind, m.pending, m.oldest, m.unserved, m.abandoned} {
		gauge.DeleteLabelValues(name)
	}
}
