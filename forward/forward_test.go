package forward_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	cfg := forward.Config{
		Prefix: "a{b", ShardIDs: []int{7}, Codec: "bson", Events: []string{"a..b"}, MaxLength: -1, Keep: -1,
	}
	_, err := forward.New(nil, gateway.Config{}, cfg)
	if err == nil {
		t.Fatal("New succeeded")
	}
	for _, want := range []string{`"a{b"`, "topology", "shard id is 7", `"bson"`, "a..b", "max length is -1", "keep is -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	cfg.Events = []string{"message.*", "READY"}
	hold(t, rdb, cfg, ready("s"), message("s", 2, 1, "x"), dispatch("s", 3, "TYPING_START", `{"guild_id":"9001"}`),
		dispatch("s", 4, "GUILD_ROLE_CREATE", `{"guild_id":"9001","role":{"id":"5","name":"r"}}`), dispatch("s", 5, "MESSAGE_DELETE", `{"id":"1435000000000000002","channel_id":"77","guild_id":"9001"}`))
	got := entries(t, rdb, cfg.Prefix)
	if diff := cmp.Diff([]int64{1, 2, 5}, sequences(got)); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
	for _, e := range of(got, "MESSAGE_DELETE") {
		if !strings.Contains(string(e.State), `"content":"x"`) {
			t.Errorf("state = %q, want the message", e.State)
		}
	}
	// The cache and the sequence know of the others too.
	if role, err := rdb.HGet(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Cache("role:9001"), "5").Result(); err != nil || role != `{"id":"5","name":"r"}` {
		t.Errorf("cached role = %q, %v", role, err)
	}
	if seq := record(t, rdb, cfg.Prefix)[wire.SessionSequence]; seq != "5" {
		t.Errorf("recorded sequence = %s, want 5", seq)
	}
}

func TestMaxPayload(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	cfg.MaxPayload = 1000
	members := `[` + strings.Repeat(`{"user":{"id":"1"}},`, 100) + `{"user":{"id":"2"}}]`
	hold(t, rdb, cfg, ready("s"), dispatch("s", 2, "GUILD_CREATE", `{"id":"9001","name":"g","roles":[{"id":"3"}],"members":`+members+`}`))
	for _, e := range of(entries(t, rdb, cfg.Prefix), "GUILD_CREATE") {
		if want := `{"id":"9001","name":"g","roles":[{"id":"3"}]}`; string(e.Payload) != want || e.Flags != wire.Slim {
			t.Errorf("payload = %s, flags %q, want %s, slim", e.Payload, e.Flags, want)
		}
	}
	if n, err := rdb.HLen(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Cache("member:9001")).Result(); err != nil || n != 2 {
		t.Errorf("%d members cached (%v), want 2", n, err)
	}
}

// TestBufferBlocks holds Redis back: the reader is stopped when the buffer is
// full, and everything arrives once Redis goes on.
func TestBufferBlocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, cfg := server.Client(t), config("buffer")
	cfg.BufferBytes = 64 << 10
	cfg.OwnerTTL = time.Minute
	const n = 2000
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if err := errors.Join(take(ready("s")), settled(ctx, h, 1)); err != nil {
			return err
		}
		server.Pause(t)
		blocked := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			for seq := int64(2); seq <= n; seq++ {
				begun := time.Now()
				if err := take(message("s", seq, int(seq%7), strings.Repeat("x", 500))); err != nil {
					done <- err
					return
				}
				if time.Since(begun) > 50*time.Millisecond {
					select {
					case <-blocked:
					default:
						close(blocked)
					}
				}
			}
			done <- nil
		}()
		select {
		case err := <-done:
			t.Errorf("2,000 dispatches of 500 bytes went into a buffer of 64 KiB (%v)", err)
		case <-time.After(200 * time.Millisecond):
		}
		server.Continue(t)
		if err := <-done; err != nil {
			return err
		}
		return settled(ctx, h, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	got := entries(t, rdb, cfg.Prefix)
	if diff := cmp.Diff(upTo(n), sequences(got)); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
	inOrder(t, got)
}

