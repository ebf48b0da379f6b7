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

// latencies are times from an entry's being read by the gateway to its listener's
// start.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *latencies) note(e *listener.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, time.Since(e.Received))
}

// take returns how many there were since it was last called, their median and
// their 99th percentile.
func (l *latencies) take() (n int, p50, p99 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.all)
	if n = len(l.all); n > 0 {
		p50, p99 = l.all[n/2], l.all[n*99/100]
	}
	l.all = l.all[:0]
	return n, p50, p99
}

func (l *latencies) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// steady appends an entry of one of the guilds every interval for a time and
// returns how many there were.
func (d *deployment) steady(guilds []string, interval, during time.Duration) (n int) {
	d.t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); n++ {
		<-tick.C
		d.post(guilds[n%len(guilds)])
	}
	return n
}

// unlike reports whether a latency is far worse than one of the same run without
// the trouble. The bound is for machines that do other things, too.
func unlike(p99, before time.Duration) bool { return p99 > 10*before && p99 > 500*time.Millisecond }

// TestAStuckGuildChangesNothingForOthers sticks one guild's listener for a while
// (with -full for a minute).
func TestAStuckGuildChangesNothingForOthers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 16)
	during := 2 * time.Second
	if *full {
		during = time.Minute
	}
	var others []string
	for g := range 40 {
		others = append(others, d.guild(0, g))
	}
	stuck := d.guild(0, 99)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var times latencies
	var rec recorder
	r := listener.New()
	r.Add(listener.Handle("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		if e.GuildID == stuck {
			<-hold
			return rec.listen(ctx, e)
		}
		times.note(e)
		return nil
	}))
	w := d.run(r, replay.Config{ListenerTimeout: 5 * time.Minute})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	posted := d.steady(others, 2*time.Millisecond, during)
	waitFor(t, "all of them", func() bool { return times.len() == posted })
	_, p50, p99 := times.take()

	var guilds []string
	var entries []wire.Entry
	for range 500 {
		guilds, entries = append(guilds, stuck), append(entries, d.entry("MESSAGE_CREATE", stuck))
	}
	first := entries[0].Sequence
	d.put(false, guilds, entries)
	posted = d.steady(others, 2*time.Millisecond, during)
	waitFor(t, "all of the others", func() bool { return times.len() == posted })
	_, stuck50, stuck99 := times.take()
	t.Logf("others: median %v, 99%% %v; with a guild stuck: median %v, 99%% %v", p50, p99, stuck50, stuck99)
	if unlike(stuck99, p99) || unlike(stuck50, p50) {
		t.Errorf("others wait for a stuck guild")
	}
	if err := w.Ready(); err != nil {
		t.Errorf("Ready = %v", err)
	}
	release()
	waitFor(t, "the guild's 500", func() bool { return rec.len() == 500 && d.pending("workers") == 0 })
	for i, e := range rec.all() {
		if e.Sequence != first+int64(i) {
			t.Fatalf("delivery %d of the stuck guild has sequence %d, want %d", i, e.Sequence, first+int64(i))
		}
	}
}

// TestGroupsDoNotShareTheirFates runs a group that fails at everything and a slow
// one beside a healthy one, after all three were healthy.
func TestGroupsDoNotShareTheirFates(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 8)
	during := 2 * time.Second
	if *full {
		during = time.Minute
	}
	var guilds []string
	for g := range 40 {
		guilds = append(guilds, d.guild(0, g))
	}
	var ill atomic.Bool
	var healthy latencies
	var failing, slow atomic.Int32
	groups := map[string]listener.Func{
		"healthy": func(_ context.Context, e *listener.Delivery) error { healthy.note(e); return nil },
		"failing": func(_ context.Context, e *listener.Delivery) error {
			failing.Add(1)
			if ill.Load() {
				return errors.New("no")
			}
			return nil
		},
		"slow": func(ctx context.Context, e *listener.Delivery) error {
			slow.Add(1)
			if ill.Load() {
				select {
				case <-time.After(time.Second): // the listener's work
				case <-ctx.Done():
				}
			}
			return nil
		},
	}
	var workers []*running
	for name, listen := range groups {
		workers = append(workers, d.run(registry("l", "#", listen), replay.Config{
			Group: name, Backoff: 20 * time.Millisecond, BackoffMax: time.Second, MaxInHand: 300,
		}))
	}
	waitFor(t, "all ready", func() bool {
		return !slices.ContainsFunc(workers, func(w *running) bool { return w.Ready() != nil })
	})
	posted := d.steady(guilds, 2*time.Millisecond, during)
	waitFor(t, "all of them in all groups", func() bool {
		return healthy.len() == posted && int(failing.Load()) == posted && int(slow.Load()) == posted
	})
	_, p50, p99 := healthy.take()
	ill.Store(true)
	posted = d.steady(guilds, 2*time.Millisecond, during)
	waitFor(t, "all of them in the healthy group", func() bool { return healthy.len() == posted })
	_, ill50, ill99 := healthy.take()
	t.Logf("healthy group: median %v, 99%% %v; beside ill ones: median %v, 99%% %v (%d entries; %d runs failed, %d slow ones)",
		p50, p99, ill50, ill99, posted, int(failing.Load())-posted, int(slow.Load())-posted)
	if unlike(ill99, p99) || unlike(ill50, p50) {
		t.Error("the healthy group waits for the others")
	}
	if n := d.pending("healthy"); n > 300 {
		t.Errorf("%d entries pending in the healthy group", n)
	}
	if int(failing.Load())-posted <= posted {
		t.Errorf("%d runs failed of %d entries: there was little trouble", int(failing.Load())-posted, posted)
	}
	ill.Store(false)
	waitFor(t, "the others to recover", func() bool { return d.pending("slow")+d.pending("failing") == 0 })
}

