package gateway

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are one shard's own, out of vectors that all shards share.
type metrics struct {
	dispatches, bytes, malformed, tooLarge prometheus.Counter
	connected, latency                     prometheus.Gauge
	connects, disconnects                  *prometheus.CounterVec // by how, by cause
}

func newMetrics(r prometheus.Registerer, shard int) (*metrics, error) {
	var errs []error
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "sluice", Subsystem: "gateway", Name: name, Help: help,
		}, append([]string{"shard"}, labels...))
		shared, err := register(r, v)
		errs = append(errs, err)
		return shared
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "sluice", Subsystem: "gateway", Name: name, Help: help,
		}, []string{"shard"})
		shared, err := register(r, v)
		errs = append(errs, err)
		return shared
	}
	label := strconv.Itoa(shard)
	mine := prometheus.Labels{"shard": label}
	m := &metrics{
		dispatches:  counter("dispatches_total", "Dispatches handed over.").WithLabelValues(label),
		bytes:       counter("received_bytes_total", "Bytes of messages received, after inflation.").WithLabelValues(label),
		malformed:   counter("malformed_total", "Messages stepped over because they could not be read.").WithLabelValues(label),
		tooLarge:    counter("too_large_total", "Messages stepped over because they were larger than the frame limit.").WithLabelValues(label),
		connected:   gauge("connected", "1 from READY or RESUMED to the connection's end.").WithLabelValues(label),
		latency:     gauge("heartbeat_latency_seconds", "Time from the last heartbeat to its ack.").WithLabelValues(label),
		connects:    counter("connects_total", "Sessions begun (identify) and asked to go on (resume).", "how").MustCurryWith(mine),
		disconnects: counter("disconnects_total", "Connections that ended, by cause.", "cause").MustCurryWith(mine),
	}
	return m, errors.Join(errs...)
}

// register adds v to r (nil: to nothing), or returns what another shard has
// registered under the name.
func register[V prometheus.Collector](r prometheus.Registerer, v V) (V, error) {
	if r == nil {
		return v, nil
	}
	err := r.Register(v)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if shared, ok := there.ExistingCollector.(V); ok {
			return shared, nil
		}
	}
	if err != nil {
		return v, fmt.Errorf("metrics: %w", err)
	}
	return v, nil
}
