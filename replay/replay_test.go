package replay_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// A deployment is a topology with its streams, under a prefix of its own.
type deployment struct {
	t      testing.TB
	rdb    *redis.Client
	addr   string
	prefix string
	shards int
	lanes  int
	seq    int64
}

// deploy records a topology on the package's server, or on addr.
func deploy(t testing.TB, addr string, shards, lanes int) *deployment {
	t.Helper()
	d := &deployment{t: t, addr: cmp.Or(addr, redistest.Addr(t)), prefix: redistest.Prefix(t), shards: shards, lanes: lanes}
	d.rdb = redis.NewClient(&redis.Options{Addr: d.addr})
	t.Cleanup(func() { d.rdb.Close() })
	d.record()
	return d
}

func (d *deployment) record() {
	d.t.Helper()
	err := d.rdb.HSet(d.t.Context(), wire.TopologyKey(d.prefix),
		"application", "1", "shards", d.shards, "lanes", d.lanes, "created", 1).Err()
	if err != nil {
		d.t.Fatal(err)
	}
}

// guild returns the id of the nth guild of a shard.
func (d *deployment) guild(shard, n int) string {
	return strconv.FormatUint(uint64(n*d.shards+shard)<<22|7, 10)
}

// entry returns a dispatch of a guild with the next sequence.
func (d *deployment) entry(event, guild string) wire.Entry {
	d.seq++
	return wire.Entry{
		Event: event, Payload: []byte(`{"id":"` + strconv.FormatInt(d.seq, 10) + `","guild_id":"` + guild + `"}`),
		Sequence: d.seq, Session: "abcdef012345", Received: time.Now().UnixMilli(), Codec: wire.JSON,
	}
}

// stream returns the stream that a guild's entries are in.
func (d *deployment) stream(guild string, express bool) string {
	id, ok := wire.ShardOf(guild, d.shards)
	if !ok {
		d.t.Fatalf("ShardOf(%q) has no shard", guild)
	}
	shard, lane := wire.NewShard(d.prefix, id, d.shards), wire.Lane([]byte(guild), d.lanes)
	if express {
		return shard.Express(lane)
	}
	return shard.Stream(lane)
}

// put appends entries of guilds to their streams and returns their stream ids.
func (d *deployment) put(express bool, guilds []string, entries []wire.Entry) []string {
	d.t.Helper()
	var ids []string
	for len(entries) > 0 {
		n := min(len(entries), 256)
		cmds, err := d.rdb.Pipelined(d.t.Context(), func(p redis.Pipeliner) error {
			for i := range entries[:n] {
				id, _ := wire.ShardOf(guilds[i], d.shards)
				entries[i].Shard = id
				p.Do(d.t.Context(), entries[i].AppendArgs([]any{"XADD", d.stream(guilds[i], express), "*"})...)
			}
			return nil
		})
		if err != nil {
			d.t.Fatal(err)
		}
		for _, cmd := range cmds {
			id, _ := cmd.(*redis.Cmd).Text()
			ids = append(ids, id)
		}
		guilds, entries = guilds[n:], entries[n:]
	}
	return ids
}

// post appends one MESSAGE_CREATE of a guild and returns its stream id.
func (d *deployment) post(guild string) string {
	d.t.Helper()
	return d.put(false, []string{guild}, []wire.Entry{d.entry("MESSAGE_CREATE", guild)})[0]
}

// pending returns how many entries are pending, or not yet read, in all streams.
func (d *deployment) pending(group string) (pending int64) {
	d.t.Helper()
	for id := range d.shards {
		shard := wire.NewShard(d.prefix, id, d.shards)
		for lane := range d.lanes {
			for _, stream := range []string{shard.Stream(lane), shard.Express(lane)} {
				p, err := d.rdb.XPending(d.t.Context(), stream, group).Result()
				if err == nil {
					pending += p.Count
				}
			}
		}
	}
	return pending
}

// logTo gets what workers log: standard error if REPLAY_LOG is set.
var logTo = func() io.Writer {
	if os.Getenv("REPLAY_LOG") != "" {
		return os.Stderr
	}
	return io.Discard
}()

// A running worker.
type running struct {
	*replay.Worker
	stop func() // ends it and waits until it has
	err  error  // of Run; after stop
}

// run starts a worker; it is stopped when the test ends.
func (d *deployment) run(r *listener.Registry, config replay.Config) *running {
	d.t.Helper()
	return d.runAt(d.addr, r, config)
}

