package replay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// A suspect that does not kill runs on, and others of its key behind it; entries
// of other keys do not wait for it.
func TestSuspectsRunAloneWhileOthersFlow(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	a, b, other := d.guild(0, 1), d.guild(0, 2), d.guild(0, 3)
	stream := d.stream(a, false)
	var suspects []string
	for _, g := range []string{a, a, b} {
		suspects = append(suspects, d.post(g))
	}
	d.rdb.XGroupCreateMkStream(t.Context(), stream, "workers", "0")
	d.rdb.Do(t.Context(), "XREADGROUP", "GROUP", "workers", "dead", "STREAMS", stream, ">")
	for _, id := range suspects {
		d.rdb.Do(t.Context(), "XCLAIM", stream, "workers", "dead", 0, id, "RETRYCOUNT", 2)
	}
	d.post(a) // 4
	d.post(b) // 5
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var rec recorder
	var running, most atomic.Int32
	w := d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		if e.Sequence <= 3 {
			most.Store(max(most.Load(), running.Add(1)))
			<-hold
			running.Add(-1)
		}
		return rec.listen(ctx, e)
	}), quick)
	waitFor(t, "the first suspect", func() bool { return running.Load() == 1 })
	waitFor(t, "ready with suspects left", func() bool { return w.Ready() == nil })
	for range 10 {
		d.post(other)
	}
	waitFor(t, "the others", func() bool { return rec.len() == 10 && d.pending("workers") == 5 })
	counts := map[string]int{}
	for _, p := range d.rdb.XPendingExt(t.Context(), xpending(stream, "workers")).Val() {
		_, mark := strings.CutSuffix(p.Consumer, "!")
		counts[fmt.Sprint(p.Consumer == "dead", mark, p.RetryCount)]++
	}
	if got, want := fmt.Sprint(counts), "map[false false 1:2 false true 3:1 true false 2:2]"; got != want {
		t.Errorf("pending (dead's, suspect, deliveries) = %s, want %s", got, want)
	}
	release()
	waitFor(t, "all acked", func() bool { return rec.len() == 15 && d.pending("workers") == 0 })
	if n := most.Load(); n != 1 {
		t.Errorf("%d suspects ran at once, want 1", n)
	}
	order := map[string][]int64{}
	for _, e := range rec.all() {
		order[e.GuildID] = append(order[e.GuildID], e.Sequence)
		if e.Sequence <= 3 && e.Attempt != 3 || e.Sequence > 3 && e.Attempt != 1 {
			t.Errorf("sequence %d is attempt %d", e.Sequence, e.Attempt)
		}
	}
	for g, seqs := range order {
		if !slices.IsSorted(seqs) {
			t.Errorf("guild %s in the order %v", g, seqs)
		}
	}
}

// A successor runs only the listeners that have not ended.
func TestProgressOutlivesTheWorker(t *testing.T) {
	t.Parallel()
	for _, crash := range []bool{true, false} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			var mu sync.Mutex
			runs := map[string][]int{}
			fixed := false
			r := func() *listener.Registry {
				r := listener.New()
				for _, name := range []string{"good", "bad", "worse"} {
					r.Add(listener.Handle(name, "#", func(_ context.Context, e *listener.Delivery) error {
						mu.Lock()
						defer mu.Unlock()
						runs[name] = append(runs[name], e.Attempt)
						switch {
						case name == "bad" && !fixed:
							return errors.New("not yet")
						case name == "worse":
							return listener.Discard(errors.New("never"))
						}
						return nil
					}))
				}
				return r
			}
			proxy := redistest.NewProxy(t, d.addr)
			w := d.runAt(proxy.Addr(), r(), replay.Config{Lease: 500 * time.Millisecond, Backoff: time.Hour, BackoffMax: time.Hour})
			id := d.post(d.guild(0, 1))
			waitFor(t, "the record", func() bool { return strings.Count(d.progress("workers")[id], "\n") == 1 })
			lines := strings.Split(d.progress("workers")[id], "\n")
			slices.Sort(lines)
			if got := strings.Join(lines, "|"); got != "good|worse never" {
				t.Errorf("record = %q, want good and worse", got)
			}
			mu.Lock()
			fixed = true
			mu.Unlock()
			if crash {
				proxy.Down()
			} else {
				w.stop()
			}
			d.run(r(), quick)
			letter := d.letters("workers", 1)[0]
			if letter["listeners"] != "worse" || letter["error"] != "worse: never" {
				t.Errorf("listeners %q, error %q", letter["listeners"], letter["error"])
			}
			mu.Lock()
			defer mu.Unlock()
			if got := fmt.Sprint(runs); got != "map[bad:[1 2] good:[1] worse:[1]]" {
				t.Errorf("attempts = %s", got)
			}
			if p := d.progress("workers"); len(p) != 0 {
				t.Errorf("progress left: %v", p)
			}
		})
	}
}

