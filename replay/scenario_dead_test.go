package replay_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// full makes the long tests as long as what a release is held to.
var full = flag.Bool("full", false, "run the whole of what takes minutes")

// TestScenario027GhostConsumersPerRestart starts and ends workers again and again,
// every other one by a kill.
func TestScenario027GhostConsumersPerRestart(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	restarts := 8
	if *full {
		restarts = 50
	}
	const lease = 250 * time.Millisecond
	for i := range restarts {
		name := fmt.Sprint("w", i)
		p := d.start(recipe{Name: name, Lease: lease, Drain: time.Second})
		d.holds("map[" + name + ":1]")
		d.tell(guild, "")
		waitFor(t, "the entry to be acked", func() bool { return len(d.happenings()) == 2*(i+1) && d.pending("workers") == 0 })
		if i%2 == 0 {
			p.kill()
		} else if code := p.stop(); code != 0 {
			t.Errorf("worker %s: exit code %d, want 0", name, code)
		}
	}
	left := 0 // one that lost its lane for being late has nothing to take leave of
	for _, c := range d.rdb.XInfoConsumers(t.Context(), d.stream(guild, false), "workers").Val() {
		var n int
		if fmt.Sscanf(c.Name, "w%d/", &n); n%2 == 1 {
			left++
		}
	}
	if left > 1 {
		t.Errorf("consumers of %d workers that were stopped are left", left)
	}
	d.run(registry("l", "#", nothing), replay.Config{Lease: lease, Consumer: "last"})
	waitFor(t, "the killed ones' consumers to go", func() bool {
		for _, c := range d.rdb.XInfoConsumers(t.Context(), d.stream(guild, false), "workers").Val() {
			if !strings.HasPrefix(c.Name, "last/") {
				return false
			}
		}
		return true
	})
	if n := d.rdb.HLen(t.Context(), wire.WorkersKey(d.prefix, "workers")).Val(); n != 1 {
		t.Errorf("%d workers listed, want 1", n)
	}
}

// TestScenario029TwoWorkersOneName gives two workers one name.
func TestScenario029TwoWorkersOneName(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	var mu sync.Mutex
	running, ran := map[string]int{}, map[string]int{}
	hold := make(chan struct{})
	listen := func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		running[e.ID]++
		ran[e.ID]++
		if running[e.ID] > 1 {
			t.Errorf("entry %s runs twice at once", e.ID)
		}
		mu.Unlock()
		<-hold
		mu.Lock()
		defer mu.Unlock()
		running[e.ID]--
		return nil
	}
	config := replay.Config{Lease: 300 * time.Millisecond, Consumer: "worker-1"}
	d.run(registry("l", "#", listen), config)
	for g := range 5 {
		d.post(d.guild(0, g))
	}
	waitFor(t, "five to be held", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == 5
	})
	second := d.run(registry("l", "#", listen), config)
	waitFor(t, "both to live", func() bool { return d.rdb.HLen(t.Context(), wire.WorkersKey(d.prefix, "workers")).Val() == 2 })
	d.post(d.guild(0, 9))
	time.Sleep(2 * config.Lease) // time in which the second could take what the first holds
	close(hold)
	waitFor(t, "all acked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == 6 && d.pending("workers") == 0
	})
	waitFor(t, "the second to be ready", func() bool { return second.Ready() == nil })
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ran {
		if n != 1 {
			t.Errorf("entry %s ran %d times", id, n)
		}
	}
}

// TestScenario031HandlerDiesBeforeCounter has an entry end the process that runs it,
// and a supervisor start another.
func TestScenario031HandlerDiesBeforeCounter(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"kill", "exit"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 2)
			d.t = t
			d.poison(recipe{Lease: 300 * time.Millisecond, Deliveries: 3}, how, 60, 6)
		})
	}
}

// TestAPoisonousEntryAmongAThousand: it alone is given up, after exactly as many
// starts as it is given, whatever else was in hand when it killed.
func TestAPoisonousEntryAmongAThousand(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	d.poison(recipe{Lease: 300 * time.Millisecond, Deliveries: 5}, "kill", 1000, 100)
}

