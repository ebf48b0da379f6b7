package replay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// shares waits until so many workers hold all lanes between them, as evenly as can
// be.
func (d *deployment) shares(workers int) {
	d.t.Helper()
	all := d.shards * d.lanes
	var want []int
	for i := range min(workers, all) {
		n := all / workers
		if i < all%workers {
			n++
		}
		want = append(want, n)
	}
	slices.Sort(want)
	var got []int
	for deadline := time.Now().Add(20 * time.Second); ; {
		got = got[:0]
		for _, n := range d.holders("workers") {
			got = append(got, n)
		}
		slices.Sort(got)
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%d workers hold %v of %d lanes, want %v", workers, got, all, want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLanesAreSharedEvenly(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ shards, lanes int }{{1, 1}, {1, 2}, {1, 7}, {4, 4}, {4, 16}, {8, 32}} {
		t.Run(fmt.Sprint(size.shards*size.lanes), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", size.shards, size.lanes)
			d.t = t
			config := replay.Config{Lease: time.Second}
			a := d.run(registry("l", "#", nothing), config)
			d.shares(1)
			d.run(registry("l", "#", nothing), config)
			d.shares(2)
			proxy := redistest.NewProxy(t, d.addr)
			dying := config
			dying.DrainTimeout = time.Millisecond
			d.runAt(proxy.Addr(), registry("l", "#", nothing), dying)
			d.shares(3)
			a.stop()
			d.shares(2)
			proxy.Down()
			d.shares(1)
			last := d.run(registry("l", "#", nothing), config)
			d.shares(2)
			waitFor(t, "ready", func() bool { return last.Ready() == nil })
		})
	}
}

// TestALaneIsHandedOverAtOnce has workers come and go under traffic. The leases are
// so long that nothing of this is owed to one that ends, or to a step of a keeper.
func TestALaneIsHandedOverAtOnce(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 4, 4)
	config := replay.Config{Lease: 2 * time.Minute}
	var mu sync.Mutex
	var slowest time.Duration
	handled := 0
	listen := func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		slowest = max(slowest, time.Since(e.Received))
		handled++
		return nil
	}
	d.run(registry("l", "#", listen), config)
	d.shares(1)
	stop, stopped := make(chan struct{}), make(chan struct{})
	posted := 0
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				guild := d.guild(posted%4, posted)
				d.put(false, []string{guild}, []wire.Entry{d.entry("MESSAGE_CREATE", guild)})
				posted++
			}
		}
	}()
	var took, waited []time.Duration
	measure := func(do func()) {
		mu.Lock()
		slowest = 0
		mu.Unlock()
		began := time.Now()
		do()
		took = append(took, time.Since(began).Round(time.Millisecond))
		mu.Lock()
		defer mu.Unlock()
		waited = append(waited, slowest.Round(time.Millisecond))
	}
	for range 3 {
		var w *running
		measure(func() { w = d.run(registry("l", "#", listen), config); d.shares(2) })
		measure(func() { w.stop(); d.shares(1) })
	}
	close(stop)
	<-stopped
	waitFor(t, "all acked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return handled >= posted && d.pending("workers") == 0
	})
	t.Logf("lanes were shared anew after %v; meanwhile an entry waited at most %v", took, waited)
	slices.Sort(took)
	if median := took[len(took)/2]; median > 3*time.Second {
		t.Errorf("a worker's coming or going took %v, want far less than a tenth of a lease", median)
	}
	slices.Sort(waited)
	if median := waited[len(waited)/2]; median > 2*time.Second {
		t.Errorf("entries waited %v when lanes changed hands", median)
	}
	if handled != posted {
		t.Errorf("%d entries handled, want %d", handled, posted)
	}
}

// TestLanesAreHandedOverInOneRoundTrip counts what it costs the one who gives them.
func TestLanesAreHandedOverInOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 64)
	w := d.run(registry("l", "#", nothing), replay.Config{Lease: time.Minute})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	before := d.calls("eval")
	w.stop()
	if n := d.calls("eval") - before; n != 64 {
		t.Errorf("%d scripts for 64 lanes, want one each", n)
	}
	if held := d.holders("workers"); len(held) != 0 {
		t.Errorf("leases left: %v", held)
	}
}

// TestAFrozenOwnerThatWakes freezes a process in the middle of a run. Its lanes
// move on; when it wakes, its listener's context has ended, and it starts nothing
// that is another's by then.
func TestAFrozenOwnerThatWakes(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 2)
	const lease = 500 * time.Millisecond
	frozen := d.start(recipe{Name: "frozen", Lease: lease, Drain: time.Second})
	d.holds("map[frozen:2]")
	guild := d.guild(0, 1)
	d.tell(guild, "1m")
	waitFor(t, "its start", func() bool { return len(d.happenings()) == 1 })
	for range 20 {
		d.tell(guild, "")
	}
	waitFor(t, "them to be read", func() bool { return d.pending("workers") == 21 })
	frozen.signal(syscall.SIGSTOP)
	var rec recorder
	d.run(registry("l", "#", rec.listen), replay.Config{Lease: lease, Consumer: "heir"})
	d.holds("map[heir:2]")
	for range 20 {
		d.tell(guild, "") // its read, parked before, may be served these
	}
	waitFor(t, "all handled by the heir", func() bool { return rec.len() >= 41 && d.pending("workers") == 0 })
	frozen.signal(syscall.SIGCONT)
	waitFor(t, "the frozen one's listener to end", func() bool { return len(d.happenings()) >= 2 })
	d.shares(2) // it has joined again
	happenings := d.happenings()
	if last := happenings[len(happenings)-1]; len(happenings) != 2 || last.What != "end" || !last.Over {
		t.Errorf("happenings %+v, want its one listener to end with its context", happenings)
	}
	for i, e := range rec.all() {
		if e.Sequence != int64(i+1) {
			t.Fatalf("delivery %d to the heir has sequence %d", i+1, e.Sequence)
		}
	}
	if n := rec.len(); n != 41 {
		t.Errorf("%d deliveries to the heir, want 41", n)
	}
	if code := frozen.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestContextsEndWithTheLease freezes Redis: whatever the worker is waiting for, its
