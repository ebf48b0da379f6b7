package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// holders returns how many lanes each worker holds, by the leases.
func (d *deployment) holders(group string) map[string]int {
	d.t.Helper()
	held := map[string]int{}
	for id := range d.shards {
		shard := wire.NewShard(d.prefix, id, d.shards)
		for lane := range d.lanes {
			if holder := d.rdb.Get(d.t.Context(), shard.Lease(group, lane)).Val(); holder != "" {
				name, _, _ := strings.Cut(holder, "/")
				held[name]++
			}
		}
	}
	return held
}

func nothing(context.Context, *listener.Delivery) error { return nil }

func TestHandingOverLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 16)
	var mu sync.Mutex
	seen := map[string]int{}
	last := map[string]int64{}
	disorder := 0
	listen := func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		seen[e.ID]++
		if e.Sequence < last[e.GuildID] {
			disorder++
		}
		last[e.GuildID] = e.Sequence
		return nil
	}
	config := replay.Config{Lease: time.Second}
	d.run(registry("l", "#", listen), config)
	const total = 4000
	var workers []*running
	for i := range total {
		if i%500 == 250 {
			if len(workers) < 3 {
				workers = append(workers, d.run(registry("l", "#", listen), config))
			} else {
				workers[0].stop()
				workers = workers[1:]
			}
		}
		d.post(d.guild(0, i%40))
	}
	waitFor(t, "all delivered and acked", func() bool {
		mu.Lock()
		n := len(seen)
		mu.Unlock()
		return n == total && d.pending("workers") == 0
	})
	mu.Lock()
	defer mu.Unlock()
	twice := 0
	for _, n := range seen {
		if n > 1 {
			twice++
		}
	}
	if twice > 0 || disorder > 0 {
		t.Errorf("%d of %d entries delivered more than once, %d out of order, want none", twice, total, disorder)
	}
}

func TestCrashedWorkersLanesGoOnInOrder(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	d := deploy(t, "", 1, 16)
	proxy := redistest.NewProxy(t, d.addr)
	config := replay.Config{Lease: lease, DrainTimeout: 10 * time.Millisecond}

	// The first worker's listener takes one entry of each guild and is stuck in it.
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	var begun atomic.Int32
	d.runAt(proxy.Addr(), registry("l", "#", func(ctx context.Context, e *listener.Delivery) error {
		begun.Add(1)
		<-stuck
		return ctx.Err()
	}), config)
	const guilds, each = 20, 30
	for range each {
		for g := range guilds {
			d.post(d.guild(0, g))
		}
	}
	waitFor(t, "an entry of each guild begun and all of them read", func() bool {
		return begun.Load() == guilds && d.pending("workers") == guilds*each
	})

	var mu sync.Mutex
	var first time.Time
	got := map[string][]int64{}
	attempts := map[int]int{}
	d.run(registry("l", "#", func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if first.IsZero() {
			first = time.Now()
		}
		got[e.GuildID] = append(got[e.GuildID], e.Sequence)
		attempts[e.Attempt]++
		return nil
	}), config)
	proxy.Down()
	crashed := time.Now()
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
	mu.Lock()
	defer mu.Unlock()
	if took := first.Sub(crashed); took > lease+time.Second {
		t.Errorf("lanes ran again %v after the crash, want at most %v", took, lease+time.Second)
	}
	for guild, seqs := range got {
		if len(seqs) != each {
			t.Errorf("guild %s: %d entries delivered, want %d", guild, len(seqs), each)
		}
		for i := 1; i < len(seqs); i++ {
			if seqs[i] <= seqs[i-1] {
				t.Errorf("guild %s: sequence %d behind %d", guild, seqs[i], seqs[i-1])
			}
		}
	}
	if attempts[2] != guilds*each {
		t.Errorf("attempts of the deliveries = %v, want all the second", attempts)
	}
}

func TestOrderPerGuildAndListener(t *testing.T) {
	t.Parallel()
	const total, guilds = 20000, 100
	d := deploy(t, "", 2, 8)
	r := listener.New()
	var mu sync.Mutex
	var acks atomic.Int64
	last := map[string]int64{}
	counts := map[string]int{}
	wrong := 0
	for i := range 4 {
		r.Add(listener.Handle("l"+strconv.Itoa(i), "message.*", func(_ context.Context, e *listener.Delivery) error {
			if i == 3 && e.Sequence%1000 == 0 {
				time.Sleep(time.Millisecond) // one of them dawdles now and then
			}
			mu.Lock()
			defer mu.Unlock()
			key := e.Listener + e.GuildID
			if e.Sequence <= last[key] {
				wrong++
			}
			last[key] = e.Sequence
			counts[e.Listener]++
			return nil
		}))
	}
	var names []string
	var entries []wire.Entry
	for i := range total {
		// Some guilds are far busier than others: they run out of places.
		guild := d.guild(i%2, min(i%guilds, i%7))
		if i%3 == 0 {
			guild = d.guild(i%2, i%guilds/2)
		}
		names = append(names, guild)
		entries = append(entries, d.entry("MESSAGE_CREATE", guild))
	}
	d.put(false, names, entries)
	before := d.calls("xack")
	d.run(r, replay.Config{})
	waitFor(t, "all acked", func() bool {
		mu.Lock()
		n := counts["l0"] + counts["l1"] + counts["l2"] + counts["l3"]
		mu.Unlock()
		return n >= 4*total && d.pending("workers") == 0
	})
	acks.Store(d.calls("xack") - before)
	mu.Lock()
	defer mu.Unlock()
	if wrong > 0 {
		t.Errorf("%d deliveries out of order", wrong)
	}
	for name, n := range counts {
		if n != total {
			t.Errorf("listener %s got %d entries, want %d", name, n, total)
		}
	}
	t.Logf("%d XACK calls for %d entries", acks.Load(), total)
}

