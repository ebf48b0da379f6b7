package replay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

func TestServerClock(t *testing.T) {
	t.Parallel()
	var c replay.ServerClock
	if _, ok := c.Age(1000, time.Second); ok {
		t.Error("a clock that has heard nothing knows an age")
	}
	server := time.UnixMilli(1_000_000)
	c.Hear(server, time.Second, 2*time.Second) // slow, but the first
	for _, step := range []struct {
		what string
		hear func()
		want time.Duration // the age of 990000-0 at 12s
	}{
		{"a slow first answer", func() {}, 20 * time.Second},
		{"a prompt one", func() { c.Hear(server.Add(500*time.Millisecond), 2*time.Second, 2100*time.Millisecond) }, 20*time.Second + 400*time.Millisecond},
		{"a slow one that is worse", func() { c.Hear(server, 3*time.Second, 8*time.Second) }, 20*time.Second + 400*time.Millisecond},
		{"the server's clock is put back", func() { c.Hear(server.Add(-time.Minute), 9*time.Second, 9*time.Second) }, -47 * time.Second},
	} {
		step.hear()
		if age, ok := c.Age(990_000, 12*time.Second); age != step.want || !ok {
			t.Errorf("%s: the age is %v, %v, want %v", step.what, age, ok, step.want)
		}
	}
}

func TestExpireIsChecked(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	for name, want := range map[string]string{
		"typing.start":    "want TYPING_START",
		"Typing_Start":    "",
		"orders.*":        "want a dispatch type",
		"":                "want a dispatch type",
		"orders..created": "want a dispatch type",
	} {
		_, err := replay.New(rdb, listener.New(), replay.Config{Expire: map[string]time.Duration{name: time.Second}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Expire of %q: %v, want %q", name, err, want)
		}
	}
	_, err := replay.New(rdb, listener.New(), replay.Config{Expire: map[string]time.Duration{"X": -1}})
	if err == nil || !strings.Contains(err.Error(), `Expire["X"] is -1ns`) {
		t.Errorf("a negative Expire: %v", err)
	}
}

// runSkewed starts a worker whose server's clock seems to be d late.
func (d *deployment) runSkewed(r *listener.Registry, config replay.Config, skew time.Duration) {
	d.t.Helper()
	config.Prefix, config.Logger = d.prefix, slog.New(slog.NewTextHandler(logTo, nil))
	rdb := redis.NewClient(&redis.Options{Addr: d.addr})
	w, err := replay.New(rdb, r, config)
	if err != nil {
		d.t.Fatal(err)
	}
	replay.Skew(w, skew)
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }() // ends with ctx
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("Run = %v", err)
		}
		rdb.Close()
	})
}

// putAged appends an entry that a server whose clock is skew late would have stamped
// age ago.
func (d *deployment) putAged(event, guild string, age, skew time.Duration) {
	d.t.Helper()
	d.putAgedAt(event, guild, age, skew, 0)
}

func (d *deployment) putAgedAt(event, guild string, age, skew time.Duration, seq int) {
	d.t.Helper()
	now, err := d.rdb.Time(d.t.Context()).Result()
	if err != nil {
		d.t.Fatal(err)
	}
	e := d.entry(event, guild)
	e.Received = 1 // the gateway's clock does not matter either
	args := []any{"XADD", d.stream(guild, event == "INTERACTION_CREATE"), fmt.Sprintf("%d-%d", now.Add(skew-age).UnixMilli(), seq)}
	if err := d.rdb.Do(d.t.Context(), e.AppendArgs(args)...).Err(); err != nil {
		d.t.Fatal(err)
	}
}

// TestExpiry runs entries of an age under servers whose clocks are an hour from the
// worker's.
func TestExpiry(t *testing.T) {
	t.Parallel()
	const never = 1000 * time.Hour
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		for _, test := range []struct {
			name   string
			event  string
			age    time.Duration
			expire map[string]time.Duration
			maxAge time.Duration
			runs   bool
		}{
			{"a fresh interaction", "INTERACTION_CREATE", 0, nil, 0, true},
			{"an interaction whose time is up", "INTERACTION_CREATE", 4 * time.Second, nil, 0, false},
			{"one that expires later by configuration", "INTERACTION_CREATE", 4 * time.Second, map[string]time.Duration{"INTERACTION_CREATE": time.Minute}, 0, true},
			{"one that never expires", "INTERACTION_CREATE", never, map[string]time.Duration{"INTERACTION_CREATE": 0}, 0, true},
			{"one for a listener with MaxAge", "INTERACTION_CREATE", 4 * time.Second, nil, time.Minute, true},
			{"somebody typing", "TYPING_START", 4 * time.Second, nil, 0, true},
			{"somebody typing a while ago", "TYPING_START", 11 * time.Second, map[string]time.Duration{"INTERACTION_CREATE": 0}, 0, false},
			{"a message", "MESSAGE_CREATE", never, nil, 0, true},
			{"a message for a listener with MaxAge", "MESSAGE_CREATE", time.Minute, nil, time.Second, false},
			{"a custom event", "orders.created", time.Minute, map[string]time.Duration{"orders.created": time.Second}, 0, false},
		} {
			t.Run(fmt.Sprintf("%s, a clock %v ahead", test.name, skew), func(t *testing.T) {
				t.Parallel()
				d := deploy(t, "", 1, 1)
				var rec recorder
				r := listener.New()
				r.Add(listener.Handle("l", "#", rec.listen).With(listener.Options{MaxAge: test.maxAge}))
				d.putAged(test.event, d.guild(0, 1), test.age, skew)
				reg := prometheus.NewRegistry()
				d.runSkewed(r, replay.Config{Expire: test.expire, Metrics: reg}, skew)
				waitFor(t, "acked", func() bool { return d.settled("workers") })
				if got := rec.len() == 1; got != test.runs {
					t.Errorf("it ran %d times", rec.len())
				}
				label := test.event
				if label == "orders.created" {
					label = "(custom)"
				}
				if n := counted(t, reg, "sluice_replay_expired_total", label); (n == 0) != test.runs {
					t.Errorf("%v are counted as expired", n)
				}
			})
		}
	}
}

