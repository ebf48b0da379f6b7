package forward_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// through returns a client that goes through a proxy.
func through(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestScenario041LostReplies(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		lose func(p *redistest.Proxy)
	}{
		{"lost after execution", func(p *redistest.Proxy) { p.DropReply([]byte("\r\nEXEC\r\n"), 1) }},
		{"lost before execution", func(p *redistest.Proxy) { p.DropRequest([]byte("\r\nEXEC\r\n"), 1) }},
		{"lost after execution, thrice", func(p *redistest.Proxy) { p.DropReply([]byte("\r\nEXEC\r\n"), 3) }},
		{"everything cut", func(p *redistest.Proxy) { p.CutAll() }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Addr(t))
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
			const n = 40
			err := forward.Hold(t.Context(), through(t, proxy.Addr()), cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
				if err := take(ready("s")); err != nil {
					return err
				}
				for seq := int64(2); seq <= n; seq++ {
					if seq%10 == 5 {
						if err := settled(ctx, h, seq-1); err != nil {
							return err
						}
						test.lose(proxy)
					}
					if err := take(message("s", seq, int(seq%5), "hello")); err != nil {
						return err
					}
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
			counts := proxy.Counts()
			if counts.DroppedReplies+counts.DroppedRequests+counts.Cut == 0 {
				t.Error("nothing was lost: the test proves nothing")
			}
		})
	}
}

// TestFenceRaised takes the shard away between two commits.
func TestFenceRaised(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if err := errors.Join(take(ready("s")), settled(ctx, h, 1)); err != nil {
			return err
		}
		if err := rdb.HSet(ctx, keys.Session(), wire.SessionFence, "another").Err(); err != nil {
			return err
		}
		if err := take(message("s", 2, 1, "late")); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, forward.ErrFenced) {
		t.Errorf("the tenure ended with %v, want %v", err, forward.ErrFenced)
	}
	if diff := cmp.Diff(upTo(1), sequences(entries(t, rdb, cfg.Prefix))); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
	if n, err := rdb.Exists(t.Context(), keys.Cache("message:77:0")).Result(); err != nil || n != 0 {
		t.Errorf("the cache was written to under another's fence (%d, %v)", n, err)
	}
}

// TestRecordTouched writes to the record without changing fence or number: the
// commit is refused, and sent again.
func TestRecordTouched(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	err := forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		if err := errors.Join(take(ready("s")), settled(ctx, h, 1)); err != nil {
			return err
		}
		for seq := int64(2); seq <= 5; seq++ {
			if err := rdb.HSet(ctx, wire.NewShard(cfg.Prefix, 0, 1).Session(), "note", seq).Err(); err != nil {
				return err
			}
			if err := errors.Join(take(message("s", seq, 1, "x")), settled(ctx, h, seq)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(upTo(5), sequences(entries(t, rdb, cfg.Prefix))); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
}

// TestWentBack lets Redis forget commits it had confirmed: the shard drops what
// it holds and resumes from what the record now says.
func TestWentBack(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		back func(ctx context.Context, rdb *redis.Client, key string) error
		want gateway.Session // what the next connection resumes
	}{
		{"a lower commit", func(ctx context.Context, rdb *redis.Client, key string) error {
			return rdb.HSet(ctx, key, wire.SessionCommit, 1, wire.SessionSequence, 1).Err()
		}, gateway.Session{ID: "s", ResumeURL: "wss://resume.example", Sequence: 1}},
		{"no record", func(ctx context.Context, rdb *redis.Client, key string) error {
			return rdb.Del(ctx, key).Err()
		}, gateway.Session{}},
		{"nothing at all", func(ctx context.Context, rdb *redis.Client, key string) error {
			prefix, _, _ := strings.Cut(strings.TrimPrefix(key, "{"), ":")
			all := append(rdb.Keys(ctx, strings.TrimSuffix(key, "session")+"*").Val(), wire.TopologyKey(prefix))
			return rdb.Del(ctx, all...).Err()
		}, gateway.Session{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
			var sessions []gateway.Session
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var run forward.Source = func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
				sessions = append(sessions, h.Session)
				if len(sessions) > 1 {
					defer cancel()
					if h.Session.ID == "" {
						return take(ready("next"))
					}
					return nil
				}
				if err := take(ready("s")); err != nil {
					return err
				}
				for seq := int64(2); seq <= 4; seq++ {
					if err := errors.Join(take(message("s", seq, 1, "x")), settled(ctx, h, seq)); err != nil {
						return err
					}
				}
				if err := test.back(ctx, rdb, wire.NewShard(cfg.Prefix, 0, 1).Session()); err != nil {
					return err
				}
				if err := take(message("s", 5, 1, "behind the gap")); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}
			if err := forward.Run(ctx, rdb, cfg, run); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]gateway.Session{{}, test.want}, sessions); diff != "" {
				t.Errorf("sessions to resume (-want +got):\n%s", diff)
			}
			if seqs := sequences(entries(t, rdb, cfg.Prefix)); slices.Contains(seqs, 5) {
				t.Errorf("sequences %v: what came behind the gap was written", seqs)
			}
			if n := rdb.HGet(t.Context(), wire.TopologyKey(cfg.Prefix), "shards").Val(); n != "1" {
				t.Errorf("the topology says %q shards, want it recorded again", n)
			}
			lost := of(entries(t, rdb, cfg.Prefix), wire.EventSessionLost)
			if want := test.want.ID == ""; (len(lost) == lanes) != want {
				t.Errorf("%d notices of a lost session in %d lanes, want them: %v", len(lost), lanes, want)
			}
			for _, e := range lost {
				if !bytes.Contains(e.Payload, []byte(`"sequence":4,"reason":"redis has lost the session record"`)) {
					t.Errorf("notice = %s", e.Payload)
				}
			}
		})
	}
}

