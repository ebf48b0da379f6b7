package replay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// letters returns a group's dead letters of shard 0 once there are n, and nothing
// is pending.
func (d *deployment) letters(group string, n int) (letters []map[string]any) {
	d.t.Helper()
	key := wire.NewShard(d.prefix, 0, d.shards).Dead(group)
	waitFor(d.t, fmt.Sprintf("%d dead letters and nothing pending", n), func() bool {
		return d.rdb.XLen(d.t.Context(), key).Val() == int64(n) && d.pending(group) == 0
	})
	for _, m := range d.rdb.XRange(d.t.Context(), key, "-", "+").Val() {
		m.Values["letter"] = m.ID
		letters = append(letters, m.Values)
	}
	return letters
}

// progress returns the records of shard 0, by entry id.
func (d *deployment) progress(group string) map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for lane := range d.lanes {
		for _, express := range []bool{false, true} {
			key := wire.NewShard(d.prefix, 0, d.shards).Progress(group, lane, express)
			for id, record := range d.rdb.HGetAll(d.t.Context(), key).Val() {
				all[id] = record
			}
		}
	}
	return all
}

var quick = replay.Config{Backoff: time.Millisecond, BackoffMax: time.Millisecond, Lease: time.Second}

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	var bad, discards, broken, good atomic.Int32
	var behind recorder
	r := listener.New()
	r.Add(
		listener.Handle("bad", "#", func(ctx context.Context, e *listener.Delivery) error {
			if e.Sequence > 1 {
				return behind.listen(ctx, e)
			}
			return fmt.Errorf("attempt %d\nof %d", bad.Add(1), e.MaxAttempts)
		}),
		listener.Handle("discards", "message.create", func(context.Context, *listener.Delivery) error {
			return listener.Discard(fmt.Errorf("run %d", discards.Add(1)))
		}),
		listener.Handle("panics", "message.create", func(context.Context, *listener.Delivery) error {
			broken.Add(1)
			panic("oops")
		}).With(listener.Options{MaxAttempts: 2}),
		listener.Handle("good", "#", func(context.Context, *listener.Delivery) error {
			good.Add(1)
			return nil
		}),
	)
	told := make(chan replay.DeadLetter, 1)
	config := quick
	config.MaxDeliveries = 3
	config.OnDead = func(l replay.DeadLetter) { told <- l }
	d.run(r, config)
	e := d.entry("MESSAGE_CREATE", guild)
	e.State, e.Flags, e.Trace, e.Received = []byte(`{"a":1}`), wire.Partial, "00-1-2-01", 1700000000123
	before := time.Now().UnixMilli()
	id := d.put(false, []string{guild}, []wire.Entry{e})[0]
	d.put(false, []string{guild}, []wire.Entry{d.entry("TYPING_START", guild)})
	letter := d.letters("workers", 1)[0]
	waitFor(t, "the entry behind it", func() bool { return behind.len() == 1 })

	var failed int64
	fmt.Sscan(letter["failed"].(string), &failed)
	if failed < before || failed > time.Now().UnixMilli() {
		t.Errorf("failed = %d, want now", failed)
	}
	holder, _ := letter["consumer"].(string)
	if !strings.Contains(holder, "/") {
		t.Errorf("consumer = %q, want the worker's", holder)
	}
	letterID := letter["letter"].(string)
	for _, name := range []string{"failed", "consumer", "letter"} {
		delete(letter, name)
	}
	want := map[string]any{
		"event": "MESSAGE_CREATE", "payload": string(e.Payload), "state": `{"a":1}`, "shard": "0", "sequence": "1",
		"session": "abcdef012345", "received": "1700000000123", "codec": "json", "flags": "partial", "trace": "00-1-2-01", "target": "",
		"id": id, "stream": d.stream(guild, false), "group": "workers", "deliveries": "3", "listeners": "bad,discards,panics",
		"error": "bad: attempt 3\\nof 3\ndiscards: run 1\npanics: listener: panic: oops",
	}
	if diff := cmp.Diff(want, letter); diff != "" {
		t.Errorf("letter (-want +got):\n%s", diff)
	}
	if got := fmt.Sprint(bad.Load(), discards.Load(), broken.Load(), good.Load()); got != "3 1 2 2" {
		t.Errorf("runs = %s, want 3 1 2 2", got)
	}
	if p := d.progress("workers"); len(p) != 0 {
		t.Errorf("progress left: %v", p)
	}
	select {
	case got := <-told:
		want := replay.DeadLetter{
			ID: "0/0/" + id, Letter: letterID, Event: "MESSAGE_CREATE", GuildID: guild, Deliveries: 3,
			Listeners: []string{"bad", "discards", "panics"},
			Errors:    []string{"bad: attempt 3\\nof 3", "discards: run 1", "panics: listener: panic: oops"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("OnDead (-want +got):\n%s", diff)
		}
	case <-time.After(10 * time.Second):
		t.Error("OnDead was not called")
	}

	// The entry's own fields come first, in their order.
	raw, err := d.rdb.Do(t.Context(), "XRANGE", wire.NewShard(d.prefix, 0, 1).Dead("workers"), "-", "+").Slice()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, v := range raw[0].([]any)[1].([]any) {
		if i%2 == 0 {
			names = append(names, v.(string))
		}
	}
	order := append(append([]string(nil), wire.Fields[:]...), "id", "stream", "group", "consumer", "deliveries", "listeners", "error", "failed")
	if diff := cmp.Diff(order, names); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestUndecodableEntriesAreDeadLettersAsTheyAre(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	misdirected := d.entry("MESSAGE_CREATE", guild)
	misdirected.Target = "workers:gone"
	formless := d.entry("MESSAGE_CREATE", guild)
	formless.Target = "workers"
	for _, args := range [][]any{
		{"XADD", stream, "*", "foo", "bar", "foo", "baz"},
		append([]any{"XADD", stream, "*"}, (&wire.Entry{Event: "MESSAGE_CREATE", Payload: []byte{0xc1}, Codec: wire.Msgpack}).AppendArgs(nil)...),
		append([]any{"XADD", stream, "*"}, misdirected.AppendArgs(nil)...),
		append([]any{"XADD", stream, "*"}, formless.AppendArgs(nil)...),
	} {
		if err := d.rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d.post(guild)
	var rec recorder
	d.run(registry("l", "#", rec.listen), quick)
	letters := d.letters("workers", 4)
	for i, want := range []string{
		`entry can't be delivered: not an entry of this format: field "event" is missing`,
		`entry can't be delivered: payload:`,
		`entry can't be delivered: it is for listener "gone"`,
		`entry can't be delivered: its target is "workers"`,
	} {
		if got := letters[i]["error"].(string); !strings.HasPrefix(got, want) {
			t.Errorf("letter %d: error = %q, want %q", i, got, want)
		}
		if got := letters[i]["listeners"]; got != "" {
			t.Errorf("letter %d: listeners = %q, want none", i, got)
		}
	}
	if letters[1]["payload"] != "\xc1" {
		t.Errorf("payload = %q, want the bytes as they were", letters[1]["payload"])
	}
	if rec.len() != 1 {
		t.Errorf("%d deliveries, want the good entry", rec.len())
	}
	raw, err := d.rdb.Do(t.Context(), "XRANGE", wire.NewShard(d.prefix, 0, 1).Dead("workers"), "-", "+", "COUNT", 1).Slice()
	if err != nil {
		t.Fatal(err)
	}
	if fields := raw[0].([]any)[1].([]any); fmt.Sprint(fields[:4]) != "[foo bar foo baz]" {
		t.Errorf("fields = %v, want the entry's own first", fields)
	}
}

func TestDeadLettersAreBounded(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	key := wire.NewShard(d.prefix, 0, 1).Dead("workers")
	old := fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli()) + "-0"
	if err := d.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: old, Values: []any{"event", "OLD"}}).Err(); err != nil {
		t.Fatal(err)
	}
	config := quick
	config.Lease = 200 * time.Millisecond
	config.DeadLength, config.DeadAge = 5, 30*time.Minute
	d.run(registry("l", "#", func(context.Context, *listener.Delivery) error { return listener.Discard(errors.New("no")) }), config)
	waitFor(t, "the old one to go without a new one", func() bool { return d.rdb.XLen(t.Context(), key).Val() == 0 })
	var last string
	for range 20 {
		last = d.post(guild)
	}
	letters := d.letters("workers", 5)
	if got := letters[4]["id"]; got != last {
		t.Errorf("the last letter is of %v, want %s", got, last)
	}
}

