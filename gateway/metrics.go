package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	registered "github.com/sluicehq/sluice/internal/metrics"
)

// metrics are one shard's own, out of vectors that all shards share.
type metrics struct {
	dispatches, bytes, malformed, tooLarge prometheus.Counter
	connected, ping                        prometheus.Gauge
	connects, disconnects, resumes         *prometheus.CounterVec // by how, by cause, by result
}

// Results of a RESUME.
const (
	resumed       = "resumed"
	resumeRefused = "refused" // Discord has ended the session
	resumeFailed  = "failed"  // the connection ended before Discord had answered: it is tried again
)

func newMetrics(r prometheus.Registerer, shard int) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered.Register(r, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_gateway_" + name, Help: help}, append([]string{"shard"}, labels...)))
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return registered.Register(r, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_gateway_" + name, Help: help}, []string{"shard"}))
	}
	label := strconv.Itoa(shard)
	mine := prometheus.Labels{"shard": label}
	m := &metrics{
		dispatches:  counter("dispatches_total", "Dispatches handed over.").WithLabelValues(label),
		bytes:       counter("received_bytes_total", "Bytes of messages received, after inflation.").WithLabelValues(label),
		malformed:   counter("malformed_total", "Messages stepped over because they could not be read.").WithLabelValues(label),
		tooLarge:    counter("too_large_total", "Messages stepped over because they were larger than the frame limit.").WithLabelValues(label),
		connected:   gauge("connected", "1 from READY or RESUMED to the connection's end.").WithLabelValues(label),
		ping:        gauge("ping_seconds", "Time from the last heartbeat to its ack.").WithLabelValues(label),
		connects:    counter("connects_total", "Sessions begun (identify) and asked to go on (resume).", "how").MustCurryWith(mine),
		resumes:     counter("resume_total", "What became of what was asked to go on: resumed, refused (the session is lost), failed (and is tried again).", "result").MustCurryWith(mine),
		disconnects: counter("disconnects_total", "Connections that ended, by cause.", "cause").MustCurryWith(mine),
	}
	for _, result := range []string{resumed, resumeRefused, resumeFailed} {
		m.resumes.WithLabelValues(result)
	}
	return m
}