// TestWrongTypeAtTakeover waits for a lane that is no stream, and forwards once
// it is gone.
func TestWrongTypeAtTakeover(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	keys := wire.NewShard(cfg.Prefix, 0, 1)
	if err := rdb.Set(t.Context(), keys.Express(2), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	cfg.Logger = logged.logger()
	done := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		done <- forward.Hold(t.Context(), rdb, cfg, func(context.Context, *forward.Held, func(gateway.Dispatch) error) error {
			close(began)
			return nil
		})
	}()
	eventually(t, "the lane is named", func() bool { return strings.Contains(logged.String(), keys.Express(2)) })
	select {
	case <-began:
		t.Error("the shard connects while a lane can't be appended to")
	default:
	}
	if err := rdb.Del(t.Context(), keys.Express(2)).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestWrongTypeInside makes a lane something else between two commits: the other
// lanes' entries stand, and the one that failed goes first once it can.
func TestWrongTypeInside(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("reply lost %v", lost), func(t *testing.T) {
			t.Parallel()
			proxy := redistest.NewProxy(t, redistest.Addr(t))
			rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
			keys := wire.NewShard(cfg.Prefix, 0, 1)
			bad := keys.Stream(wire.Lane([]byte("9001"), lanes))
			err := forward.Hold(t.Context(), through(t, proxy.Addr()), cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
				if err := errors.Join(take(ready("s")), settled(ctx, h, 1)); err != nil {
					return err
				}
				if err := errors.Join(rdb.Rename(ctx, bad, bad+":away").Err(), rdb.Set(ctx, bad, "x", 0).Err()); err != nil && !strings.Contains(err.Error(), "no such key") {
					return err
				}
				if err := rdb.Set(ctx, bad, "x", 0).Err(); err != nil {
					return err
				}
				if lost {
					proxy.DropReply([]byte("\r\nEXEC\r\n"), 1)
				}
				for seq := int64(2); seq <= 9; seq++ {
					if err := take(message("s", seq, int(seq%4), "x")); err != nil {
						return err
					}
				}
				eventually(t, "the stall is told", func() bool {
					err := h.Stalled()
					return err != nil && (strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), bad))
				})
				if err := rdb.Del(ctx, bad).Err(); err != nil {
					return err
				}
				if err := settled(ctx, h, 9); err != nil {
					return err
				}
				if err := h.Stalled(); err != nil {
					t.Errorf("still stalled: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			got := entries(t, rdb, cfg.Prefix)
			want := upTo(9)
			if wire.Lane(nil, lanes) == wire.Lane([]byte("9001"), lanes) {
				want = want[1:] // READY was in the stream that went away
			}
			if diff := cmp.Diff(want, sequences(got)); diff != "" {
				t.Errorf("sequences (-want +got):\n%s", diff)
			}
			inOrder(t, got)
		})
	}
}

