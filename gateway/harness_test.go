package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A recorder is a handler that keeps what it is given.
type recorder struct {
	mu     sync.Mutex // guards everything below
	got    []gateway.Dispatch
	ended  []string
	checks int
	change chan struct{}

	onCheck    func(n int) error // n from 1
	onDispatch func(ctx context.Context, d gateway.Dispatch) error
	sequence   func(received int64) int64
}

func (r *recorder) Check(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks++
	if r.onCheck != nil {
		return r.onCheck(r.checks)
	}
	return nil
}

func (r *recorder) Dispatch(ctx context.Context, d gateway.Dispatch) error {
	if r.onDispatch != nil {
		if err := r.onDispatch(ctx, d); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, d)
	r.changed()
	return nil
}

func (r *recorder) SessionEnded(_ context.Context, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, reason)
	r.changed()
}

func (r *recorder) Sequence(received int64) int64 {
	if r.sequence != nil {
		return r.sequence(received)
	}
	return received
}

func (r *recorder) changed() {
	if r.change != nil {
		close(r.change)
		r.change = nil
	}
}

// until waits for cond, which is called with r.mu held.
func (r *recorder) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		if r.change == nil {
			r.change = make(chan struct{})
		}
		change, ok := r.change, cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-change:
		case <-timeout.C:
			t.Fatalf("timeout: %s", what)
		}
	}
}

// count waits until n dispatches have come and returns all there are.
func (r *recorder) count(t *testing.T, n int) []gateway.Dispatch {
	t.Helper()
	r.until(t, "dispatches", func() bool { return len(r.got) >= n })
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// last waits until a dispatch of a type is the last one.
func (r *recorder) last(t *testing.T, name string) []gateway.Dispatch {
	t.Helper()
	r.until(t, name, func() bool { return len(r.got) > 0 && r.got[len(r.got)-1].Type == name })
	return r.count(t, 0)
}

// start starts a Discord that lives as long as the test.
func start(t testing.TB, cfg gatewaytest.Config) *gatewaytest.Server {
	t.Helper()
	s := gatewaytest.New(cfg)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client asks once and keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// A runner is a shard that runs.
type runner struct {
	*gateway.Shard
	stop func() error // ends Run and returns its error
	done <-chan error // what it returned by itself
}

// connect runs a shard against a Discord; the test ends it.
func connect(t testing.TB, s *gatewaytest.Server, h gateway.Handler, resume gateway.Session, change func(*gateway.Config)) *runner {
	t.Helper()
	info, err := gateway.Bot(t.Context(), client, s.URL(), "token")
	if err != nil {
		t.Fatal(err)
	}
	cfg := gateway.Config{
		Token: "token", URL: info.URL, Intents: 1<<9 | 1<<15,
		Pacer:      &gateway.LocalPacer{Interval: time.Millisecond},
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
		InvalidSessionWait: 20 * time.Millisecond,
		Logger:             slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	shard, err := gateway.New(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- shard.Run(ctx, resume) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &runner{shard, func() error { cancel(); return <-done }, done}
}

// send sends n dispatches of a shard with numbers, and checks that all were taken.
func send(t *testing.T, s *gatewaytest.Server, shard, from, n int) {
	t.Helper()
	for i := range n {
		d, _ := json.Marshal(map[string]int{"n": from + i})
		if _, err := s.Send(shard, "TYPING_START", d); err != nil {
			t.Fatal(err)
		}
	}
}

// same fails if what a handler got is not what Discord sent, each once and in order.
func same(t *testing.T, s *gatewaytest.Server, got []gateway.Dispatch) {
	t.Helper()
	sent := s.Sent()
	for i := range min(len(sent), len(got)) {
		if w, g := sent[i], got[i]; w.Type != g.Type || w.Sequence != g.Sequence || w.Session != g.SessionID || string(w.Data) != string(g.Data) {
			t.Fatalf("dispatch %d is %s %d of %.40s, sent was %s %d of %.40s", i, g.Type, g.Sequence, g.Data, w.Type, w.Sequence, w.Data)
		}
	}
	if len(sent) != len(got) {
		t.Fatalf("%d dispatches came, %d were sent", len(got), len(sent))
	}
}

// poll waits until cond holds.
func poll(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// ok fails at an error; it makes a wait one line.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("20 s are over"))
	t.Cleanup(cancel)
	return ctx
}