func TestOwnership(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, _ *forward.Held, _ func(gateway.Dispatch) error) error {
		// It is renewed for as long as the shard is held...
		deadline := time.Now().Add(2 * cfg.OwnerTTL)
		for time.Now().Before(deadline) {
			if owner, err := rdb.Get(ctx, keys.Owner()).Result(); err != nil {
				t.Errorf("owner = %q, %v", owner, err)
				break
			}
		}
		// ...not taken over by another process...
		standby, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		err := forward.Hold(standby, rdb, cfg, func(context.Context, *forward.Held, func(gateway.Dispatch) error) error {
			t.Error("two processes hold the shard")
			return nil
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the standby ended with %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// ...and given back at the end.
	if owner, err := rdb.Get(t.Context(), keys.Owner()).Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("owner after the end = %q, %v", owner, err)
	}
}

// TestOwnerGone ends a tenure whose owner key is another process's, also when
// nothing is to be committed.
func TestOwnerGone(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, _ *forward.Held, _ func(gateway.Dispatch) error) error {
		if err := rdb.Set(ctx, keys.Owner(), "another", 0).Err(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, forward.ErrFenced) {
		t.Errorf("the tenure ended with %v, want %v", err, forward.ErrFenced)
	}
	if owner := rdb.Get(t.Context(), keys.Owner()).Val(); owner != "another" {
		t.Errorf("owner = %q: it closed what is another's", owner)
	}
}

func TestEstablish(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	ctx := t.Context()
	recommend := func(n int) func(context.Context) (int, error) {
		return func(context.Context) (int, error) { return n, nil }
	}
	unreachable := func(context.Context) (int, error) { return 0, errors.New("discord is away") }
	if _, err := forward.Establish(ctx, rdb, forward.Plan{Prefix: prefix, Application: "1", Recommend: unreachable}); err == nil {
		t.Error("a topology was recorded without a number of shards")
	}
	first, err := forward.Establish(ctx, rdb, forward.Plan{Prefix: prefix, Application: "1", Recommend: recommend(3)})
	if err != nil || first.Shards != 3 || first.Lanes != 8 {
		t.Fatalf("Establish = %+v, %v, want 3 shards of 8 lanes", first, err)
	}
	for _, plan := range []forward.Plan{
		{Application: "1", Recommend: recommend(5)}, {Application: "1", Recommend: unreachable}, {Application: "1", Shards: 3}, {Application: "1", Shards: 3, Lanes: 2},
	} {
		plan.Prefix = prefix
		if again, err := forward.Establish(ctx, rdb, plan); err != nil || again != first {
			t.Errorf("Establish(%+v) = %+v, %v, want what is recorded", plan, again, err)
		}
	}
	var refused *forward.TopologyError
	_, err = forward.Establish(ctx, rdb, forward.Plan{Prefix: prefix, Application: "1", Shards: 4})
	if !errors.As(err, &refused) || refused.Recorded != "3" || refused.Wanted != "4" || !strings.Contains(err.Error(), "sluice topology") {
		t.Errorf("another number of shards: %v", err)
	}
	_, err = forward.Establish(ctx, rdb, forward.Plan{Prefix: prefix, Application: "2", Shards: 3})
	if !errors.As(err, &refused) || refused.What != "application" {
		t.Errorf("another application: %v", err)
	}
}

// TestTrim keeps what a group has not acknowledged, and what is young; the hard
// bounds take the oldest of everything.
func TestTrim(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		set    func(*forward.Config)
		group  bool // reads all
		ack    bool
		remain func(n int64) bool
	}{
		{"acknowledged and old", func(c *forward.Config) { c.Keep = time.Millisecond }, true, true, func(n int64) bool { return n < 500 }},
		{"acknowledged and young", func(c *forward.Config) {}, true, true, func(n int64) bool { return n == 2000 }},
		{"not acknowledged", func(c *forward.Config) { c.Keep = time.Millisecond }, true, false, func(n int64) bool { return n == 2000 }},
		{"no group", func(c *forward.Config) { c.Keep = time.Millisecond }, false, false, func(n int64) bool { return n == 2000 }},
		{"over max length", func(c *forward.Config) { c.MaxLength = 500 }, true, false, func(n int64) bool { return n <= 500+100*2*lanes }},
		{"over max bytes", func(c *forward.Config) { c.MaxBytes = 100_000 }, false, false, func(n int64) bool { return n < 1200 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
			keys := wire.NewShard(cfg.Prefix, 0, 1)
			cfg.TrimEvery = time.Hour
			all := []gateway.Dispatch{ready("s")}
			for seq := int64(2); seq <= 2000; seq++ {
				all = append(all, message("s", seq, int(seq%50), "x"))
			}
			hold(t, rdb, cfg, all...)
			for lane := range lanes {
				if !test.group {
					break
				}
				key := keys.Stream(lane)
				if err := rdb.XGroupCreate(t.Context(), key, "g", "0").Err(); err != nil {
					t.Fatal(err)
				}
				read, err := rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key, ">"}, Count: 10_000}).Result()
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range read[0].Messages {
					if test.ack {
						rdb.XAck(t.Context(), key, "g", m.ID)
					}
				}
			}
			length := func() (n int64) {
				for lane := range lanes {
					n += rdb.XLen(t.Context(), keys.Stream(lane)).Val()
				}
				return n
			}
			test.set(&cfg)
			cfg.TrimEvery = 20 * time.Millisecond
			passes := 0
			err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, _ func(gateway.Dispatch) error) error {
				eventually(t, fmt.Sprintf("%s: trimmed", test.name), func() bool {
					passes = h.TrimPasses()
					return test.remain(length()) && passes >= 3
				})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if n := length(); !test.remain(n) {
				t.Errorf("%d entries remain", n)
			}
		})
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	one, other := forward.NewPacer(rdb, prefix, nil), forward.NewPacer(rdb, prefix, nil)
	if err := errors.Join(one.Wait(t.Context(), 0), other.Wait(t.Context(), 1)); err != nil {
		t.Fatal(err) // two buckets do not wait for each other
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := other.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second identify in bucket 0 did not wait: %v", err)
	}
	if err := rdb.Del(t.Context(), wire.IdentifyKey(prefix, 0)).Err(); err != nil {
		t.Fatal(err)
	}
	if err := other.Wait(t.Context(), 0); err != nil {
		t.Errorf("bucket 0 after its time: %v", err)
	}
}

// TestPacerSparesTheLast waits when next to no identifies are left of a day's.
func TestPacerSparesTheLast(t *testing.T) {
	t.Parallel()
	rdb := redistest.Client(t)
	asked := 0
	left := []int{10, 10, 11} // of 1,000, of which 10 are spared
	p := forward.NewPacer(rdb, redistest.Prefix(t), func(context.Context) (int, int, time.Duration, error) {
		asked++
		return left[asked-1], 1000, time.Millisecond, nil
	})
	if err := p.Wait(t.Context(), 0); err != nil || asked != 3 {
		t.Errorf("Wait = %v after %d questions, want nil after 3", err, asked)
	}
	failing := forward.NewPacer(rdb, redistest.Prefix(t), func(context.Context) (int, int, time.Duration, error) {
		return 0, 0, 0, errors.New("discord is away")
	})
	if err := failing.Wait(t.Context(), 0); err != nil {
		t.Errorf("Wait while Discord can't be asked = %v", err)
	}
}
