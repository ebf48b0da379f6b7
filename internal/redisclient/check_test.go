package redisclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/redistest"
)

func TestMain(m *testing.M) {
	redisclient.LogTo(slog.New(slog.DiscardHandler))
	redistest.Main(m)
}

// A logBook keeps what is logged.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newLog() (*logBook, *slog.Logger) {
	b := &logBook{}
	return b, slog.New(slog.NewTextHandler(b, nil))
}

func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	client, err := redisclient.New(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func TestCheckOfRealServers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		set  []string // a setting to change once the server runs, and its value
		url  string   // %s: the address
		want []string // in the error; none: no error
		log  string   // in the log; empty: nothing is logged
	}{
		"persistent":        {args: []string{"--appendonly", "yes"}, url: "redis://%s"},
		"save points":       {args: []string{"--save", "60 1"}, url: "redis://%s"},
		"not persistent":    {args: []string{"--save", "", "--appendonly", "no"}, url: "redis://%s", log: "no persistence"},
		"evicting":          {args: []string{"--maxmemory-policy", "allkeys-lru"}, url: "redis://%s", want: []string{"allkeys-lru", "noeviction"}},
		"evicting volatile": {args: []string{"--maxmemory-policy", "volatile-ttl"}, url: "redis://%s", want: []string{"volatile-ttl"}},
		"no password":       {set: []string{"requirepass", "hunter2"}, url: "redis://%s", want: []string{"NOAUTH", "redis.url"}},
		"wrong password":    {set: []string{"requirepass", "hunter2"}, url: "redis://:hunter3@%s", want: []string{"WRONGPASS"}},
		"right password":    {args: []string{"--save", "60 1"}, set: []string{"requirepass", "hunter2"}, url: "redis://:hunter2@%s"},
		"database":          {args: []string{"--databases", "2"}, url: "redis://%s/7", want: []string{"DB index"}},
		"node of a cluster": {args: []string{"--cluster-enabled", "yes"}, url: "redis://%s", want: []string{"redis+cluster://"}},
		"no cluster":        {url: "redis+cluster://%s", want: []string{"no cluster", "redis://"}},
		"everything wrong": {
			args: []string{"--cluster-enabled", "yes", "--maxmemory-policy", "allkeys-lfu"}, url: "redis://%s",
			want: []string{"allkeys-lfu", "redis+cluster://"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, tc.args...)
			if tc.set != nil {
				if err := server.Client(t).ConfigSet(t.Context(), tc.set[0], tc.set[1]).Err(); err != nil {
					t.Fatal(err)
				}
			}
			book, logger := newLog()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := redisclient.Check(ctx, connect(t, fmt.Sprintf(tc.url, server.Addr())), logger)
			if len(tc.want) == 0 && err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			for _, want := range tc.want {
				if !errors.Is(err, redisclient.ErrUnsuitable) || !strings.Contains(err.Error(), want) {
					t.Errorf("Check = %v, want ErrUnsuitable about %q", err, want)
				}
			}
			if logged := book.String(); tc.log == "" && logged != "" || !strings.Contains(logged, tc.log) {
				t.Errorf("Check logged %q, want %q", logged, tc.log)
			}
			if strings.Contains(fmt.Sprint(err, book), "hunter") {
				t.Errorf("Check tells a password: %v %s", err, book)
			}
		})
	}
}

func TestCheckOfOtherVersions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		info string
		want []string
		log  string
	}{
		"6.0": {info: "redis_version:6.0.20\r\nmaxmemory_policy:noeviction\r\n", want: []string{"6.0.20", "6.2"}},
		"5":   {info: "redis_version:5.0.14\r\nmaxmemory_policy:allkeys-lru\r\n", want: []string{"5.0.14", "allkeys-lru"}},
		"6.2": {info: "# Server\r\nredis_version:6.2.0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"},
		"10":  {info: "redis_version:10.0.0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"},
		"a fork": {
			info: "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n",
		},
		"no version":          {info: "# Clients\r\nconnected_clients:1\r\n", log: "version"},
		"CONFIG is forbidden": {info: "redis_version:7.0.0\r\naof_enabled:0\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			book, logger := newLog()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := redisclient.Check(ctx, connect(t, "redis://"+fakeServer(t, tc.info)), logger)
			if len(tc.want) == 0 && err != nil {
				t.Errorf("Check = %v, want nil", err)
			}
			for _, want := range tc.want {
				if !errors.Is(err, redisclient.ErrUnsuitable) || !strings.Contains(err.Error(), want) {
					t.Errorf("Check = %v, want ErrUnsuitable about %q", err, want)
				}
			}
			if logged := book.String(); tc.log == "" && logged != "" || !strings.Contains(logged, tc.log) {
				t.Errorf("Check logged %q, want %q", logged, tc.log)
			}
		})
	}
}

func TestCheckWaits(t *testing.T) {
	t.Parallel()

	t.Run("for a server that starts late", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--appendonly", "yes")
		server.Kill()
		book, logger := newLog()
		done := make(chan error, 1)
		client := connect(t, "redis://"+server.Addr())
		go func() { done <- redisclient.Check(t.Context(), client, logger) }()
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(book.String(), "waiting"); {
			if time.Now().After(deadline) {
				t.Fatalf("Check logged %q, want that it waits", book)
			}
			time.Sleep(5 * time.Millisecond)
		}
		select {
		case err := <-done:
			t.Fatalf("Check of a dead server ended: %v", err)
		default:
		}
		server.Restart(t)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		logged := book.String()
		if strings.Count(logged, "not reachable") != 1 || strings.Count(logged, "redis is reachable") != 1 {
			t.Errorf("Check logged:\n%swant one line that it waits, and one that it has ended", logged)
		}
	})

	t.Run("for a replica to be promoted", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--save", "60 1")
		rdb := server.Client(t)
		if err := rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		book, logger := newLog()
		done := make(chan error, 1)
		client := connect(t, "redis://"+server.Addr())
		go func() { done <- redisclient.Check(t.Context(), client, logger) }()
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(book.String(), "replica"); {
			if time.Now().After(deadline) {
				t.Fatalf("Check logged %q, want that the server is a replica", book)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})

	t.Run("until it is told to stop", func(t *testing.T) {
		t.Parallel()
		_, logger := newLog()
		cause := errors.New("told to stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		client := connect(t, "redis://127.0.0.1:1")
		done := make(chan error, 1)
		go func() { done <- redisclient.Check(ctx, client, logger) }()
		cancel(cause)
		if err := <-done; !errors.Is(err, cause) {
			t.Errorf("Check = %v, want the cause", err)
		}
	})
}

// fakeServer answers INFO with a text and everything else with an error, as a
// server does that knows or allows nothing more.
func fakeServer(t *testing.T, info string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() { // ends when l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { // ends when the client closes c, or the deadline does
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute))
				r := bufio.NewReader(c)
				for {
					args, err := readCommand(r)
					if err != nil {
						return
					}
					if strings.EqualFold(args[0], "INFO") {
						fmt.Fprintf(c, "$%d\r\n%s\r\n", len(info), info)
					} else {
						fmt.Fprintf(c, "-ERR unknown command '%s'\r\n", args[0])
					}
				}
			})
		}
	})
	// Registered before the client's own cleanup, so it runs after it.
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

func readCommand(r *bufio.Reader) ([]string, error) {
	header := func(mark byte) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || line[0] != mark {
			return 0, errors.Join(err, errors.New("no command"))
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := header('*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := header('$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}
