package replay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// TestScenario039PrefetchedEntriesAge lets entries wait in hand for many times as
// long as a lease, with another worker that has nothing to do.
func TestScenario039PrefetchedEntriesAge(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	const lease = 250 * time.Millisecond
	var mu sync.Mutex
	starts := map[string]int{}
	config := replay.Config{Lease: lease, Concurrency: 2}
	listen := func(ctx context.Context, e *listener.Delivery) error {
		mu.Lock()
		starts[e.ID]++
		mu.Unlock()
		time.Sleep(lease) // the listener's work
		return ctx.Err()
	}
	a := d.run(registry("l", "#", listen), config)
	b := d.run(registry("l", "#", listen), config)
	waitFor(t, "both ready", func() bool { return a.Ready() == nil && b.Ready() == nil })
	// All in the lanes of one of them, of guilds enough to keep it busy.
	var guilds []string
	for g := 0; len(guilds) < 6; g++ {
		if guild := d.guild(0, g); a.Owns(guild) {
			guilds = append(guilds, guild)
		}
	}
	for i := range 24 {
		d.post(guilds[i%6])
	}
	waitFor(t, "all acked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(starts) == 24 && d.pending("workers") == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range starts {
		if n != 1 {
			t.Errorf("entry %s was started %d times", id, n)
		}
	}
}

// TestScenario043AckDespiteFailedListener has the second of two listeners fail.
func TestScenario043AckDespiteFailedListener(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var good recorder
	var fixed atomic.Bool
	var attempts atomic.Int32
	r := listener.New()
	r.Add(listener.Handle("good", "#", good.listen), listener.Handle("bad", "#", func(_ context.Context, e *listener.Delivery) error {
		attempts.Store(int32(e.Attempt))
		if !fixed.Load() {
			return errors.New("not yet")
		}
		return nil
	}))
	config := quick
	config.MaxDeliveries = 100000
	d.run(r, config)
	id := d.post(d.guild(0, 1))
	waitFor(t, "some attempts", func() bool { return attempts.Load() >= 5 })
	if n := d.pending("workers"); n != 1 {
		t.Errorf("%d pending while a listener fails, want 1", n)
	}
	if got := d.progress("workers")[id]; got != "good" {
		t.Errorf("progress = %q, want good", got)
	}
	fixed.Store(true)
	waitFor(t, "the ack", func() bool { return d.pending("workers") == 0 })
	if n := good.len(); n != 1 {
		t.Errorf("the good listener ran %d times, want 1", n)
	}
	waitFor(t, "the progress to go", func() bool { return len(d.progress("workers")) == 0 })
}

// TestScenario045LateAckReturnsZero has entries acknowledged, or gone with all there
// is, before the worker acknowledges them.
func TestScenario045LateAckReturnsZero(t *testing.T) {
	t.Parallel()
	for name, meddle := range map[string]func(d *deployment, stream, id string) error{
		"a sibling was first": func(d *deployment, stream, id string) error {
			return d.rdb.XAck(d.t.Context(), stream, "workers", id).Err()
		},
		"FLUSHALL": func(d *deployment, _, _ string) error {
			defer d.record()
			return d.rdb.FlushAll(d.t.Context()).Err()
		},
		"the group is new": func(d *deployment, stream, _ string) error {
			d.rdb.XGroupDestroy(d.t.Context(), stream, "workers")
			return d.rdb.XGroupCreate(d.t.Context(), stream, "workers", "$").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := deploy(t, server.Addr(), 1, 1)
			d.t = t
			begun, goOn := make(chan struct{}), make(chan struct{})
			var rec recorder
			reg := prometheus.NewRegistry()
			w := d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
				if e.Sequence == 1 {
					close(begun)
					<-goOn
				}
				return rec.listen(ctx, e)
			}), replay.Config{Lease: 600 * time.Millisecond, Metrics: reg})
			guild := d.guild(0, 1)
			id := d.post(guild)
			<-begun
			if err := meddle(d, d.stream(guild, false), id); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			waitFor(t, "the late ack to be counted", func() bool {
				return name == "FLUSHALL" || total(t, reg, "sluice_replay_late_acks_total") == 1
			})
			d.post(guild)
			waitFor(t, "the loop to go on", func() bool { return rec.len() >= 2 && d.pending("workers") == 0 })
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			if n := rec.len(); n != 2 {
				t.Errorf("%d deliveries, want 2", n)
			}
		})
	}
}

