package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/proctest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// full makes the tests of this file do what a release is held to; without it
// they do a part of it.
var full = flag.Bool("full", false, "kill more often, at higher rates (some minutes)")

// stream sends dispatches to shard 0 until ctx ends, and returns how many: edits
// of messages whose previous content says which edit was the one before.
func stream(ctx context.Context, t *testing.T, discord *gatewaytest.Server, rate int) (sent int) {
	t.Helper()
	const guilds, channels = 40, 3
	edits := make(map[int]int)
	tick := time.NewTicker(time.Second / 100)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return sent
		case <-tick.C:
		}
		for range max(rate/100, 1) {
			n++
			guild, channel := n%guilds, n%channels
			message := guild*channels + channel
			eventType := "MESSAGE_UPDATE"
			if edits[message] == 0 {
				eventType = "MESSAGE_CREATE"
			}
			edits[message]++
			payload := fmt.Sprintf(`{"id":"%d","channel_id":"%d","guild_id":"%d","content":"%d"}`,
				1_435_000_000_000_000_000+message, 2000+message, 9000+guild, edits[message])
			if _, err := discord.Send(0, eventType, []byte(payload)); err != nil {
				t.Errorf("send: %v", err)
				return sent
			}
			sent++
		}
	}
}

// exactlyOnce holds the streams against what Discord sent, and each edit's
// previous content against the edit before it.
func (r *run) exactlyOnce(t *testing.T) {
	t.Helper()
	type place struct {
		session  string
		sequence int64
	}
	at := func(s gatewaytest.Sent) place { return place{wire.ShortSession(s.Session), s.Sequence} }
	// A RESUMED may be sent meanwhile: what is sent before the look must be
	// there, what is there must be sent.
	due := r.discord.Sent()
	entries := r.entries(t)
	sent := make(map[place]gatewaytest.Sent)
	for _, s := range r.discord.Sent() {
		sent[at(s)] = s
	}
	seen := make(map[place]bool)
	last := make(map[string]int64)
	for _, e := range entries {
		if e.Sequence == 0 {
			t.Errorf("a notice: %s %s", e.Event, e.Payload)
			continue
		}
		p := place{e.Session, e.Sequence}
		s, ok := sent[p]
		if !ok || seen[p] {
			t.Fatalf("entry %s of %s (%s, sequence %d): sent %v, twice %v", e.id, e.stream, e.Event, e.Sequence, ok, seen[p])
		}
		seen[p] = true
		if e.Sequence <= last[e.stream] {
			t.Errorf("%s holds sequence %d behind %d", e.stream, e.Sequence, last[e.stream])
		}
		last[e.stream] = e.Sequence
		if s.Type != "MESSAGE_UPDATE" {
			continue
		}
		if string(e.Payload) != string(s.Data) {
			t.Errorf("sequence %d is not what was sent", e.Sequence)
		}
		var now, before struct {
			Content int `json:",string"`
		}
		unmarshal(t, e.Payload, &now)
		unmarshal(t, e.State, &before)
		if before.Content != now.Content-1 {
			t.Errorf("sequence %d: before edit %d stands edit %d", e.Sequence, now.Content, before.Content)
		}
	}
	missing := 0
	for _, s := range due {
		if !seen[at(s)] {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d dispatches are not in the streams", missing, len(due))
	}
}

// begin connects a gateway and streams to it until stop is called.
func (r *run) begin(t *testing.T, rate int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if err := r.discord.WaitConnected(ctx, 0); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		stream(ctx, t, r.discord, rate)
	}()
	return func() {
		cancel()
		<-done
	}
}

// traffic waits until n dispatches more are sent.
func (r *run) traffic(t *testing.T, n int) {
	t.Helper()
	want := r.discord.SentCount() + n
	proctest.Eventually(t, "there is traffic", func() bool { return r.discord.SentCount() >= want })
}

// drained waits until everything that was sent is in the streams.
func (r *run) drained(t *testing.T) {
	t.Helper()
	proctest.Eventually(t, "everything is in the streams", func() bool { return r.length(t) >= r.discord.SentCount() })
}

func newViolence(t *testing.T, redisAddr string) *run {
	t.Helper()
	return newViolenceAt(t, redisAddr, time.Second)
}