// What was not begun goes back as if it had not been read.
func TestShutdownHandsBackUncounted(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 2)
	begun := make(chan struct{}, 1)
	goOn := make(chan struct{})
	var once sync.Once
	config := quick
	config.Lease = 5 * time.Second
	r := listener.New()
	var first, quickly recorder
	r.Add(listener.Handle("slow", "#", func(ctx context.Context, e *listener.Delivery) error {
		once.Do(func() { begun <- struct{}{}; <-goOn })
		return first.listen(ctx, e)
	}))
	r.Add(listener.Handle("quick", "#", quickly.listen))
	config.Concurrency = 4 // both streams may wait in the slow one
	w := d.run(r, config)
	guild := d.guild(0, 1)
	for range 40 { // more than have places
		d.post(guild)
	}
	d.put(true, []string{guild}, []wire.Entry{d.entry("INTERACTION_CREATE", guild)})
	<-begun
	waitFor(t, "the other listener to be ahead", func() bool { return quickly.len() >= 16 })
	waitFor(t, "all read", func() bool { return d.pending("workers") >= 40 })
	go w.stop()
	waitFor(t, "the worker to leave", func() bool {
		return d.rdb.HLen(t.Context(), wire.WorkersKey(d.prefix, "workers")).Val() == 0
	})
	close(goOn)
	waitFor(t, "the leases to go", func() bool { return len(d.holders("workers")) == 0 })
	w.stop()
	handled := first.len()
	for _, p := range d.rdb.XPendingExt(t.Context(), xpending(d.stream(guild, false), "workers")).Val() {
		if p.Consumer != "-" || p.RetryCount != 0 || p.Idle < time.Hour {
			t.Fatalf("pending = %+v, want it handed back", p)
		}
	}
	for _, c := range d.rdb.XInfoConsumers(t.Context(), d.stream(guild, false), "workers").Val() {
		if c.Name != "-" {
			t.Errorf("consumer %s is left", c.Name)
		}
	}
	began := time.Now()
	var rest, again recorder
	r = listener.New()
	r.Add(listener.Handle("slow", "#", rest.listen), listener.Handle("quick", "#", again.listen))
	d.run(r, quick)
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 && handled+rest.len() >= 41 })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the successor took %v: it waited for something", took)
	}
	if n := handled + rest.len(); n != 41 {
		t.Errorf("the slow listener ran %d times, want 41", n)
	}
	if n := quickly.len() + again.len(); n != 41 {
		t.Errorf("the quick listener ran %d times, want 41", n)
	}
	for _, e := range append(rest.all(), again.all()...) {
		if e.Attempt != 1 {
			t.Errorf("sequence %d is attempt %d, want 1", e.Sequence, e.Attempt)
		}
	}
}

// A retry that was begun counts, also when the lane is handed over.
func TestHandingBackKeepsWhatFailed(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var runs atomic.Int32
	fail := func(context.Context, *listener.Delivery) error {
		runs.Add(1)
		return listener.RetryAfter(time.Hour, errors.New("no"))
	}
	config := quick
	config.BackoffMax = time.Hour
	config.MaxDeliveries = 3
	d.post(d.guild(0, 1))
	for i := range int32(3) {
		w := d.run(registry("l", "#", fail), config)
		waitFor(t, "a run", func() bool { return runs.Load() == i+1 })
		if i < 2 {
			w.stop()
		}
	}
	if letter := d.letters("workers", 1)[0]; letter["deliveries"] != "3" || runs.Load() != 3 {
		t.Errorf("deliveries = %v, %d runs, want 3", letter["deliveries"], runs.Load())
	}
}

func TestConsumersOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	d.rdb.XGroupCreateMkStream(t.Context(), stream, "workers", "0")
	for _, name := range []string{"dead", "gone!"} {
		d.rdb.XGroupCreateConsumer(t.Context(), stream, "workers", name)
	}
	config := quick
	config.Lease = 200 * time.Millisecond
	hold := make(chan struct{})
	defer close(hold)
	w := d.run(registry("l", "#", func(context.Context, *listener.Delivery) error { <-hold; return nil }), config)
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	d.post(guild)
	waitFor(t, "only the worker's own", func() bool {
		c := d.rdb.XInfoConsumers(t.Context(), stream, "workers").Val()
		return len(c) == 1 && c[0].Name != "dead" && c[0].Pending == 1
	})
}

// A suspect that has ended well is not there to be blamed when the next one kills:
// that does not start before Redis has the first one's ack, or has it as any other
// entry that has failed.
func TestASuspectStartsWhenTheOneBeforeIsOutOfTheWay(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails=", fails), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			stream := d.stream(d.guild(0, 1), false)
			ids := []string{d.post(d.guild(0, 1)), d.post(d.guild(0, 2))}
			d.abandon(stream, "dead", 2)
			for _, id := range ids {
				d.rdb.Do(t.Context(), "XCLAIM", stream, "workers", "dead", 0, id, "RETRYCOUNT", 2, "JUSTID")
			}
			blamed := make(chan string, 10)
			config := quick
			config.Backoff, config.BackoffMax = 100*time.Millisecond, 100*time.Millisecond
			m := newMeddler(t, d.addr)
			m.before(fmt.Sprintf("XACK\r\n$%d\r\n%s", len(stream), stream), func() { time.Sleep(200 * time.Millisecond) }) // a slow network
			d.runAt(m.addr(), registry("l", "#", func(_ context.Context, e *listener.Delivery) error {
				for _, p := range d.rdb.XPendingExt(context.Background(), xpending(stream, "workers")).Val() {
					if e.Attempt > 3 { // is no suspect any more
						break
					}
					if strings.HasSuffix(p.Consumer, "!") && !strings.HasSuffix(e.ID, p.ID) {
						blamed <- p.ID
					}
				}
				if fails && e.Sequence == 1 && e.Attempt < 5 {
					return errors.New("no")
				}
				return nil
			}), config)
			waitFor(t, "both to be acked", func() bool { return d.pending("workers") == 0 })
			select {
			case id := <-blamed:
				t.Errorf("entry %s was a suspect's while the other ran", id)
			default:
			}
		})
	}
}
