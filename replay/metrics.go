package replay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a worker's numbers. They count whether or not anyone collects them.
type metrics struct {
	read, claimed, acked, lateAcks, undecodable, vanished, unheard prometheus.Counter
	dead, deadDropped, untold, suspects, crashed, handedBack       prometheus.Counter
	misdirected                                                    prometheus.Counter
	runs, failures, gaveUp, expired, passedOver, abandoned         *prometheus.CounterVec // by listener
	lanes, inHand                                                  prometheus.Gauge
	seconds                                                        *prometheus.HistogramVec // by listener
}

func newMetrics(reg prometheus.Registerer, group string) *metrics {
	label := prometheus.Labels{"group": group}
	counter := func(name, help string) prometheus.Counter {
		return register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}))
	}
	byListener := func(name, help string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}, []string{"listener"}))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}))
	}
	return &metrics{
		read:        counter("entries_read_total", "Entries read for the first time."),
		claimed:     counter("entries_claimed_total", "Entries taken over that were pending for another worker."),
		acked:       counter("entries_acked_total", "Entries acknowledged."),
		lateAcks:    counter("late_acks_total", "Entries that were no longer pending when they were acknowledged."),
		undecodable: counter("entries_undecodable_total", "Entries that are not of the wire format."),
		vanished:    counter("entries_vanished_total", "Pending entries that were no longer in the stream when they were wanted."),
		unheard:     counter("entries_unheard_total", "Entries acknowledged because no listener is for them."),
		dead:        counter("dead_letters_total", "Dead letters stored."),
		deadDropped: counter("dead_letters_dropped_total", "Dead letters dropped because there were too many, or they were too old."),
		untold:      counter("dead_letters_untold_total", "Dead letters that Config.OnDead was not called for because it was behind."),
		suspects:    counter("suspects_total", "Entries run alone because a process may have died of them."),
		crashed:     counter("entries_crashed_total", "Entries given up because processes died while they ran."),
		handedBack:  counter("entries_handed_back_total", "Entries in hand that were given to a lane's next owner, uncounted."),
		misdirected: counter("entries_misdirected_total", "Redriven entries acknowledged because they are for another group."),
		runs:        byListener("runs_total", "Runs of a listener."),
		failures:    byListener("failures_total", "Runs that failed."),
		gaveUp:      byListener("gave_up_total", "Entries a listener was given up for."),
		expired:     byListener("expired_total", "Entries not run because they were older than the listener's MaxAge."),
		passedOver:  byListener("passed_over_total", "Entries not run because the listener is switched off."),
		abandoned:   byListener("abandoned_total", "Runs that did not return after their time was up."),
		lanes:       gauge("lanes", "Lanes held."),
		inHand:      gauge("entries_in_hand", "Entries in memory, waiting for their listeners."),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_replay_run_seconds", Help: "Time a run took, of runs that took a millisecond or more.", ConstLabels: label,
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100},
		}, []string{"listener"})),
	}
}

// counts are a listener's own numbers.
type counts struct {
	runs, failures, gaveUp, expired, passedOver, abandoned prometheus.Counter
	seconds                                                prometheus.Observer
}

func (m *metrics) of(name string) counts {
	return counts{
		runs:       m.runs.WithLabelValues(name),
		failures:   m.failures.WithLabelValues(name),
		gaveUp:     m.gaveUp.WithLabelValues(name),
		expired:    m.expired.WithLabelValues(name),
		passedOver: m.passedOver.WithLabelValues(name),
		abandoned:  m.abandoned.WithLabelValues(name),
		seconds:    m.seconds.WithLabelValues(name),
	}
}

// register registers c, or returns the one that is already there under its name:
// a worker that is made again counts on.
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
