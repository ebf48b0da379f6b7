package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// What a worker gave up goes to the listeners that failed, and to no other.
func TestRetriedLettersRunOnlyWhatFailed(t *testing.T) {
	t.Parallel()
	rdb, prefix, flags := deployment(t)
	var mu sync.Mutex
	runs := map[string]int{}
	fixed := false
	listen := func(_ context.Context, d *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		runs[d.Listener]++
		if d.Listener == "bad" && !fixed {
			return listener.Discard(errors.New("not yet"))
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel()
	for _, group := range []string{"workers", "other"} {
		r := listener.New()
		for _, name := range []string{"good", "bad"} {
			if group == "other" {
				name = "other-" + name
			}
			r.Add(listener.Handle(name, "#", listen))
		}
		w, err := replay.New(redis.NewClient(rdb.Options()), r, replay.Config{Prefix: prefix, Group: group, Lease: time.Second, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		workers.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Errorf("Run of group %s = %v", group, err)
			}
		})
	}
	shard := wire.NewShard(prefix, 0, 2)
	for i := range 3 {
		e := wire.Entry{Event: "MESSAGE_CREATE", Payload: []byte(`{"guild_id":"8388608"}`), Codec: wire.JSON, Sequence: int64(i + 1)}
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: shard.Stream(0), Values: e.AppendArgs(nil)}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	eventually := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within 20s: %s; runs are %v", what, runs)
			}
		}
	}
	settled := func(want string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(runs) == want
		}
	}
	eventually("three letters", func() bool { return rdb.XLen(t.Context(), shard.Dead("workers")).Val() == 3 })
	eventually("the other group", settled("map[bad:3 good:3 other-bad:3 other-good:3]"))
	mu.Lock()
	fixed = true
	mu.Unlock()
	var stdout, stderr output
	if code := run(t.Context(), append([]string{"dead", "retry", "--all"}, flags...), strings.NewReader(""), &stdout, &stderr); code != 0 {
		t.Fatalf("code %d: %s", code, stderr.String())
	}
	if !strings.Contains(stdout.String(), "3 letters of group workers") {
		t.Errorf("it says %q", stdout.String())
	}
	eventually("the failed listener's runs", settled("map[bad:6 good:3 other-bad:3 other-good:3]"))
	eventually("nothing pending or left", func() bool {
		left := rdb.XLen(t.Context(), shard.Dead("workers")).Val()
		for _, group := range []string{"workers", "other"} {
			left += rdb.XPending(t.Context(), shard.Stream(0), group).Val().Count
		}
		return left == 0
	})
	if !settled("map[bad:6 good:3 other-bad:3 other-good:3]")() {
		t.Errorf("runs = %v", runs)
	}
}