// TestScenario061AckWithCancelledContext stops a worker shortly before its listener
// returns.
func TestScenario061AckWithCancelledContext(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	const lease = 500 * time.Millisecond
	w := d.start(recipe{Name: "stopped", Lease: lease, Drain: 10 * time.Second})
	d.holds("map[stopped:1]")
	guild := d.guild(0, 1)
	d.tell(guild, "500ms")
	d.tell(guild, "") // waits behind the first and is not begun any more
	waitFor(t, "the start", func() bool { return len(d.happenings()) == 1 && d.pending("workers") == 2 })
	if code := w.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if h := d.happenings(); len(h) != 2 || h[1].What != "end" || h[1].Seq != 1 || h[1].Over {
		t.Errorf("happenings %+v, want the listener to end in its own time", h)
	}
	if n := d.pending("workers"); n != 1 {
		t.Errorf("%d pending, want the one that was not begun", n)
	}
	var rec recorder
	d.run(registry("l", "#", rec.listen), replay.Config{Lease: lease})
	waitFor(t, "the other", func() bool { return rec.len() == 1 && d.pending("workers") == 0 })
	if e := rec.all()[0]; e.Sequence != 2 || e.Attempt != 1 {
		t.Errorf("sequence %d, attempt %d was delivered, want the first attempt of 2", e.Sequence, e.Attempt)
	}
}

func TestDrainTimeoutEndsTheContexts(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	begun := make(chan struct{})
	w := d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}), replay.Config{DrainTimeout: 50 * time.Millisecond})
	d.post(d.guild(0, 1))
	<-begun
	w.stop()
	if p := d.pending("workers"); p != 1 {
		t.Errorf("%d entries pending, want the one that was cut short", p)
	}
}

// TestScenario063TermDuringBlock stops a process that is parked in a read, and
// appends an entry at once.
func TestScenario063TermDuringBlock(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	const lease = time.Minute // reads block for up to 40s
	parked := d.start(recipe{Name: "parked", Lease: lease, Drain: 10 * time.Second})
	d.holds("map[parked:4]")
	guild := d.guild(0, 1)
	d.tell(guild, "")
	waitFor(t, "it to work", func() bool { return len(d.happenings()) == 2 && d.pending("workers") == 0 })
	began := time.Now()
	parked.signal(syscall.SIGTERM)
	d.tell(guild, "")
	if code := parked.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if held := d.holders("workers"); len(held) != 0 {
		t.Errorf("leases left: %v", held)
	}
	var rec recorder
	began = time.Now()
	d.run(registry("l", "#", rec.listen), replay.Config{Lease: lease})
	waitFor(t, "the entry", func() bool { return rec.len()+len(d.happenings())/2 == 2 && d.pending("workers") == 0 })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the next worker took %v", took)
	}
	for _, e := range rec.all() {
		if e.Attempt != 1 {
			t.Errorf("attempt %d, want 1", e.Attempt)
		}
	}
}