// TestLargeEntriesAreBoundedInBytes reads entries of 200 KB on all lanes into a
// worker whose listeners do not return.
func TestLargeEntriesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 2, 8)
	const count, size = 450, 200 << 10
	filler := strings.Repeat("x", size)
	for i := range count {
		guild := d.guild(i%2, i)
		e := d.entry("MESSAGE_CREATE", guild)
		e.Payload = fmt.Appendf(nil, `{"guild_id":"%s","content":"%s"}`, guild, filler)
		d.put(false, []string{guild}, []wire.Entry{e})
	}
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var n atomic.Int32
	w := d.run(registry("l", "#", func(context.Context, *listener.Delivery) error {
		<-hold
		n.Add(1)
		return nil
	}), replay.Config{})
	waitFor(t, "it to read no more", func() bool {
		err := w.Ready()
		return err != nil && strings.Contains(err.Error(), "MiB) are in hand")
	})
	held := d.pending("workers") * size
	t.Logf("%d MiB of %d MiB are read", held>>20, count*size>>20)
	if held < replay.MaxHeld || held > replay.MaxHeld+16<<20 {
		t.Errorf("%d MiB are read, want %d and a read more", held>>20, replay.MaxHeld>>20)
	}
	release()
	waitFor(t, "all handled", func() bool { return n.Load() == count && d.pending("workers") == 0 })
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
}

// TestListenersThatAreRenamedOrRemoved hands an entry that is half done to a worker
// of another deploy.
func TestListenersThatAreRenamedOrRemoved(t *testing.T) {
	t.Parallel()
	const before = "good worse bad" // worse was given up, bad has failed once
	for name, test := range map[string]struct {
		has     string // listeners of the next deploy
		pattern string
		runs    string // by name and attempt
		dead    string // listeners of the dead letter
	}{
		"nothing changed":         {"good worse bad", "#", "bad#2", "worse"},
		"one that ended renamed":  {"fine worse bad", "#", "bad#2 fine#2", "worse"},
		"one that failed renamed": {"good worse better", "#", "better#2", "worse"},
		"one that failed removed": {"good worse", "#", "", "worse"},
		"given up one removed":    {"good bad", "#", "bad#2", "worse"},
		"all renamed":             {"a b", "#", "a#2 b#2", "worse"},
		"none for the type left":  {"good worse bad", "READY", "", "worse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			old := listener.New()
			for _, name := range strings.Fields(before) {
				old.Add(listener.Handle(name, "#", func(_ context.Context, e *listener.Delivery) error {
					switch name {
					case "worse":
						return listener.Discard(errors.New("never"))
					case "bad":
						return listener.RetryAfter(time.Hour, errors.New("not yet"))
					}
					return nil
				}))
			}
			w := d.run(old, replay.Config{Lease: time.Second, BackoffMax: time.Hour})
			id := d.post(d.guild(0, 1))
			waitFor(t, "the record", func() bool { return strings.Count(d.progress("workers")[id], "\n") == 1 })
			w.stop()
			var mu sync.Mutex
			var runs []string
			next := listener.New()
			for _, name := range strings.Fields(test.has) {
				next.Add(listener.Handle(name, test.pattern, func(_ context.Context, e *listener.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, fmt.Sprintf("%s#%d", name, e.Attempt))
					return nil
				}))
			}
			d.run(next, quick)
			if letter := d.letters("workers", 1)[0]; letter["listeners"] != test.dead || letter["error"] != "worse: never" || letter["event"] != "MESSAGE_CREATE" {
				t.Errorf("letter of %v: %v, want it of %s", letter["listeners"], letter["error"], test.dead)
			}
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(runs)
			if got := strings.Join(runs, " "); got != test.runs {
				t.Errorf("runs = %q, want %q", got, test.runs)
			}
			if p := d.progress("workers"); len(p) != 0 {
				t.Errorf("progress left: %v", p)
			}
		})
	}
}

// What has a record of its progress and nobody to run for is acknowledged, and the
// record goes with it; so does that of an entry that is trimmed.
func TestRecordsGoWithTheirEntries(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	unheard, trimmed := d.post(guild), d.post(guild)
	d.abandon(stream, "dead", 2)
	progress := wire.NewShard(d.prefix, 0, 1).Progress("workers", 0, false)
	d.rdb.HSet(t.Context(), progress, unheard, "gone", trimmed, "gone")
	d.rdb.XDel(t.Context(), stream, trimmed)
	d.run(registry("l", "READY", nothing), quick)
	waitFor(t, "nothing to be pending, and no record left", func() bool {
		return d.pending("workers") == 0 && len(d.progress("workers")) == 0
	})
	if n := d.rdb.XLen(t.Context(), wire.NewShard(d.prefix, 0, 1).Dead("workers")).Val(); n != 0 {
		t.Errorf("%d dead letters, want none", n)
	}
}