func (d *deployment) runAt(addr string, r *listener.Registry, config replay.Config) *running {
	d.t.Helper()
	return d.runWith(redis.NewClient(&redis.Options{Addr: addr}), r, config)
}

// runWith starts a worker with a client, which is closed at the end.
func (d *deployment) runWith(rdb redis.UniversalClient, r *listener.Registry, config replay.Config) *running {
	d.t.Helper()
	config.Prefix = d.prefix
	if config.Logger == nil {
		config.Logger = slog.New(slog.NewTextHandler(logTo, nil))
	}
	w, err := replay.New(rdb, r, config)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	run := &running{Worker: w}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run.err = w.Run(ctx)
	}()
	run.stop = func() {
		cancel()
		<-done
		rdb.Close()
	}
	d.t.Cleanup(func() {
		run.stop()
		if run.err != nil {
			d.t.Errorf("Run = %v, want nil", run.err)
		}
	})
	return run
}

// waitFor polls until done, at most 20s.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// A recorder is a listener that notes what it gets.
type recorder struct {
	mu  sync.Mutex
	got []listener.Delivery
}

func (r *recorder) listen(_ context.Context, d *listener.Delivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, *d)
	return nil
}

func (r *recorder) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (r *recorder) all() []listener.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]listener.Delivery(nil), r.got...)
}

func registry(name, pattern string, fn listener.Func) *listener.Registry {
	r := listener.New()
	r.Add(listener.Handle(name, pattern, fn))
	return r
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 2, 4)
	var rec recorder
	w := d.run(registry("record", "#", rec.listen), replay.Config{Lease: time.Second})
	guild := d.guild(1, 5)
	e := d.entry("MESSAGE_UPDATE", guild)
	e.State = []byte(`{"id":"1","content":"before"}`)
	e.Flags = wire.Sync | wire.Partial
	e.Trace = "00-1-2-01"
	e.Received = 1700000000123
	id := d.put(false, []string{guild}, []wire.Entry{e})[0]
	x := d.entry("INTERACTION_CREATE", guild)
	xid := d.put(true, []string{guild}, []wire.Entry{x})[0]
	waitFor(t, "both entries delivered", func() bool { return rec.len() == 2 })
	lane := wire.Lane([]byte(guild), 4)
	want := map[string]listener.Delivery{
		fmt.Sprintf("1/%d/%s", lane, id): {
			Type: "MESSAGE_UPDATE", Session: "abcdef012345", GuildID: guild, Listener: "record", Trace: "00-1-2-01",
			Shard: 1, Sequence: 1, Attempt: 1, MaxAttempts: 5, Received: time.UnixMilli(1700000000123),
			Sync: true, Partial: true, Payload: e.Payload, Previous: e.State,
		},
		fmt.Sprintf("1/x%d/%s", lane, xid): {
			Type: "INTERACTION_CREATE", Session: "abcdef012345", GuildID: guild, Listener: "record",
			Shard: 1, Sequence: 2, Attempt: 1, MaxAttempts: 5, Received: time.UnixMilli(x.Received), Payload: x.Payload,
		},
	}
	for _, got := range rec.all() {
		w, ok := want[got.ID]
		if !ok {
			t.Errorf("unexpected delivery %q", got.ID)
			continue
		}
		w.ID = got.ID
		if a, b := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", w); a != b {
			t.Errorf("delivery %s\n got %s\nwant %s", got.ID, a, b)
		}
	}
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	if !w.Owns(guild) {
		t.Errorf("Owns(%s) = false for the only worker", guild)
	}
	if w.Owns("x") {
		t.Error(`Owns("x") = true`)
	}
	w.stop()
	if w.Owns(guild) {
		t.Errorf("Owns(%s) = true after Run", guild)
	}
	for _, key := range d.rdb.Keys(t.Context(), "{"+d.prefix+"*:lease:*").Val() {
		t.Errorf("lease %s is left", key)
	}
	if n := d.rdb.HLen(t.Context(), wire.WorkersKey(d.prefix, "workers")).Val(); n != 0 {
		t.Errorf("%d workers are still listed", n)
	}
	if c := d.rdb.XInfoConsumers(t.Context(), d.stream(guild, false), "workers").Val(); len(c) != 0 {
		t.Errorf("consumers left: %+v", c)
	}
}