// listeners' contexts end before another worker could have the lanes.
func TestContextsEndWithTheLease(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	for name, pause := range map[string]func(*redistest.Server, *redistest.Proxy, testing.TB){
		"Redis is frozen":   func(s *redistest.Server, _ *redistest.Proxy, t testing.TB) { s.Pause(t) },
		"Redis is cut away": func(_ *redistest.Server, p *redistest.Proxy, _ testing.TB) { p.Down() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := deploy(t, server.Addr(), 1, 2)
			d.t = t
			proxy := redistest.NewProxy(t, server.Addr())
			begun, ended := make(chan struct{}), make(chan time.Time, 1)
			var starts atomic.Int32
			w := d.runAt(proxy.Addr(), registry("l", "#", func(ctx context.Context, _ *listener.Delivery) error {
				if starts.Add(1) > 1 {
					return nil
				}
				close(begun)
				<-ctx.Done()
				ended <- time.Now()
				return ctx.Err()
			}), replay.Config{Lease: lease})
			guild := d.guild(0, 1)
			d.post(guild)
			d.post(guild)
			<-begun
			pause(server, proxy, t)
			paused := time.Now()
			select {
			case at := <-ended:
				// The lease was renewed at the latest when Redis was paused.
				if over := at.Sub(paused); over > lease+200*time.Millisecond {
					t.Errorf("the context ended %v after Redis had gone, and the lease is %v", over, lease)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the context does not end")
			}
			if w.Owns(guild) {
				t.Error("Owns = true without a lease")
			}
			if n := starts.Load(); n != 1 {
				t.Errorf("%d starts without a lease", n)
			}
			if name == "Redis is frozen" {
				server.Continue(t)
			}
			proxy.Up()
			waitFor(t, "all handled", func() bool { return starts.Load() == 3 && d.pending("workers") == 0 })
		})
	}
}

// TestWorkersThatDiffer has workers of one group with other listeners, or of another
// build: they are told and counted, and ready all the same.
func TestWorkersThatDiffer(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	var log journal
	reg := prometheus.NewRegistry()
	made := func(patterns ...string) *listener.Registry {
		r := listener.New()
		for i, p := range patterns {
			r.Add(listener.Handle(fmt.Sprint("l", i), p, nothing))
		}
		return r
	}
	config := replay.Config{Lease: 500 * time.Millisecond}
	watched := config
	watched.Logger, watched.Metrics = log.logger(), reg
	a := d.run(made("message.*", "ready"), watched)
	d.run(made("message.*", "ready"), config)
	d.shares(2)
	const name = "sluice_replay_workers_differing"
	if n := total(t, reg, name); n != 0 || len(log.with("a worker of the group")) > 0 {
		t.Errorf("%v workers differ, %q; want none", n, log.with("a worker of the group"))
	}
	less := d.run(made("message.*"), config)
	waitFor(t, "the one without l1 to be counted", func() bool { return total(t, reg, name) == 1 })
	other := d.run(made("message.*", "guild.*"), config)
	waitFor(t, "the one with another pattern to be counted", func() bool { return total(t, reg, name) == 2 })
	waitFor(t, "ready", func() bool { return a.Ready() == nil && less.Ready() == nil && other.Ready() == nil })
	less.stop()
	other.stop()
	waitFor(t, "them to be gone", func() bool { return total(t, reg, name) == 0 })
	if lines := log.with("level=WARN", "other listeners", `only_here="l1 (ready)"`, `only_there=""`); len(lines) != 1 {
		t.Errorf("%d lines on the one without l1, want 1", len(lines))
	}
	if lines := log.with("level=WARN", `only_here="l1 (ready)"`, `only_there="l1 (guild.*)"`); len(lines) != 1 {
		t.Errorf("%d lines on the one with another pattern, want 1", len(lines))
	}

	// One of another build, as it would tell of itself.
	key := wire.WorkersKey(d.prefix, "workers")
	info := d.rdb.HVals(t.Context(), key).Val()[0]
	_, rest, _ := strings.Cut(info, `"build":"`)
	_, rest, _ = strings.Cut(rest, `"`)
	built := fmt.Sprintf(`{"until":%d,"mark":"abc","consumer":"x","host":"h","pid":1,"build":"rev2"%s`, time.Now().Add(time.Hour).UnixMilli(), rest)
	if err := d.rdb.HSet(t.Context(), key, "x", built).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the other build to be counted", func() bool { return total(t, reg, name) == 1 })
	if lines := log.with("level=INFO", "another build", "other_build=rev2"); len(lines) != 1 {
		t.Errorf("%d lines on the other build, want 1", len(lines))
	}
}

// TestFlushedLeasesAreOneLine loses all leases at once.
func TestFlushedLeasesAreOneLine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 4, 16)
	var log journal
	w := d.run(registry("l", "#", nothing), replay.Config{Lease: 300 * time.Millisecond, Logger: log.logger()})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	if err := d.rdb.FlushAll(t.Context()).Err(); err != nil && err != redis.Nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss to be told", func() bool { return len(log.with("lanes lost")) > 0 })
	d.shares(1)
	if lines := log.with("lanes lost", "lanes=64"); len(lines) != 1 {
		t.Errorf("%d lines about 64 lanes lost, want 1", len(lines))
	}
}