// poison appends entries of guilds, the middle one of which ends its process, has
// workers started as they end, and checks what has become of the entries.
func (d *deployment) poison(r recipe, how string, entries, guilds int) {
	t := d.t
	t.Helper()
	bad := int64(entries / 2)
	for i := range entries {
		do := ""
		if int64(i+1) == bad {
			do = how
		}
		d.tell(d.guild(0, i%guilds), do)
	}
	deaths := 0
	alive := true
	var w *process
	for alive {
		r.Name = fmt.Sprint("w", deaths)
		w = d.start(r)
		waitFor(t, "its death, or the end", func() bool {
			select {
			case <-w.done:
				return true
			default:
			}
			alive = d.rdb.XLen(t.Context(), wire.NewShard(d.prefix, 0, d.shards).Dead("workers")).Val() == 0
			return !alive
		})
		select {
		case <-w.done:
			if deaths++; deaths > r.Deliveries {
				t.Fatalf("%d processes have died, want %d", deaths, r.Deliveries)
			}
			alive = true
		default:
		}
	}
	letter := d.letters("workers", 1)[0]
	starts := d.starts()
	if n := starts[bad]; n != r.Deliveries || deaths != r.Deliveries {
		t.Errorf("%d starts of the poisonous entry and %d deaths, want %d", n, deaths, r.Deliveries)
	}
	if letter["sequence"] != fmt.Sprint(bad) || letter["error"] != "l: process died while it ran" || letter["deliveries"] != fmt.Sprint(r.Deliveries) {
		t.Errorf("letter = %v", letter)
	}
	ended := map[int64]int{}
	first := map[int64]bool{}
	last := map[string]int64{}
	again := 0
	for _, h := range d.happenings() {
		if h.What == "end" {
			ended[h.Seq]++
		}
		if h.What != "start" || first[h.Seq] {
			continue
		}
		first[h.Seq] = true
		if h.Seq < last[h.Guild] {
			t.Errorf("guild %s: sequence %d is first started behind %d", h.Guild, h.Seq, last[h.Guild])
		}
		last[h.Guild] = h.Seq
	}
	for seq := int64(1); seq <= int64(entries); seq++ {
		if (ended[seq] == 0) != (seq == bad) {
			t.Errorf("sequence %d was handled %d times", seq, ended[seq])
		}
		again += max(0, starts[seq]-1)
	}
	t.Logf("%d deaths; %d starts beyond the first of %d innocent entries", deaths, again-r.Deliveries+1, entries-1)
	if code := w.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestScenario033ReclaimBypassesCap has listeners that hang: with and without an eye
// on their context.
func TestScenario033ReclaimBypassesCap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		heeds      bool
		error      string
		deliveries string
	}{
		"until its context ends": {true, "l: context deadline exceeded", "3"},
		"for ever":               {false, "l: did not return 5s after its time was up, and was abandoned", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			hold := make(chan struct{})
			defer close(hold)
			var rec recorder
			var starts atomic.Int32
			reg := prometheus.NewRegistry()
			config := quick
			config.Concurrency, config.ListenerTimeout, config.MaxDeliveries, config.Metrics = 1, 30*time.Millisecond, 3, reg
			config.Lease = 200 * time.Millisecond
			d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
				if e.Sequence > 1 {
					return rec.listen(ctx, e)
				}
				starts.Add(1)
				if !test.heeds {
					<-hold
				}
				<-ctx.Done()
				return ctx.Err()
			}), config)
			d.post(d.guild(0, 1))
			d.post(d.guild(0, 1))
			waitFor(t, "the entry behind it", func() bool { return rec.len() == 1 })
			letter := d.letters("workers", 1)[0]
			if letter["error"] != test.error || letter["deliveries"] != test.deliveries {
				t.Errorf("error %q after %v deliveries, want %q after %s", letter["error"], letter["deliveries"], test.error, test.deliveries)
			}
			if n := fmt.Sprint(starts.Load()); n != test.deliveries {
				t.Errorf("%s starts, want %s", n, test.deliveries)
			}
			if n := total(t, reg, "sluice_replay_abandoned_total"); (n == 1) == test.heeds {
				t.Errorf("%v abandoned", n)
			}
		})
	}
}

