package replay_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/replay"
)

// TestScenario007BlockExtendedBySibling has other readers of the group, as frozen
// former owners have them, take each entry before the worker: Redis up to 7.2 then
// begins the worker's time of blocking anew, and its answer is overdue.
func TestScenario007BlockExtendedBySibling(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	if err := d.rdb.XGroupCreateMkStream(t.Context(), stream, "workers", "0").Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for range 5 {
		rdb := redis.NewClient(&redis.Options{Addr: d.addr, ReadTimeout: -1})
		go func() {
			defer func() { rdb.Close(); ended <- struct{}{} }()
			for ctx.Err() == nil {
				rdb.Do(ctx, "XREADGROUP", "GROUP", "workers", "sibling", "COUNT", 1, "BLOCK", 300, "STREAMS", stream, ">")
			}
		}()
	}
	var rec recorder
	var log journal
	w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: 600 * time.Millisecond, Logger: log.logger()})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	const total = 60
	for range total {
		d.post(guild)
		time.Sleep(50 * time.Millisecond) // between the entries, so that the readers park again
		waitFor(t, "ready while siblings take entries", func() bool { return w.Ready() == nil })
	}
	cancel()
	for range 5 {
		<-ended
	}
	waitFor(t, "all delivered and acked", func() bool { return rec.len() >= total && d.pending("workers") == 0 })
	if n := rec.len(); n != total {
		t.Errorf("%d deliveries, want %d", n, total)
	}
	for i, e := range rec.all() {
		if e.Sequence != int64(i+1) {
			t.Fatalf("delivery %d has sequence %d: what was served to others is to be merged in order", i+1, e.Sequence)
		}
	}
	if lines := log.with("impaired"); len(lines) > 0 {
		t.Errorf("an overdue answer counts as an error: %q", lines)
	}
}

// TestScenario009ZeroBlockMeansForever builds a worker of nothing but defaults and
// stops it without traffic.
func TestScenario009ZeroBlockMeansForever(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 16)
	w := d.run(registry("l", "#", nothing), replay.Config{})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	blocked := func() (n int) {
		for line := range strings.Lines(d.rdb.ClientList(t.Context()).Val()) {
			if strings.Contains(line, "cmd=xreadgroup") && strings.Contains(line, "flags=b") {
				n++
			}
		}
		return n
	}
	waitFor(t, "reads to be parked", func() bool { return blocked() >= 2 })
	began := time.Now()
	w.stop()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("stopping took %v with nothing to do", took)
	}
}

// TestScenario011CancelledReadOwnsEntry cuts connections between the server's answer
// to a read and the worker.
func TestScenario011CancelledReadOwnsEntry(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	proxy := redistest.NewProxy(t, d.addr)
	var rec recorder
	w := d.runAt(proxy.Addr(), registry("l", "#", rec.listen), replay.Config{Lease: time.Second})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	guild := d.guild(0, 1)
	proxy.DropReply([]byte(d.stream(guild, false)+"\r\n$1\r\n>"), 3)
	for range 20 {
		d.post(guild)
		time.Sleep(10 * time.Millisecond)
	}
	waitFor(t, "three dropped replies", func() bool { return proxy.Counts().DroppedReplies >= 3 })
	waitFor(t, "all delivered and acked", func() bool { return rec.len() >= 20 && d.pending("workers") == 0 })
	if n := rec.len(); n != 20 {
		t.Errorf("%d deliveries, want 20", n)
	}
	for i, e := range rec.all() {
		if e.Sequence != int64(i+1) {
			t.Errorf("delivery %d has sequence %d", i+1, e.Sequence)
		}
		if e.Attempt != 1 {
			t.Errorf("sequence %d is attempt %d, want 1: reading is what counts", e.Sequence, e.Attempt)
		}
	}
}

// TestScenario013RestartsExhaustRetries restarts Redis under a parked read until any
// number of retries is used up.
func TestScenario013RestartsExhaustRetries(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	d := deploy(t, server.Addr(), 1, 4)
	var rec recorder
	var log journal
	w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: time.Second, Logger: log.logger()})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	guild := d.guild(0, 1)
	for i := range 8 {
		if i >= 5 { // and with something to do
			d.post(guild)
		}
		server.Kill()
		if i == 2 {
			waitFor(t, "not ready", func() bool { return w.Ready() != nil })
		}
		time.Sleep(200 * time.Millisecond) // the time it is down
		server.Restart(t)
	}
	d.post(guild)
	waitFor(t, "all acked", func() bool {
		seen := map[int64]bool{}
		for _, e := range rec.all() {
			seen[e.Sequence] = true
		}
		return len(seen) == 4 && d.pending("workers") == 0
	})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	if lines := log.with(""); len(lines) > 150 {
		t.Errorf("%d log lines for eight restarts", len(lines))
	}
}

// A read of a former owner's that is parked is served before the new owner's: what
// it took and what the new owner reads go on in order.
func TestFrozenOwnersReadIsTakenOver(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var rec recorder
	w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: time.Second})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	parked := func() (n int) {
		for line := range strings.Lines(d.rdb.ClientList(t.Context()).Val()) {
			if strings.Contains(line, "name="+d.prefix+" ") && strings.Contains(line, "flags=b") {
				n++
			}
		}
		return n
	}
	frozen := redis.NewClient(&redis.Options{Addr: d.addr, ClientName: d.prefix})
	defer frozen.Close()
	for i := range 10 {
		waitFor(t, "what was there to be taken", func() bool { return rec.len() >= 3*i })
		read := make(chan struct{})
		go func() {
			defer close(read)
			frozen.Do(t.Context(), "XREADGROUP", "GROUP", "workers", "frozen", "COUNT", "1", "BLOCK", "2000", "STREAMS", stream, ">")
		}()
		waitFor(t, "the frozen one's read to be parked", func() bool { return parked() == 1 })
		d.put(false, []string{guild, guild, guild}, []wire.Entry{
			d.entry("MESSAGE_CREATE", guild), d.entry("MESSAGE_CREATE", guild), d.entry("MESSAGE_CREATE", guild),
		})
		<-read
	}
	waitFor(t, "all delivered and acked", func() bool { return rec.len() >= 30 && d.pending("workers") == 0 })
	var got []int64
	for _, e := range rec.all() {
		got = append(got, e.Sequence)
	}
	if want := sequences(1, 30); !slices.Equal(got, want) {
		t.Errorf("sequences %v, want %v", got, want)
	}
}
