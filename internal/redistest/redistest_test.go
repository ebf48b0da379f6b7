package redistest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sluicehq/sluice/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestSharedServer(t *testing.T) {
	t.Parallel()
	var prefixes []string
	for i := range 3 {
		t.Run(fmt.Sprint("test ", i), func(t *testing.T) {
			prefix := redistest.Prefix(t)
			if slices.Contains(prefixes, prefix) {
				t.Errorf("Prefix gave %q twice", prefix)
			}
			prefixes = append(prefixes, prefix)
			if err := redistest.Client(t).Set(t.Context(), prefix, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
			if got := redistest.Client(t).Options().Addr; got != redistest.Addr(t) {
				t.Errorf("Client's address = %s, want the package's server %s", got, redistest.Addr(t))
			}
		})
	}
	n, err := redistest.Client(t).Exists(t.Context(), prefixes...).Result()
	if err != nil || n != 3 {
		t.Errorf("keys on the shared server = %d, %v, want 3", n, err)
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := s.Client(t)
	if err := rdb.Set(ctx, "kept", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}

	s.Kill()
	if err := rdb.Ping(ctx).Err(); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart(t)
	if got, err := rdb.Get(ctx, "kept").Result(); got != "1" {
		t.Errorf("value after kill and restart = %q, %v, want it kept", got, err)
	}

	s.Stop(t)
	if err := rdb.Ping(ctx).Err(); err == nil {
		t.Error("a stopped server answers")
	}
	s.Restart(t)

	s.Pause(t)
	impatient := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	defer impatient.Close()
	if err := impatient.Ping(ctx).Err(); err == nil {
		t.Error("a paused server answers")
	}
	s.Continue(t)
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Errorf("PING after Continue: %v", err)
	}
	if _, err := os.Stat(s.Dir()); err != nil {
		t.Errorf("data directory: %v", err)
	}
}

func TestStartReportsWhyTheServerDidNotStart(t *testing.T) {
	t.Parallel()
	probe := &fatalRecorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		redistest.Start(probe, "--no-such-option", "1")
	}()
	<-done
	if t.Skipped() {
		return // there is no server to start
	}
	if !strings.Contains(probe.text, "no-such-option") {
		t.Errorf("Fatalf got %q, want the option named", probe.text)
	}
}

// fatalRecorder keeps what a helper fails with; Goexit ends the goroutine as
// testing.T does.
type fatalRecorder struct {
	testing.TB
	text string
}

func (f *fatalRecorder) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		rule      func(p *redistest.Proxy)
		failing   int // calls that fail
		want      string
		wantCount redistest.Counts
	}{
		{"passes on", func(*redistest.Proxy) {}, 0, "4", redistest.Counts{Accepted: 1}},
		{"drops a reply: executed, but the caller does not know",
			func(p *redistest.Proxy) { p.DropReply([]byte("incr"), 1) }, 1, "4", redistest.Counts{Accepted: 2, DroppedReplies: 1}},
		{"drops two replies",
			func(p *redistest.Proxy) { p.DropReply([]byte("incr"), 2) }, 2, "4", redistest.Counts{Accepted: 3, DroppedReplies: 2}},
		{"drops a request: not executed",
			func(p *redistest.Proxy) { p.DropRequest([]byte("incr"), 1) }, 1, "3", redistest.Counts{Accepted: 2, DroppedRequests: 1}},
		{"a rule that matches nothing",
			func(p *redistest.Proxy) { p.DropRequest([]byte("decr"), 1) }, 0, "4", redistest.Counts{Accepted: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			key := redistest.Prefix(t) + ":n"
			p := redistest.NewProxy(t, redistest.Addr(t))
			rdb := redis.NewClient(&redis.Options{
				Addr: p.Addr(), MaxRetries: -1, PoolSize: 1, DisableIdentity: true, Protocol: 2,
			})
			defer rdb.Close()
			test.rule(p)
			failed := 0
			for range 4 {
				if rdb.Incr(t.Context(), key).Err() != nil {
					failed++
				}
			}
			if failed != test.failing {
				t.Errorf("failed calls = %d, want %d", failed, test.failing)
			}
			if got := redistest.Client(t).Get(t.Context(), key).Val(); got != test.want {
				t.Errorf("executed %s times, want %s", got, test.want)
			}
			if got := p.Counts(); got != test.wantCount {
				t.Errorf("Counts = %+v, want %+v", got, test.wantCount)
			}
		})
	}
}

func TestProxyDropsTheReplyOfABigTransaction(t *testing.T) {
	t.Parallel()
	key := redistest.Prefix(t) + ":list"
	p := redistest.NewProxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer rdb.Close()
	p.DropReply([]byte("multi"), 1)
	value := strings.Repeat("v", 4096)
	_, err := rdb.TxPipelined(t.Context(), func(tx redis.Pipeliner) error {
		for range 500 { // 2 MB: many reads of the proxy and of Redis
			tx.RPush(t.Context(), key, value)
		}
		return nil
	})
	if err == nil {
		t.Error("the reply arrived, want it dropped")
	}
	if n := redistest.Client(t).LLen(t.Context(), key).Val(); n != 500 {
		t.Errorf("executed %d of 500 commands, want all", n)
	}
}

func TestProxyDropsAReplyThatIsLongInComing(t *testing.T) {
	t.Parallel()
	key := redistest.Prefix(t) + ":list"
	p := redistest.NewProxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer rdb.Close()
	p.DropReply([]byte("blpop"), 1)
	failed := make(chan error)
	go func() { failed <- rdb.BLPop(context.WithoutCancel(t.Context()), 10*time.Second, key).Err() }()
	direct := redistest.Client(t)
	waitFor(t, "a blocked client", func() bool {
		info := direct.Info(t.Context(), "clients").Val()
		return strings.Contains(info, "blocked_clients:1")
	})
	if err := direct.RPush(t.Context(), key, "x").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the reply arrived, want it dropped")
	}
	if n := direct.LLen(t.Context(), key).Val(); n != 0 {
		t.Errorf("the list has %d elements, want it popped", n)
	}
}

func TestProxyCutAll(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Addr(t))
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1})
	defer rdb.Close()
	conn := rdb.Conn()
	defer conn.Close()
	if err := conn.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	p.CutAll()
	if err := conn.Ping(t.Context()).Err(); err == nil {
		t.Error("PING succeeds on a cut connection")
	}
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING on a new connection: %v", err)
	}
	p.Down()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("PING succeeds while the proxy is down")
	}
	p.Up()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING after Up: %v", err)
	}
	if got := p.Counts(); got.Cut != 2 || got.Accepted < 4 {
		t.Errorf("Counts = %+v, want 2 cut and at least 4 accepted", got)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 10s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