// calls returns how often the server has executed a command.
func (d *deployment) calls(command string) int64 {
	info := d.rdb.Info(d.t.Context(), "commandstats").Val()
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func TestAcksAreBatched(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 1)
	const total = 5000
	var names []string
	var entries []wire.Entry
	for i := range total {
		names = append(names, d.guild(0, i%200))
		entries = append(entries, d.entry("MESSAGE_CREATE", names[i]))
	}
	d.put(false, names, entries)
	d.run(registry("l", "#", nothing), replay.Config{})
	waitFor(t, "all acked", func() bool {
		p, err := d.rdb.XInfoGroups(t.Context(), d.stream(names[0], false)).Result()
		return err == nil && len(p) == 1 && p[0].Pending == 0 && p[0].Lag == 0
	})
	if n := d.calls("xack"); n < 1 || n > total/20 {
		t.Errorf("%d XACK calls for %d entries, want them batched", n, total)
	}
}

func TestExpressGoesFirst(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 2)
	guild := d.guild(0, 1)
	const backlog = 3000
	var names []string
	var entries []wire.Entry
	for i := range backlog {
		names = append(names, d.guild(0, i%50))
		entries = append(entries, d.entry("MESSAGE_CREATE", names[i]))
	}
	d.put(false, names, entries)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	commands := make(chan string, 100)
	d.run(registry("l", "#", func(_ context.Context, e *listener.Delivery) error {
		if e.Type == "INTERACTION_CREATE" {
			commands <- e.ID
			return nil
		}
		<-hold // every runner, every place and every entry in hand is taken
		return nil
	}), replay.Config{Concurrency: 8, MaxInHand: 100, Lease: time.Second})
	waitFor(t, "the backlog to be read", func() bool { return d.pending("workers") >= 90 })
	d.put(true, []string{guild}, []wire.Entry{d.entry("INTERACTION_CREATE", guild)})
	select {
	case id := <-commands:
		if !strings.HasPrefix(id, "0/x") {
			t.Errorf("ID = %q, want one of an express stream", id)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("a command waits behind a backlog")
	}
	release()
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
}

func TestMsgpackEntries(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 2)
	var rec recorder
	r := listener.New()
	r.Add(listener.Handle("raw", "#", rec.listen))
	typed := make(chan string, 2)
	r.Add(listener.MessageUpdate.Handle("typed", func(_ context.Context, e *listener.Event[*discordgoMessageUpdate, *discordgoMessage]) error {
		typed <- e.Old.Content + ">" + e.New.Content
		return nil
	}))
	d.run(r, replay.Config{})
	guild := d.guild(0, 3)
	e := d.entry("MESSAGE_UPDATE", guild)
	payload := `{"id":"1","channel_id":"2","guild_id":"` + guild + `","content":"new"}`
	state := `{"id":"1","content":"old"}`
	var err error
	if e.Payload, err = wire.ToMsgpack(nil, []byte(payload)); err != nil {
		t.Fatal(err)
	}
	if e.State, err = wire.ToMsgpack(nil, []byte(state)); err != nil {
		t.Fatal(err)
	}
	e.Codec = wire.Msgpack
	d.put(false, []string{guild}, []wire.Entry{e})
	select {
	case got := <-typed:
		if got != "old>new" {
			t.Errorf("contents = %s, want old>new", got)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("not delivered")
	}
	waitFor(t, "the raw listener", func() bool { return rec.len() == 1 })
	if got := rec.all()[0]; string(got.Payload) != payload || string(got.Previous) != state || got.GuildID != guild {
		t.Errorf("Payload %s, Previous %s, GuildID %s, want the JSON of the entry", got.Payload, got.Previous, got.GuildID)
	}
}

func TestRetriesRunOnlyWhatFailed(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var good recorder
	var mu sync.Mutex
	var attempts []string
	r := listener.New()
	r.Add(listener.Handle("good", "#", good.listen))
	r.Add(listener.Handle("bad", "#", func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, fmt.Sprintf("%d#%d", e.Sequence, e.Attempt))
		if e.Sequence == 1 && e.Attempt < 3 {
			if e.Attempt == 2 {
				panic("second")
			}
			return errors.New("first")
		}
		return nil
	}))
	d.run(r, replay.Config{Backoff: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	guild := d.guild(0, 1)
	d.post(guild)
	d.post(guild)
	waitFor(t, "all acked", func() bool { return good.len() == 2 && d.pending("workers") == 0 })
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(attempts, " "); got != "1#1 1#2 1#3 2#1" {
		t.Errorf("runs of the failing listener = %s, want the second entry behind the first one's third run", got)
	}
	if n := good.len(); n != 2 {
		t.Errorf("the other listener ran %d times, want 2", n)
	}
}
