package replay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// TestMetricsSayWhy gives listeners up for each of the reasons, with events of
// Discord's and of somebody's own.
func TestMetricsSayWhy(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	r := listener.New()
	r.Add(
		listener.Handle("fails", "#", func(context.Context, *listener.Delivery) error { return errors.New("no") }),
		listener.Handle("discards", "#", func(context.Context, *listener.Delivery) error { return listener.Discard(errors.New("no")) }),
		listener.Kind[int, listener.None]("orders.created").Handle("typed", func(context.Context, *listener.Event[int, listener.None]) error { return nil }),
		listener.Handle("slow", "#", func(context.Context, *listener.Delivery) error { time.Sleep(2 * time.Millisecond); return nil }),
	)
	reg := prometheus.NewRegistry()
	d.run(r, replay.Config{MaxDeliveries: 2, Backoff: time.Millisecond, Metrics: reg})
	guild := d.guild(0, 1)
	d.put(false, []string{guild, guild}, []wire.Entry{d.entry("MESSAGE_CREATE", guild), d.entry("orders.created", guild)})
	waitFor(t, "acked", func() bool { return d.settled("workers") })
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "group" {
					key += " " + l.GetValue()
				}
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"sluice_replay_dead_total fails attempts":            2,
		"sluice_replay_dead_total discards discarded":        2,
		"sluice_replay_dead_total typed undecodable":         1,
		"sluice_replay_retries_total fails":                  2,
		"sluice_replay_retries_total discards":               0,
		"sluice_replay_failures_total fails":                 4,
		"sluice_replay_listener_seconds MESSAGE_CREATE slow": 1,
		"sluice_replay_listener_seconds (custom) slow":       1,
		"sluice_replay_lane_wait_seconds stream":             7, // first runs: 4 listeners and 3
		"sluice_replay_lane_wait_seconds express":            0,
		"sluice_replay_delivered_total":                      2,
		"sluice_replay_dead_letters_total":                   2,
		"sluice_replay_lease_lost_total":                     0,
		"sluice_replay_interaction_late_total":               0,
	}
	picked := map[string]float64{}
	for key := range want {
		if n, ok := got[key]; ok {
			picked[key] = n
		}
	}
	if diff := cmp.Diff(want, picked); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
