package replay_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

func TestAStuckGuildHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	stuck, other := d.guild(0, 1), d.guild(0, 2)
	// More than are in hand, more than are remembered: the rest is found again.
	const backlog = replay.MaxSkipped + 1500
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var rec, both recorder
	r := listener.New()
	r.Add(listener.Handle("stuck", "#", func(ctx context.Context, e *listener.Delivery) error {
		if e.GuildID == stuck {
			<-hold
		}
		return rec.listen(ctx, e)
	}))
	r.Add(listener.Handle("fast", "#", both.listen))
	var guilds []string
	var entries []wire.Entry
	for range backlog {
		guilds = append(guilds, stuck)
		entries = append(entries, d.entry("MESSAGE_CREATE", stuck))
	}
	d.put(false, guilds, entries)
	w := d.run(r, replay.Config{MaxInHand: 64})
	waitFor(t, "the backlog to be pending", func() bool { return d.pending("workers") == backlog })
	if err := w.Ready(); err != nil {
		t.Errorf("Ready = %v while one guild is stuck, want nil", err)
	}
	d.post(other)
	waitFor(t, "the other guild's entry", func() bool { return rec.len() == 1 })
	if got := rec.all()[0].GuildID; got != other {
		t.Errorf("delivered guild %s, want %s", got, other)
	}
	if n := both.len(); n != replay.Places+1 {
		t.Errorf("the other listener got %d entries, want the %d in hand and 1", n, replay.Places)
	}
	release()
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
	for _, r := range []*recorder{&rec, &both} {
		last := int64(0)
		n := 0
		for _, e := range r.all() {
			if e.GuildID != stuck {
				continue
			}
			if n++; e.Sequence != last+1 {
				t.Fatalf("listener %s: sequence %d behind %d", e.Listener, e.Sequence, last)
			}
			last = e.Sequence
		}
		if n != backlog {
			t.Errorf("%d entries of the stuck guild delivered, want %d", n, backlog)
		}
	}
}

func TestFullHandStopsReadingAndNamesTheListener(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var n atomic.Int32
	w := d.run(registry("dawdler", "#", func(context.Context, *listener.Delivery) error {
		n.Add(1)
		<-hold
		return nil
	}), replay.Config{MaxInHand: 20, Concurrency: 2})
	for g := range 100 {
		d.post(d.guild(0, g))
	}
	waitFor(t, "not ready", func() bool {
		err := w.Ready()
		return err != nil && strings.Contains(err.Error(), `"dawdler"`)
	})
	if p := d.pending("workers"); p < 20 || p > 21 {
		t.Errorf("%d entries are read, want MaxInHand, 20", p)
	}
	release()
	waitFor(t, "ready", func() bool { return n.Load() == 100 && w.Ready() == nil })
}

func TestALostAckIsSentAgain(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	proxy := redistest.NewProxy(t, d.addr)
	var rec recorder
	d.runAt(proxy.Addr(), registry("l", "#", rec.listen), replay.Config{Lease: time.Second})
	proxy.DropRequest([]byte("XACK"), 2)
	for range 10 {
		d.post(d.guild(0, 1))
	}
	waitFor(t, "all acked", func() bool { return rec.len() >= 10 && d.pending("workers") == 0 })
	if n := rec.len(); n != 10 {
		t.Errorf("%d deliveries, want 10", n)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var rec recorder
	began := time.Now()
	d.run(registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > 50*time.Millisecond {
			t.Errorf("deadline = %v, %t, want one 50ms ahead", deadline, ok)
		}
		if e.Attempt == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return rec.listen(ctx, e)
	}), replay.Config{ListenerTimeout: 50 * time.Millisecond, Backoff: time.Millisecond, BackoffMax: time.Millisecond})
	d.post(d.guild(0, 1))
	waitFor(t, "the second attempt", func() bool { return rec.len() == 1 && d.pending("workers") == 0 })
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("took %v, less than the timeout", took)
	}
}

func TestWaitsForTheTopology(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	d.rdb.Del(t.Context(), wire.TopologyKey(d.prefix))
	var rec recorder
	w := d.run(registry("l", "#", rec.listen), replay.Config{})
	waitFor(t, "it to say what it waits for", func() bool {
		err := w.Ready()
		return err != nil && strings.Contains(err.Error(), "topology")
	})
	d.post(d.guild(0, 1))
	d.record()
	waitFor(t, "the entry from before the group", func() bool { return rec.len() == 1 })
	if err := w.Run(t.Context()); err != replay.ErrStarted {
		t.Errorf("second Run = %v, want ErrStarted", err)
	}
}

func TestEntriesWithoutAListenerAreAcked(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var rec recorder
	d.run(registry("l", "MESSAGE_CREATE", rec.listen), replay.Config{Off: []string{"other"}})
	guild := d.guild(0, 1)
	d.put(false, []string{guild}, []wire.Entry{d.entry("TYPING_START", guild)})
	d.post(guild)
	waitFor(t, "both acked", func() bool { return rec.len() == 1 && d.pending("workers") == 0 })
}

func TestListenersThatAreOff(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var on, off recorder
	r := listener.New()
	r.Add(listener.Handle("on", "#", on.listen), listener.Handle("off", "#", off.listen))
	var aged recorder
	r.Add(listener.Handle("aged", "#", aged.listen).With(listener.Options{MaxAge: 30 * time.Second}))
	d.run(r, replay.Config{Off: []string{"off"}})
	d.putAged("MESSAGE_CREATE", d.guild(0, 1), time.Minute, 0)
	d.post(d.guild(0, 1))
	waitFor(t, "both acked", func() bool { return on.len() == 2 && d.pending("workers") == 0 })
	if off.len() != 0 {
		t.Errorf("a listener that is off ran %d times", off.len())
	}
	if aged.len() != 1 {
		t.Errorf("a listener with MaxAge ran %d times, want once, for the fresh entry", aged.len())
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	direct := server.Client(t)
	slots := make([]int, 16384)
	for i := range slots {
		slots[i] = i
	}
	if err := direct.ClusterAddSlots(t.Context(), slots...).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the cluster", func() bool {
		return strings.Contains(direct.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
	d := deploy(t, server.Addr(), 4, 4)
	var rec recorder
	config := replay.Config{Lease: time.Second}
	client := func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	}
	a := d.runWith(client(), registry("l", "#", rec.listen), config)
	waitFor(t, "ready", func() bool { return a.Ready() == nil })
	b := d.runWith(client(), registry("l", "#", rec.listen), config)
	waitFor(t, "both ready", func() bool { return a.Ready() == nil && b.Ready() == nil })
	for shard := range 4 {
		for g := range 25 {
			d.post(d.guild(shard, g))
		}
	}
	waitFor(t, "all acked", func() bool { return rec.len() >= 100 && d.pending("workers") == 0 })
	if n := rec.len(); n != 100 {
		t.Errorf("%d deliveries, want 100", n)
	}
}