// TestScenario035DLQWriteFailing has Redis refuse dead letters in each way it can.
// The entry stays pending as it was, and the letter is stored when it can be: by
// the worker itself, or by its successor.
func TestScenario035DLQWriteFailing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse func(d *deployment, key string) error
		allow  func(d *deployment, key string) error
		says   string
	}{
		"wrong type": {
			func(d *deployment, key string) error { return d.rdb.Set(d.t.Context(), key, "x", 0).Err() },
			func(d *deployment, key string) error { return d.rdb.Del(d.t.Context(), key).Err() },
			"WRONGTYPE",
		},
		"out of memory": {
			func(d *deployment, _ string) error { return d.rdb.ConfigSet(d.t.Context(), "maxmemory", "1").Err() },
			func(d *deployment, _ string) error { return d.rdb.ConfigSet(d.t.Context(), "maxmemory", "0").Err() },
			"OOM",
		},
		"too few replicas": {
			func(d *deployment, _ string) error {
				return d.rdb.ConfigSet(d.t.Context(), "min-replicas-to-write", "1").Err()
			},
			func(d *deployment, _ string) error {
				return d.rdb.ConfigSet(d.t.Context(), "min-replicas-to-write", "0").Err()
			},
			"NOREPLICAS",
		},
		"access": {
			func(d *deployment, _ string) error {
				return d.rdb.Do(d.t.Context(), "ACL", "SETUSER", "default", "-xadd").Err()
			},
			func(d *deployment, _ string) error {
				return d.rdb.Do(d.t.Context(), "ACL", "SETUSER", "default", "+xadd").Err()
			},
			"", // a script has no code for it
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := deploy(t, server.Addr(), 1, 1)
			d.t = t
			var bad, good atomic.Int32
			begun, goOn := make(chan struct{}), make(chan struct{})
			r := func() *listener.Registry {
				r := listener.New()
				r.Add(
					listener.Handle("bad", "#", func(context.Context, *listener.Delivery) error {
						if bad.Add(1) == 1 {
							close(begun)
							<-goOn
						}
						return listener.Discard(errors.New("no"))
					}),
					listener.Handle("good", "#", func(context.Context, *listener.Delivery) error {
						good.Add(1)
						return nil
					}))
				return r
			}
			reg := prometheus.NewRegistry()
			config := quick
			config.Metrics = reg
			w := d.run(r(), config)
			d.post(d.guild(0, 1))
			<-begun
			key := wire.NewShard(d.prefix, 0, 1).Dead("workers")
			if err := test.refuse(d, key); err != nil {
				t.Fatal(err)
			}
			close(goOn)
			tells := func() bool {
				err := w.Ready()
				return err != nil && strings.Contains(err.Error(), "dead letters in "+key) && strings.Contains(err.Error(), test.says)
			}
			waitFor(t, "Ready to tell", tells)
			waitFor(t, "errors to be counted", func() bool { return total(t, reg, "sluice_replay_errors_total") >= 2 })
			if n := d.pending("workers"); n != 1 {
				t.Errorf("%d entries pending, want the one", n)
			}
			if name == "wrong type" { // the others let no worker stop or start in peace
				w.stop()
				w = d.run(r(), quick)
				waitFor(t, "Ready to tell again", tells)
			}
			if err := test.allow(d, key); err != nil {
				t.Fatal(err)
			}
			letter := d.letters("workers", 1)[0]
			if letter["listeners"] != "bad" || letter["error"] != "bad: no" {
				t.Errorf("listeners %q, error %q, want bad", letter["listeners"], letter["error"])
			}
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			if bad.Load() != 1 || good.Load() != 1 {
				t.Errorf("%d and %d runs, want one each", bad.Load(), good.Load())
			}
			if p := d.progress("workers"); len(p) != 0 {
				t.Errorf("progress left: %v", p)
			}
		})
	}
}

// TestScenario037FailingHeadStarvesTail takes over more failing entries than a page
// or a worker's runners, and good ones behind them.
func TestScenario037FailingHeadStarvesTail(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	const failing, good = 600, 10
	var guilds []string
	var entries []wire.Entry
	for i := range failing + good {
		guild := d.guild(0, i%300)
		do := "fail"
		if i >= failing {
			guild, do = d.guild(0, 1000+i), ""
		}
		guilds, entries = append(guilds, guild), append(entries, d.order(guild, do))
	}
	d.put(false, guilds, entries)
	d.abandon(d.stream(guilds[0], false), "dead", failing+good)
	var gaveUp, done atomic.Int32
	before := int32(-1)
	config := replay.Config{Lease: time.Second, Backoff: 200 * time.Millisecond, BackoffMax: 200 * time.Millisecond, MaxDeliveries: 4, DeadLength: failing}
	config.OnDead = func(replay.DeadLetter) { gaveUp.Add(1) }
	var once sync.Once
	d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		err := obey(ctx, e)
		if err == nil && done.Add(1) == good {
			once.Do(func() { before = gaveUp.Load() })
		}
		return err
	}), config)
	d.letters("workers", failing)
	if done.Load() != good || before != 0 {
		t.Errorf("%d good entries were handled, the last one behind %d that were given up; want none", done.Load(), before)
	}
	if n := d.rdb.XInfoGroups(t.Context(), d.stream(guilds[0], false)).Val(); len(n) != 1 || n[0].Pending != 0 {
		t.Errorf("groups %+v", n)
	}
}