// TestScenario069Oversized sends a value that Redis does not take between two small ones.
func TestScenario069Oversized(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--proto-max-bulk-len", "1048576")
	rdb, cfg := server.Client(t), config("big")
	array := `[` + strings.Repeat(`"0123456789",`, 120_000) + `"end"]`
	tests := []struct {
		name, payload string
		event         string
		flags         wire.Flags
		kept          string // in the payload
	}{
		{"slim", `{"id":"9001","name":"large","members":` + array + `}`, "GUILD_CREATE", wire.Slim, `"name":"large"`},
		{"shed", `{"id":"9001","name":"` + strings.Repeat("x", 1<<21) + `"}`, wire.EventDispatchShed, wire.Synthetic, `"sequence":3`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			hold(t, rdb, cfg, ready("s"), message("s", 2, 1, "before"), dispatch("s", 3, "GUILD_CREATE", test.payload), message("s", 4, 1, "after"))
			got := entries(t, rdb, cfg.Prefix)
			if diff := cmp.Diff(upTo(4), sequences(got)); diff != "" {
				t.Fatalf("sequences (-want +got):\n%s", diff)
			}
			inOrder(t, got)
			for _, e := range got {
				if e.Sequence != 3 {
					continue
				}
				if e.Event != test.event || e.Flags != test.flags || !bytes.Contains(e.Payload, []byte(test.kept)) || len(e.Payload) > 1<<20 {
					t.Errorf("entry = %s, flags %q, %d bytes %.80q, want %s, %q, %q", e.Event, e.Flags, len(e.Payload), e.Payload, test.event, test.flags, test.kept)
				}
			}
			// The guild's cache does not keep what was before.
			if v, err := rdb.HGet(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Cache("guild"), "9001").Result(); test.name == "shed" && !errors.Is(err, redis.Nil) {
				t.Errorf("cached guild = %.40q, %v, want none", v, err)
			}
		})
	}
}

// TestTakeoverInFlight raises the fence while a commit is on its way: it must
// not be executed, neither then nor when it arrives.
func TestTakeoverInFlight(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	cfg.OwnerTTL = time.Minute // the first does not see that it is no longer the owner
	gate := newGate(t, redistest.Addr(t), []byte("\r\nEXEC\r\n"))
	first := make(chan error, 1)
	taken := make(chan struct{})
	go func() {
		first <- forward.Hold(t.Context(), through(t, gate.addr()), cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
			if err := errors.Join(take(ready("s")), settled(ctx, h, 1)); err != nil {
				return err
			}
			gate.shut()
			if err := take(message("s", 2, 1, "of the first")); err != nil {
				return err
			}
			select {
			case <-gate.holding:
			case <-ctx.Done():
			}
			close(taken)
			<-ctx.Done()
			return nil
		})
	}()
	<-taken
	// The first stays frozen: its ownership runs out.
	if err := rdb.Del(t.Context(), wire.NewShard(cfg.Prefix, 0, 1).Owner()).Err(); err != nil {
		t.Fatal(err)
	}
	second := hold(t, rdb, cfg, message("s", 2, 1, "of the second"))
	if want := (gateway.Session{ID: "s", ResumeURL: "wss://resume.example", Sequence: 1}); second.Session != want {
		t.Errorf("the second resumes %+v, want %+v", second.Session, want)
	}
	gate.open()
	if err := <-first; !errors.Is(err, forward.ErrFenced) {
		t.Errorf("the first ended with %v, want %v", err, forward.ErrFenced)
	}
	got := entries(t, rdb, cfg.Prefix)
	if diff := cmp.Diff(upTo(2), sequences(got)); diff != "" {
		t.Fatalf("sequences (-want +got):\n%s", diff)
	}
	for _, e := range got {
		if e.Sequence == 2 && !bytes.Contains(e.Payload, []byte("of the second")) {
			t.Errorf("sequence 2 is %s", e.Payload)
		}
	}
}

// A gate is a proxy that can hold back what a client sends, from the first
// write with match on.
type gate struct {
	listener net.Listener
	match    []byte
	holding  chan struct{} // closed when something is held

	mu      sync.Mutex
	barrier chan struct{} // nil: open
	once    sync.Once
}

func newGate(t testing.TB, target string, match []byte) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, match: match, holding: make(chan struct{})}
	var links sync.WaitGroup
	links.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			links.Go(func() { g.copy(server, client, true) })
			links.Go(func() { g.copy(client, server, false) })
		}
	})
	t.Cleanup(func() {
		g.open()
		l.Close()
		links.Wait()
	})
	return g
}

func (g *gate) addr() string { return g.listener.Addr().String() }

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.barrier = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.barrier != nil {
		close(g.barrier)
		g.barrier = nil
	}
}

func (g *gate) copy(to, from net.Conn, requests bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		g.mu.Lock()
		barrier := g.barrier
		g.mu.Unlock()
		if requests && barrier != nil && bytes.Contains(buf[:n], g.match) {
			g.once.Do(func() { close(g.holding) })
			<-barrier
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
