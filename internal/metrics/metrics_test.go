package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/metrics"
)

func TestRegister(t *testing.T) {
	t.Parallel()
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "n"}) }
	reg := prometheus.NewRegistry()
	first := metrics.Register(reg, counter())
	if again := metrics.Register(reg, counter()); again != first {
		t.Error("a second counter of the name was made")
	}
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "n"})
	if got := metrics.Register(reg, gauge); got != gauge {
		t.Error("a gauge became something else")
	}
	if got := metrics.Register(nil, gauge); got != gauge {
		t.Error("without a registerer a gauge became something else")
	}
}
