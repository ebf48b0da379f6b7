package replay_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/replay"
)

// TestScenario001BlockedReadStreamDeleted has the stream go in every way it can
// while the worker is parked in a read of it. It begins again, from 0, and does not
// wait for the read to end.
func TestScenario001BlockedReadStreamDeleted(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second // a read blocks for up to 10s of it
	for name, destroy := range map[string]func(d *deployment, stream string) error{
		"DEL":    func(d *deployment, stream string) error { return d.rdb.Del(d.t.Context(), stream).Err() },
		"UNLINK": func(d *deployment, stream string) error { return d.rdb.Unlink(d.t.Context(), stream).Err() },
		"EXPIRE": func(d *deployment, stream string) error {
			return d.rdb.PExpire(d.t.Context(), stream, 20*time.Millisecond).Err()
		},
		"RENAME": func(d *deployment, stream string) error {
			return d.rdb.Rename(d.t.Context(), stream, stream+":other").Err()
		},
		"FLUSHALL": func(d *deployment, _ string) error { return d.rdb.FlushAll(d.t.Context()).Err() },
		"XGROUP DESTROY": func(d *deployment, stream string) error {
			return d.rdb.XGroupDestroy(d.t.Context(), stream, "workers").Err()
		},
		"SET": func(d *deployment, stream string) error {
			return d.rdb.Set(d.t.Context(), stream, "x", 0).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := deploy(t, server.Addr(), 1, 4)
			d.t = t
			var rec recorder
			w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: lease, Start: "$"})
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			guild := d.guild(0, 1)
			stream := d.stream(guild, false)
			if err := destroy(d, stream); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "EXPIRE":
				// What has run out goes before a parked read is told.
				waitFor(t, "the stream to be made anew", func() bool {
					groups, err := d.rdb.XInfoGroups(t.Context(), stream).Result()
					return err == nil && len(groups) == 1 && d.rdb.PTTL(t.Context(), stream).Val() < 0
				})
			case "SET":
				waitFor(t, "Ready to name the stream", func() bool {
					err := w.Ready()
					return err != nil && strings.Contains(err.Error(), stream) && strings.Contains(err.Error(), "WRONGTYPE")
				})
				other := d.guild(0, 2)
				for n := 2; d.stream(other, false) == stream; n++ {
					other = d.guild(0, n)
				}
				d.post(other)
				waitFor(t, "another lane's entry", func() bool { return rec.len() == 1 })
				d.rdb.Del(t.Context(), stream)
			}
			before := rec.len()
			began := time.Now()
			for range 3 {
				d.post(guild)
			}
			waitFor(t, "the three entries", func() bool { return rec.len() >= before+3 })
			if took := time.Since(began); took > lease/2 {
				t.Errorf("the entries took %v: they waited for a read to end", took)
			}
			waitFor(t, "ready again", func() bool { return w.Ready() == nil })
			waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
			if n := rec.len(); n != before+3 {
				t.Errorf("%d deliveries, want %d", n, before+3)
			}
		})
	}
}