// A trimmed entry is a dead letter of what the worker has in memory.
func TestADeadLetterOfATrimmedEntry(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	hold := make(chan struct{})
	begun := make(chan struct{})
	d.run(registry("l", "#", func(context.Context, *listener.Delivery) error {
		close(begun)
		<-hold
		return listener.Discard(errors.New("no"))
	}), quick)
	e := d.entry("MESSAGE_CREATE", guild)
	e.State, e.Flags = []byte(`{"a":1}`), wire.Sync|wire.Slim
	d.put(false, []string{guild}, []wire.Entry{e})
	<-begun
	d.rdb.XTrimMaxLen(t.Context(), d.stream(guild, false), 0)
	close(hold)
	letter := d.letters("workers", 1)[0]
	got, err := wire.Decode(letter)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

func TestRedrivenEntriesRunOnlyWhereTheyAreFor(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	var mu sync.Mutex
	runs := map[string]string{}
	listen := func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		runs[fmt.Sprint(e.Sequence)] += e.Listener + " "
		return nil
	}
	r := listener.New()
	for _, name := range []string{"a", "b", "c"} {
		r.Add(listener.Handle(name, "#", listen))
	}
	var guilds []string
	var entries []wire.Entry
	for _, target := range []string{"workers:b", "workers:c,a,a", "other:a", "workers:", ""} {
		e := d.entry("MESSAGE_CREATE", guild)
		e.Target = target
		guilds, entries = append(guilds, guild), append(entries, e)
	}
	d.put(false, guilds, entries)
	config := quick
	config.Concurrency = 1
	d.run(r, config)
	waitFor(t, "the last", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs["5"]) == 6 && d.pending("workers") == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for seq, want := range map[string]int{"1": 2, "2": 4, "3": 0, "4": 6, "5": 6} {
		if got := runs[seq]; len(got) != want || seq == "1" && got != "b " || strings.Contains(got, "b") && seq == "2" {
			t.Errorf("target %q ran listeners %q", entries[seq[0]-'1'].Target, got)
		}
	}
}