// settled reports whether a group has read and acknowledged all there is.
func (d *deployment) settled(group string) bool {
	shard := wire.NewShard(d.prefix, 0, d.shards)
	for _, stream := range []string{shard.Stream(0), shard.Express(0)} {
		groups := d.rdb.XInfoGroups(d.t.Context(), stream).Val()
		last := d.rdb.XRevRangeN(d.t.Context(), stream, "+", "-", 1).Val()
		if len(last) > 0 && (len(groups) == 0 || groups[0].Pending > 0 || groups[0].LastDeliveredID != last[0].ID) {
			return false
		}
	}
	return true
}

// counted returns the sum of a metric over the series with a label of some value.
func counted(t *testing.T, reg *prometheus.Registry, name, value string) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == value {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestExpiryOfRetries has listeners that fail until their entry is too old: for an
// interaction only the first run counts.
func TestExpiryOfRetries(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]int{"INTERACTION_CREATE": 3, "TYPING_START": 1} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			const soon = 2 * time.Second
			var rec recorder
			r := registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
				_ = rec.listen(ctx, e)
				if rec.len() < 3 {
					return listener.RetryAfter(soon+100*time.Millisecond, errors.New("busy"))
				}
				return nil
			})
			reg := prometheus.NewRegistry()
			d.run(r, replay.Config{Expire: map[string]time.Duration{event: soon}, Metrics: reg})
			d.putAged(event, d.guild(0, 1), 0, 0)
			waitFor(t, "acked", func() bool { return rec.len() > 0 && d.settled("workers") })
			if rec.len() != want {
				t.Errorf("%s ran %d times, want %d", event, rec.len(), want)
			}
			if n := counted(t, reg, "sluice_replay_retries_total", "l"); n != float64(min(want, 2)) {
				t.Errorf("%v retries are counted after %d runs", n, want)
			}
		})
	}
}

// TestExpiryOfOrphans has interactions pending for a worker that is gone: what it
// got too late has not been started by it, what it got in time may have been.
func TestExpiryOfOrphans(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, true)
	if err := d.rdb.XGroupCreateMkStream(t.Context(), stream, "workers", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		d.putAgedAt("INTERACTION_CREATE", guild, 8*time.Second, 0, i)
	}
	read, err := d.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "workers", Consumer: "gone/1", Streams: []string{stream, ">"}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	// The second was read 7 s ago, when it was a second old.
	inTime := read[0].Messages[1].ID
	if err := d.rdb.Do(t.Context(), "XCLAIM", stream, "workers", "gone/1", 0, inTime, "IDLE", 7000, "RETRYCOUNT", 1, "JUSTID").Err(); err != nil {
		t.Fatal(err)
	}
	var rec recorder
	reg := prometheus.NewRegistry()
	d.run(registry("l", "#", rec.listen), replay.Config{Metrics: reg})
	waitFor(t, "acked", func() bool { return d.settled("workers") })
	if got := rec.all(); len(got) != 1 || !strings.HasSuffix(got[0].ID, inTime) {
		t.Errorf("%d ran, %v; want %s", len(got), got, inTime)
	}
	if late, expired := counted(t, reg, "sluice_replay_interaction_late_total", "workers"), counted(t, reg, "sluice_replay_expired_total", "l"); late != 1 || expired != 1 {
		t.Errorf("%v are counted as late and %v as expired, want 1 and 1", late, expired)
	}
}

// TestExpiryOfBatches has a batch listener with old and fresh entries.
func TestExpiryOfBatches(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	for i := range 4 {
		d.putAgedAt("TYPING_START", d.guild(0, 1), 20*time.Second, 0, i)
	}
	d.putAged("TYPING_START", d.guild(0, 1), 0, 0)
	var rec recorder
	r := listener.New()
	r.Add(listener.HandleBatch("l", "#", listener.BatchOptions{MaxSize: 5}, func(ctx context.Context, ds []*listener.Delivery) error {
		for _, e := range ds {
			_ = rec.listen(ctx, e)
		}
		return nil
	}))
	d.run(r, replay.Config{})
	waitFor(t, "acked", func() bool { return d.settled("workers") })
	if rec.len() != 1 {
		t.Errorf("%d entries ran, want the fresh one", rec.len())
	}
}