// A worker leaves no goroutine behind, whatever has happened to it.
func TestAWorkerLeavesNoGoroutine(t *testing.T) {
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 2, 4)
	before := goleak.IgnoreCurrent()
	rdb := redis.NewClient(&redis.Options{Addr: d.addr})
	r := listener.New()
	var n atomic.Int32
	r.Add(listener.Handle("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		<-ctx.Done()
		n.Add(1)
		return ctx.Err()
	}), listener.HandleBatch("b", "#", listener.BatchOptions{MaxSize: 10, MaxWait: time.Millisecond}, func(context.Context, []*listener.Delivery) error {
		return errors.New("no")
	}))
	w, err := replay.New(rdb, r, replay.Config{
		Prefix: d.prefix, ListenerTimeout: 10 * time.Millisecond, Backoff: time.Millisecond, BackoffMax: time.Millisecond,
		Lease: 500 * time.Millisecond, OnDead: func(replay.DeadLetter) {}, Logger: (&journal{}).logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for i := range 50 {
		d.post(d.guild(i%2, i))
	}
	waitFor(t, "some runs", func() bool { return n.Load() > 20 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v", err)
	}
	rdb.Close()
	d.rdb.Close()
	goleak.VerifyNone(t, before)
}

// TestScenario065PanicInListener has a listener end in every way but by returning.
func TestScenario065PanicInListener(t *testing.T) {
	t.Parallel()
	ways := []struct {
		name string
		end  func()
		says string // of the dead letter's error
	}{
		{"nil map", func() { missing()["a"] = 1 }, "assignment to entry in nil map"},
		{"nil pointer", func() { var e *listener.Delivery; _ = e.ID }, "nil pointer dereference"},
		{"Goexit", func() { runtime.Goexit() }, "Goexit"},
		{"nil", func() { panic(nil) }, "panic called with nil argument"},
		{"an error", func() { panic(fmt.Errorf("wrapped: %w", context.Canceled)) }, "wrapped: context canceled"},
		{"a value", func() { panic(struct{ a int }{7}) }, "{7}"},
		{"index", func() { _ = []int{}[len(ways0)] }, "index out of range"},
	}
	d := deploy(t, "", 1, 1)
	var rec recorder
	var mu sync.Mutex
	runs := map[int64]int{}
	var log journal
	config := quick
	config.Concurrency, config.MaxDeliveries, config.Logger = 2, 3, log.logger()
	d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		if int(e.Sequence) > len(ways) {
			return rec.listen(ctx, e)
		}
		mu.Lock()
		runs[e.Sequence]++
		mu.Unlock()
		ways[e.Sequence-1].end()
		return nil
	}), config)
	for i := range ways {
		d.post(d.guild(0, i))
	}
	for i := range 20 { // more than there are runners
		d.post(d.guild(0, 100+i))
	}
	byEntry := map[string]string{}
	for _, letter := range d.letters("workers", len(ways)) {
		byEntry[letter["sequence"].(string)] = letter["error"].(string)
	}
	for i, way := range ways {
		if got := byEntry[fmt.Sprint(i+1)]; !strings.Contains(got, way.says) {
			t.Errorf("%s: error = %q, want %q in it", way.name, got, way.says)
		}
		mu.Lock()
		if n := runs[int64(i+1)]; n != 3 {
			t.Errorf("%s: %d runs, want 3", way.name, n)
		}
		mu.Unlock()
	}
	if rec.len() != 20 {
		t.Errorf("%d of the others delivered, want 20", rec.len())
	}
	if n := len(log.with("given up", "scenario_run_test.go")); n < len(ways)-1 {
		t.Errorf("%d lines with a stack, want one for each panic", n)
	}
	for name, add := range map[string]func(r *listener.Registry){
		"nil func":      func(r *listener.Registry) { r.Add(listener.Handle("n", "#", nil)) },
		"nil typed":     func(r *listener.Registry) { r.Add(listener.Ready.Handle("n", nil)) },
		"zero Listener": func(r *listener.Registry) { r.Add(listener.Listener{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("adding a %s is taken", name)
				}
			}()
			add(listener.New())
		}()
	}
}

var ways0 = ""

// TestShutdownLetsListenersEndAndAcks: no listener is begun once the worker is to
// end, those that run are let be, and what they have done is acknowledged.
func TestShutdownLetsListenersEndAndAcks(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	begun := make(chan struct{}, 10)
	goOn := make(chan struct{})
	var cancelled atomic.Bool
	w := d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		begun <- struct{}{}
		<-goOn
		cancelled.Store(ctx.Err() != nil)
		return nil
	}), replay.Config{})
	d.post(d.guild(0, 1))
	d.post(d.guild(0, 1)) // waits behind the first and is not begun any more
	<-begun
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	waitFor(t, "the lane to be closing", func() bool {
		return d.rdb.HLen(t.Context(), wire.WorkersKey(d.prefix, "workers")).Val() == 0
	})
	select {
	case <-stopped:
		t.Fatal("Run returned while a listener runs")
	default:
	}
	close(goOn)
	<-stopped
	if cancelled.Load() {
		t.Error("the listener's context ended within the drain timeout")
	}
	if n := len(begun); n != 0 {
		t.Errorf("%d listeners begun after the end", n)
	}
	if p := d.pending("workers"); p != 1 {
		t.Errorf("%d entries pending, want the one that was not begun", p)
	}
}

func missing() map[string]int { return nil }
