package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

func TestStops(t *testing.T) {
	t.Parallel()
	t.Run("with its context, closing with 4000", func(t *testing.T) {
		t.Parallel()
		s, h := start(t, gatewaytest.Config{}), &recorder{}
		r := connect(t, s, h, none, nil)
		h.count(t, 1)
		send(t, s, 0, 0, 2000) // on their way
		if err := r.stop(); err != nil {
			t.Fatalf("Run returned %v, want nil", err)
		}
		ok(t, s.WaitCloses(within(t), 1))
		if code := s.Closes()[0].Code; code != 4000 {
			t.Errorf("closed with %d, want 4000", code)
		}
		got := h.count(t, 1)
		next := &recorder{}
		connect(t, s, next, gateway.Session{ID: got[0].SessionID, Sequence: got[len(got)-1].Sequence}, nil)
		same(t, s, append(got, next.last(t, "RESUMED")...))
	})
	t.Run("with its context while the handler blocks", func(t *testing.T) {
		t.Parallel()
		s := start(t, gatewaytest.Config{})
		h := &recorder{onDispatch: func(ctx context.Context, d gateway.Dispatch) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		r := connect(t, s, h, none, nil)
		poll(t, "the handler blocks", func() bool { return r.Status().Blocked })
		if err := r.stop(); err != nil {
			t.Fatalf("Run returned %v, want nil", err)
		}
	})
	t.Run("with the handler's error, closing with 4000", func(t *testing.T) {
		t.Parallel()
		full := errors.New("full")
		s := start(t, gatewaytest.Config{})
		h := &recorder{onDispatch: func(_ context.Context, d gateway.Dispatch) error {
			if d.Sequence == 3 {
				return full
			}
			return nil
		}}
		r := connect(t, s, h, none, nil)
		h.count(t, 1)
		send(t, s, 0, 0, 5)
		if err := <-r.done; !errors.Is(err, full) {
			t.Fatalf("Run returned %v, want %v", err, full)
		}
		ok(t, s.WaitCloses(within(t), 1))
		if code := s.Closes()[0].Code; code != 4000 {
			t.Errorf("closed with %d, want 4000", code)
		}
		if st := r.Status(); st.Sequence != 2 || st.Connected {
			t.Errorf("status %+v, want sequence 2, the last that was taken", st)
		}
	})
	t.Run("with the check's error", func(t *testing.T) {
		t.Parallel()
		gone := errors.New("gone")
		for n := 1; n <= 3; n++ { // before the connect, before IDENTIFY, before the next connect
			s := start(t, gatewaytest.Config{})
			h := &recorder{onCheck: func(i int) error {
				if i == n {
					return gone
				}
				return nil
			}}
			r := connect(t, s, h, none, nil)
			if n == 3 {
				h.count(t, 1)
				s.DropConnections()
			}
			if err := <-r.done; !errors.Is(err, gone) {
				t.Errorf("check %d: Run returned %v, want %v", n, err, gone)
			}
			if got := len(s.Identifies()); got != n/3 {
				t.Errorf("check %d: %d identifies", n, got)
			}
			if got := len(s.Resumes()); got != 0 {
				t.Errorf("check %d: %d resumes", n, got)
			}
		}
	})
	t.Run("with the pacer's error", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		s := start(t, gatewaytest.Config{})
		r := connect(t, s, &recorder{}, none, func(c *gateway.Config) { c.Pacer = failingPacer{broken} })
		if err := <-r.done; !errors.Is(err, broken) {
			t.Errorf("Run returned %v, want %v", err, broken)
		}
	})
	t.Run("while it waits for the pacer", func(t *testing.T) {
		t.Parallel()
		s := start(t, gatewaytest.Config{HeartbeatInterval: 20 * time.Millisecond})
		r := connect(t, s, &recorder{}, none, func(c *gateway.Config) {
			p := &gateway.LocalPacer{Interval: time.Hour}
			ok(t, p.Wait(t.Context(), 0))
			c.Pacer = p
		})
		ok(t, s.WaitReceived(within(t), 1, 3)) // heartbeats go out meanwhile
		ok(t, r.stop())
	})
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	var logMu sync.Mutex
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	addr := free.Addr().String()
	free.Close()
	shard, err := gateway.New(gateway.Config{
		Token: "token", URL: "ws://" + addr, BackoffMin: time.Millisecond, BackoffMax: 2 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&lockedWriter{mu: &logMu, w: &logged}, nil)),
	}, &recorder{})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		if err := shard.Run(ctx, none); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
	})
	poll(t, "ten dials", func() bool { return shard.Status().Failures >= 10 })
	s := gatewaytest.New(gatewaytest.Config{Addr: addr})
	ok(t, s.Start())
	defer s.Close()
	poll(t, "connected", func() bool { return shard.Status().Connected })
	logMu.Lock()
	defer logMu.Unlock()
	for _, line := range []string{"discord is unreachable", "discord is reachable again", "shard connected"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("%q is in the log %d times, want once:\n%s", line, n, logged.String())
		}
	}
}

func TestRunAgain(t *testing.T) {
	t.Parallel()
	s, h := start(t, gatewaytest.Config{}), &recorder{}
	r := connect(t, s, h, none, nil)
	h.count(t, 1)
	if err := r.Run(t.Context(), none); err == nil {
		t.Error("a second Run beside the first returned nil")
	}
	ok(t, r.stop())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx, none) })
	defer wg.Wait()
	defer cancel()
	if got := h.count(t, 2); got[1].Type != "READY" {
		t.Errorf("the second run began with %s, want READY", got[1].Type)
	}
}

type failingPacer struct{ err error }

func (p failingPacer) Wait(context.Context, int) error { return p.err }