// TestScenario003EnsuredGroupCachePoisoned has the stream deleted and made anew,
// without a group, before the worker can look.
func TestScenario003EnsuredGroupCachePoisoned(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 2)
	guild := d.guild(0, 1)
	var rec recorder
	var log journal
	w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: time.Second, Logger: log.logger()})
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	made, reads := d.calls("xgroup|create"), d.calls("xreadgroup")
	for range 20 {
		want := rec.len() + 5
		_, err := d.rdb.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Del(t.Context(), d.stream(guild, false))
			for range 5 {
				e := d.entry("MESSAGE_CREATE", guild)
				p.Do(t.Context(), e.AppendArgs([]any{"XADD", d.stream(guild, false), "*"})...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the five entries", func() bool { return rec.len() >= want })
	}
	waitFor(t, "ready again", func() bool { return w.Ready() == nil })
	if n := rec.len(); n != 100 {
		t.Errorf("%d deliveries, want 100", n)
	}
	for i, e := range rec.all() {
		if e.Sequence != int64(i+1) {
			t.Fatalf("delivery %d has sequence %d", i+1, e.Sequence)
		}
	}
	if n := d.calls("xgroup|create") - made; n > 80 {
		t.Errorf("%d XGROUP CREATE for 20 lost groups", n)
	}
	if n := d.calls("xreadgroup") - reads; n > 1000 {
		t.Errorf("%d XREADGROUP for 20 lost groups: it spins", n)
	}
	if lines := log.with("impaired"); len(lines) > 20 {
		t.Errorf("%d lines about it: %q", len(lines), lines)
	}
}

// TestScenario005GroupCreatedAtDollar begins groups where they are told to: by
// default with all there is.
func TestScenario005GroupCreatedAtDollar(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	guild := d.guild(0, 1)
	var ids []string
	for i := range 20 {
		if i == 10 { // for what begins at a time
			_, ms := ids[9], time.Now().UnixMilli()
			waitFor(t, "another millisecond", func() bool { return time.Now().UnixMilli() > ms+2 })
		}
		ids = append(ids, d.post(guild))
	}
	var ms int64
	fmt.Sscan(ids[10], &ms)
	for name, test := range map[string]struct {
		start string
		want  []int64 // sequences, of the 20 before the start and the one behind it
	}{
		"default": {"", sequences(1, 21)},
		"zero":    {"0", sequences(1, 21)},
		"dollar":  {"$", sequences(21, 21)},
		"id":      {ids[4], sequences(6, 21)},
		"time":    {time.UnixMilli(ms).UTC().Format(time.RFC3339Nano), sequences(11, 21)},
	} {
		t.Run(name, func(t *testing.T) {
			d := *d // subtests run before the cleanup of d
			d.t = t
			var rec recorder
			w := d.run(registry("l", "#", rec.listen), replay.Config{Group: name, Start: test.start, Lease: time.Second})
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			e := d.entry("MESSAGE_CREATE", guild)
			e.Sequence = 21
			last := d.put(false, []string{guild}, []wire.Entry{e})[0]
			defer d.rdb.XDel(t.Context(), d.stream(guild, false), last)
			waitFor(t, "the last", func() bool {
				all := rec.all()
				return len(all) > 0 && all[len(all)-1].Sequence == 21
			})
			var got []int64
			for _, e := range rec.all() {
				got = append(got, e.Sequence)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("sequences %v, want %v", got, test.want)
			}
		})
	}
}

func sequences(first, last int64) (all []int64) {
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

// A group that is made again, of a lane that another worker has had before, passes
// over nothing either, also if it was to begin at "$".
func TestALostGroupBeginsWithEverythingWhoeverHadIt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 8)
	var rec recorder
	config := replay.Config{Lease: 500 * time.Millisecond, Start: "$"}
	proxy := redistest.NewProxy(t, d.addr)
	a := d.runAt(proxy.Addr(), registry("l", "#", rec.listen), config)
	b := d.run(registry("l", "#", rec.listen), config)
	waitFor(t, "both ready", func() bool { return a.Ready() == nil && b.Ready() == nil })
	// The second has its lanes, and will have the first one's, which it never had.
	held := d.holders("workers")
	if len(held) != 2 {
		t.Fatalf("holders %v, want two", held)
	}
	proxy.Down() // the first has died, and its groups go with their streams:
	var streams []string
	for lane := range 8 {
		streams = append(streams, wire.NewShard(d.prefix, 0, 1).Stream(lane))
	}
	posted := 0
	_, err := d.rdb.TxPipelined(context.WithoutCancel(t.Context()), func(p redis.Pipeliner) error {
		p.Del(t.Context(), streams...)
		for g := range 40 {
			e := d.entry("MESSAGE_CREATE", d.guild(0, g))
			p.Do(t.Context(), e.AppendArgs([]any{"XADD", d.stream(d.guild(0, g), false), "*"})...)
			posted++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all that came after the loss", func() bool { return rec.len() >= posted && d.pending("workers") == 0 })
	if n := rec.len(); n != posted {
		t.Errorf("%d deliveries, want %d", n, posted)
	}
}
