package replay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/dispatch"
	registered "github.com/sluicehq/sluice/internal/metrics"
	"github.com/sluicehq/sluice/listener"
)

// metrics are a worker's numbers. They count whether or not anyone collects them.
type metrics struct {
	delivered, reclaimed, acked, lateAcks, undecodable, vanished, unheard prometheus.Counter
	dead, deadDropped, untold, suspects, crashed, handedBack              prometheus.Counter
	misdirected, leasesLost, lateInteractions, errors                     prometheus.Counter
	runs, failures, retries, passedOver, abandoned                        *prometheus.CounterVec // by listener
	expired                                                               *prometheus.CounterVec // by listener and event
	givenUp                                                               *prometheus.CounterVec // by listener and reason
	lanes, inHand                                                         prometheus.Gauge
	differing                                                             *prometheus.GaugeVec     // by what differs
	seconds                                                               *prometheus.HistogramVec // by listener and event
	waits                                                                 [classes]prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, group string) *metrics {
	label := prometheus.Labels{"group": group}
	counter := func(name, help string) prometheus.Counter {
		return registered.Register(reg, prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}))
	}
	counters := func(name, help string, by ...string) *prometheus.CounterVec {
		return registered.Register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}, by))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return registered.Register(reg, prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}))
	}
	gauges := func(name, help string, by ...string) *prometheus.GaugeVec {
		return registered.Register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_replay_" + name, Help: help, ConstLabels: label}, by))
	}
	histograms := func(name, help string, by ...string) *prometheus.HistogramVec {
		return registered.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_replay_" + name, Help: help, ConstLabels: label,
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100},
		}, by))
	}
	waits := histograms("lane_wait_seconds", "Time from when an entry was written to a listener's first run for it, by Redis' clock.", "class")
	return &metrics{
		delivered:        counter("delivered_total", "Entries read for the first time."),
		reclaimed:        counter("reclaimed_total", "Entries taken over that were pending for another worker."),
		acked:            counter("acked_total", "Entries acknowledged."),
		lateAcks:         counter("late_acks_total", "Entries that were no longer pending when they were acknowledged."),
		undecodable:      counter("entries_undecodable_total", "Entries that are not of the wire format."),
		vanished:         counter("entries_vanished_total", "Pending entries that were no longer in the stream when they were wanted."),
		unheard:          counter("entries_unheard_total", "Entries acknowledged because no listener is for them."),
		dead:             counter("dead_letters_total", "Dead letters stored."),
		deadDropped:      counter("dead_letters_dropped_total", "Dead letters dropped because there were too many, or they were too old."),
		untold:           counter("dead_letters_untold_total", "Dead letters that Config.OnDead was not called for because it was behind."),
		suspects:         counter("suspects_total", "Entries run alone because a process may have died of them."),
		crashed:          counter("entries_crashed_total", "Entries given up because processes died while they ran."),
		handedBack:       counter("handback_total", "Entries in hand that were given to a lane's next owner, uncounted."),
		misdirected:      counter("entries_misdirected_total", "Redriven entries acknowledged because they are for another group."),
		leasesLost:       counter("lease_lost_total", "Lanes lost because their lease was not renewed in time, or was another worker's."),
		lateInteractions: counter("interaction_late_total", "Listeners that got to an interaction for the first time when it was older than 3 s, run or expired."),
		errors:           counter("errors_total", "Times that something the worker wants of Redis failed. It is tried again."),
		runs:             counters("runs_total", "Runs of a listener.", "listener"),
		failures:         counters("failures_total", "Runs that failed.", "listener"),
		retries:          counters("retries_total", "Failed runs that another one follows.", "listener"),
		givenUp:          counters("dead_total", "Entries a listener was given up for, which then become dead letters. Reasons: attempts, discarded, undecodable, abandoned, crashed.", "listener", "reason"),
		expired:          counters("expired_total", "Entries not run because they were too old.", "listener", "event"),
		passedOver:       counters("passed_over_total", "Entries not run because the listener is switched off.", "listener"),
		abandoned:        counters("abandoned_total", "Runs that did not return after their time was up.", "listener"),
		lanes:            gauge("lanes", "Lanes held."),
		inHand:           gauge("entries_in_hand", "Entries in memory, waiting for their listeners."),
		differing:        gauges("workers_differing", "Live workers of the group with other listeners, or of another build, than this one.", "in"),
		seconds:          histograms("listener_seconds", "Time a run took, of runs that took a millisecond or more.", "listener", "event"),
		waits:            [classes]prometheus.Observer{express: waits.WithLabelValues("express"), plain: waits.WithLabelValues("stream")},
	}
}

// eventLabel returns the label of an event: Discord's types have their own, others
// share one, since anybody may publish events of any name.
func eventLabel(event string) string {
	if t := dispatch.Lookup(event); t != nil {
		return t.Name
	}
	return "(custom)"
}

// counts are a listener's own numbers.
type counts struct {
	runs, failures, retries, passedOver, abandoned prometheus.Counter
	expired                                        *prometheus.CounterVec // by event
	givenUp                                        *prometheus.CounterVec // by reason
	seconds                                        prometheus.ObserverVec // by event
}

func (m *metrics) of(name string) counts {
	mine := prometheus.Labels{"listener": name}
	return counts{
		runs:       m.runs.WithLabelValues(name),
		failures:   m.failures.WithLabelValues(name),
		retries:    m.retries.WithLabelValues(name),
		passedOver: m.passedOver.WithLabelValues(name),
		abandoned:  m.abandoned.WithLabelValues(name),
		expired:    m.expired.MustCurryWith(mine),
		givenUp:    m.givenUp.MustCurryWith(mine),
		seconds:    m.seconds.MustCurryWith(mine),
	}
}

// reasonOf returns why a listener is given up for its last error.
func reasonOf(err error) string {
	if _, undecodable := errors.AsType[*listener.DecodeError](err); undecodable {
		return "undecodable"
	}
	switch {
	case errors.Is(err, errAbandoned):
		return "abandoned"
	case errors.Is(err, errDied):
		return "crashed"
	case listener.Discarded(err):
		return "discarded"
	}
	return "attempts"
}