func newViolenceAt(t *testing.T, redisAddr string, heartbeat time.Duration) *run {
	t.Helper()
	discord := gatewaytest.New(gatewaytest.Config{HeartbeatInterval: heartbeat})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { rdb.Close() })
	r := &run{discord: discord, rdb: rdb, prefix: redistest.Prefix(t), shards: 1, lanes: wire.DefaultLanes(1)}
	// Nothing is to be trimmed, nothing to expire: everything is counted.
	r.flags = []string{"--redis.url=redis://" + redisAddr + "/0", "--redis.prefix=" + r.prefix, "--forward.max_length=10000000", "--forward.max_bytes=16GiB",
		"--replay.expire=INTERACTION_CREATE=0,TYPING_START=0"}
	return r
}

// TestGatewayKilledOften kills the gateway at random moments and starts it again
// at once.
func TestGatewayKilledOften(t *testing.T) {
	t.Parallel()
	kills, rates := 3, []int{500}
	if *full {
		kills, rates = 20, []int{500, 5000}
	}
	for _, rate := range rates {
		t.Run(fmt.Sprintf("%d a second", rate), func(t *testing.T) {
			t.Parallel()
			r := newViolence(t, redistest.Start(t, "--appendonly", "yes").Addr())
			p := r.gateway(t)
			stop := r.begin(t, rate)
			for range kills {
				time.Sleep(time.Duration(200+rand.IntN(800)) * time.Millisecond) // a random moment
				resumes := len(r.discord.Resumes())
				p.Kill()
				p = r.gateway(t)
				if err := r.discord.WaitResumes(t.Context(), resumes+1); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			r.drained(t)
			r.exactlyOnce(t)
			if i, n := len(r.discord.Identifies()), len(r.discord.Resumes()); i != 1 || n < kills {
				t.Errorf("%d identifies and %d resumes, want 1 and at least %d", i, n, kills)
			}
			t.Logf("%d dispatches, %d kills", r.discord.SentCount(), kills)
		})
	}
}

// TestStandby kills the holder of two, and freezes it: the other resumes, and the
// one that wakes writes nothing.
func TestStandby(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := newViolence(t, redistest.Addr(t))
			holder := r.gateway(t)
			stop := r.begin(t, 500)
			standby := r.gateway(t)
			proctest.Eventually(t, "the second stands by", func() bool { return standby.Contains("standing by") })
			r.traffic(t, 200)
			begun := time.Now()
			if err := holder.Cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := r.discord.WaitResumes(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			if sig == syscall.SIGSTOP {
				frozen := 6 * time.Second
				if *full {
					frozen = 15 * time.Second
				}
				time.Sleep(frozen - took) // the other works meanwhile
				holder.Cmd.Process.Signal(syscall.SIGCONT)
				proctest.Eventually(t, "the woken one knows that it has lost the shard", func() bool { return holder.Contains("lost the shard") })
			}
			r.traffic(t, 200)
			stop()
			r.drained(t)
			r.exactlyOnce(t)
			if n := len(r.discord.Identifies()); n != 1 {
				t.Errorf("%d identifies, want 1", n)
			}
			if sig == syscall.SIGTERM {
				if code := holder.Wait(t); code != 0 {
					t.Errorf("exit code %d, want 0", code)
				}
				for _, c := range r.discord.Closes() {
					if c.Code == 1000 || c.Code == 1001 {
						t.Errorf("closed with %d: that ends the session", c.Code)
					}
				}
			}
			t.Logf("%v: resumed by the other after %v", sig, took.Round(time.Millisecond))
		})
	}
}

// TestRedisKilled kills Redis and starts it again with what it has on disk, under
// load.
func TestRedisKilled(t *testing.T) {
	t.Parallel()
	kills := 2
	if *full {
		kills = 10
	}
	for _, fsync := range []string{"always", "everysec"} {
		t.Run("appendfsync "+fsync, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", fsync)
			r := newViolence(t, server.Addr())
			r.gateway(t)
			stop := r.begin(t, 500)
			for range kills {
				time.Sleep(time.Duration(300+rand.IntN(1000)) * time.Millisecond) // a random moment
				server.Kill()
				server.Restart(t)
				proctest.Eventually(t, "redis answers", func() bool { return r.rdb.Ping(t.Context()).Err() == nil })
			}
			r.traffic(t, 200)
			stop()
			r.drained(t)
			r.exactlyOnce(t)
			if n := len(r.discord.Identifies()); n != 1 {
				t.Errorf("%d identifies, want 1", n)
			}
			t.Logf("%d dispatches, %d kills, %d resumes", r.discord.SentCount(), kills, len(r.discord.Resumes()))
		})
	}
}
