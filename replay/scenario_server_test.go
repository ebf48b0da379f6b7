package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// TestScenario047ReadonlyAfterFailover demotes the server under a worker: for a
// while, or for good, with another one behind the same address.
func TestScenario047ReadonlyAfterFailover(t *testing.T) {
	t.Parallel()
	for _, forGood := range []bool{false, true} {
		name := "for a while"
		if forGood {
			name = "for good"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, next := redistest.Start(t), redistest.Start(t)
			d := deploy(t, old.Addr(), 1, 4)
			d.t = t
			front := newSwitch(t, old.Addr())
			var rec recorder
			w := d.runAt(front.addr(), registry("l", "#", rec.listen), replay.Config{Lease: time.Second})
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			for g := range 10 {
				d.post(d.guild(0, g))
			}
			waitFor(t, "the first", func() bool { return rec.len() == 10 && d.pending("workers") == 0 })
			follow := func(rdb *redis.Client, of string) {
				t.Helper()
				host, port, _ := strings.Cut(of, ":")
				if err := rdb.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
					t.Fatal(err)
				}
			}
			synced := func(rdb *redis.Client) func() bool {
				return func() bool {
					return strings.Contains(rdb.Info(t.Context(), "replication").Val(), "master_link_status:up")
				}
			}
			follow(next.Client(t), old.Addr())
			waitFor(t, "the replica to follow", synced(next.Client(t)))
			promote := func(rdb *redis.Client) {
				t.Helper()
				if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
					t.Fatal(err)
				}
			}
			promote(next.Client(t))
			follow(d.rdb, next.Addr())
			waitFor(t, "not ready", func() bool { return w.Ready() != nil })
			if forGood {
				front.to(next.Addr()) // new connections; those there are stay with the old one
				d.rdb = next.Client(t)
			} else {
				waitFor(t, "the old one to follow", synced(d.rdb))
				promote(d.rdb)
			}
			for g := range 10 {
				d.post(d.guild(0, g))
			}
			seen := func() bool {
				all := map[int64]bool{}
				for _, e := range rec.all() {
					all[e.Sequence] = true
				}
				return len(all) == 20 && d.pending("workers") == 0
			}
			waitFor(t, "all of them", seen)
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
		})
	}
}

// TestScenario049OOMOnXADD fills Redis: what is in the streams is read and
// acknowledged all the same, leases are kept, and what can't be written is when
// there is room.
func TestScenario049OOMOnXADD(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 4)
	var rec recorder
	var recovered atomic.Bool
	reg := prometheus.NewRegistry()
	r := listener.New()
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	r.Add(
		listener.Handle("good", "#", rec.listen),
		listener.Handle("bad", "#", func(_ context.Context, e *listener.Delivery) error {
			if e.Sequence == 1 && e.Attempt == 1 {
				begun <- struct{}{}
				<-goOn
			}
			if e.Sequence%10 == 1 && !recovered.Load() {
				return errors.New("not yet")
			}
			return nil
		}))
	config := replay.Config{Lease: 600 * time.Millisecond, Backoff: 20 * time.Millisecond, BackoffMax: 50 * time.Millisecond, MaxDeliveries: 100000, Metrics: reg}
	w := d.run(r, config)
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	d.post(d.guild(0, 99))
	<-begun
	for i := range 200 {
		d.post(d.guild(0, i%20))
	}
	if err := d.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	waitFor(t, "all handled once", func() bool { return rec.len() >= 201 })
	waitFor(t, "most to be acked", func() bool { return d.pending("workers") <= 21 })
	time.Sleep(2 * config.Lease) // a time in which leases would end
	d.shares(1)
	if n := total(t, reg, "sluice_replay_lanes"); n != 4 {
		t.Errorf("%v lanes held without memory, want 4", n)
	}
	if err := w.Ready(); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Ready = %v, want OOM told", err)
	}
	recovered.Store(true)
	if err := d.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	if n := rec.len(); n != 201 {
		t.Errorf("%d runs of the good listener, want 201", n)
	}
	if p := d.progress("workers"); len(p) != 0 {
		t.Errorf("progress left: %v", p)
	}
}

// TestScenario051LoadingAtStart starts a worker against a Redis that says that it is
// loading, and has it say so once more later.
func TestScenario051LoadingAtStart(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 4)
	loading := loadingServer(t)
	front := newSwitch(t, loading)
	var rec recorder
	var log journal
	w := d.runAt(front.addr(), registry("l", "#", rec.listen), replay.Config{Lease: 500 * time.Millisecond, Logger: log.logger()})
	tells := func() bool {
		err := w.Ready()
		return err != nil && strings.Contains(err.Error(), "LOADING")
	}
	waitFor(t, "Ready to tell", tells)
	time.Sleep(1500 * time.Millisecond) // more than one try
	if w.err != nil || !tells() {
		t.Fatalf("Run ended with %v, or Ready = %v", w.err, w.Ready())
	}
	d.post(d.guild(0, 1))
	front.to(d.addr)
	front.cut()
	waitFor(t, "the entry", func() bool { return rec.len() == 1 })
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	front.to(loading)
	front.cut()
	waitFor(t, "Ready to tell again", tells)
	front.to(d.addr)
	front.cut()
	d.post(d.guild(0, 1))
	waitFor(t, "the second entry", func() bool { return rec.len() == 2 && d.pending("workers") == 0 })
	waitFor(t, "ready again", func() bool { return w.Ready() == nil })
	if lines := log.with("impaired"); len(lines) > 30 {
		t.Errorf("%d lines about it", len(lines))
	}
}

// loadingServer answers to every command that it is loading.
func loadingServer(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					for range bytes.Count(buf[:n], []byte("*")) {
						c.Write([]byte("-LOADING Redis is loading the dataset in memory\r\n"))
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A switchboard passes connections on to the one server it is at.
type switchboard struct {
	listener net.Listener
	links    sync.WaitGroup

	mu     sync.Mutex
	target string
	open   map[net.Conn]struct{}
}

func newSwitch(t testing.TB, target string) *switchboard {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &switchboard{listener: l, target: target, open: map[net.Conn]struct{}{}}
	s.links.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.links.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.cut()
		s.links.Wait()
	})
	return s
}

func (s *switchboard) addr() string { return s.listener.Addr().String() }

// to has new connections go to target.
func (s *switchboard) to(target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = target
}

// cut ends all connections there are.
func (s *switchboard) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
}

func (s *switchboard) serve(client net.Conn) {
	s.mu.Lock()
	server, err := net.Dial("tcp", s.target)
	if err != nil {
		s.mu.Unlock()
		client.Close()
		return
	}
	s.open[client], s.open[server] = struct{}{}, struct{}{}
	s.mu.Unlock()
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	s.links.Go(func() { pass(server, client) })
	pass(client, server)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, client)
	delete(s.open, server)
}

// TestScenario055ACLMissesOneCommand starts a worker as a user who lacks a command,
// for each that the documentation says a worker needs: it names it, or gets by.
func TestScenario055ACLMissesOneCommand(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 1)
	page, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`ACL SETUSER worker on >PASSWORD (.*)`).FindSubmatch(page)
	if rule == nil {
		t.Fatal("docs/operating.md has no rule for a worker")
	}
	words := strings.Fields(strings.ReplaceAll(string(rule[1]), "sluice:", d.prefix+":"))
	run := func(t *testing.T, without string) error {
		t.Helper()
		user := "u" + strings.NewReplacer("+", "", "|", "-").Replace(without)
		args := []any{"ACL", "SETUSER", user, "reset", "on", ">secret"}
		for _, w := range words {
			if w != without {
				args = append(args, w)
			}
		}
		if err := d.rdb.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewClient(&redis.Options{Addr: d.addr, Username: user, Password: "secret", DisableIdentity: true})
		defer rdb.Close()
		w, err := replay.New(rdb, registry("l", "#", nothing), replay.Config{Prefix: d.prefix, Lease: 300 * time.Millisecond, Logger: (&journal{}).logger()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		late := time.After(3 * time.Second)
		for {
			select {
			case err := <-ended:
				return err
			case <-late:
				cancel()
				return fmt.Errorf("neither ready nor ended, but %w", errors.Join(w.Ready(), <-ended))
			case <-time.After(5 * time.Millisecond):
				if w.Ready() == nil {
					cancel()
					return <-ended
				}
			}
		}
	}
	if err := run(t, ""); err != nil {
		t.Fatalf("with all that the page says: %v", err)
	}
	for _, word := range strings.Fields("xreadgroup xack xpending xclaim xrange xgroup xinfo|consumers xadd xtrim hgetall hget hmget hdel hlen " +
		"get set pexpire del eval evalsha client|id client|unblock time") {
		if !slices.Contains(words, "+"+word) {
			t.Errorf("the page does not have +%s", word)
			continue
		}
		// Without HGETALL the topology can't be read, and it is waited for.
		err := run(t, "+"+word)
		want := strings.ToUpper(strings.ReplaceAll(word, "|", " "))
		if word == "hgetall" && err != nil && strings.Contains(err.Error(), "the topology") {
			continue
		}
		if !errors.Is(err, replay.ErrServer) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: Run = %v, want an ErrServer that names it", word, err)
		}
	}
	for version, old := range map[string]bool{"6.0.16": true, "5.0.7": true, "6.2.0": false, "7.0.15": false, "8.2.1": false, "x": false} {
		if _, got := replay.TooOld("# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n"); got != old {
			t.Errorf("%s is too old: %t, want %t", version, got, old)
		}
	}
}

// A user who loses a right while the worker runs: it tells, and goes on when the
// right is back.
func TestACLChangesUnderAWorker(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"xreadgroup", "xack", "evalsha", "xpending"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			d := deploy(t, server.Addr(), 1, 2)
			d.t = t
			acl := func(args ...any) {
				t.Helper()
				if err := d.rdb.Do(t.Context(), append([]any{"ACL", "SETUSER", "worker"}, args...)...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			acl("on", ">secret", "~*", "+@all")
			var rec recorder
			var log journal
			w := d.runWith(redis.NewClient(&redis.Options{Addr: d.addr, Username: "worker", Password: "secret"}),
				registry("l", "#", rec.listen), replay.Config{Lease: 600 * time.Millisecond, Logger: log.logger()})
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			acl("-" + command)
			d.post(d.guild(0, 1))
			waitFor(t, "Ready to tell", func() bool {
				err := w.Ready()
				return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "permissions"))
			})
			acl("+" + command)
			d.post(d.guild(0, 1))
			waitFor(t, "both entries", func() bool {
				seen := map[int64]bool{}
				for _, e := range rec.all() {
					seen[e.Sequence] = true
				}
				return len(seen) == 2 && d.pending("workers") == 0
			})
			waitFor(t, "ready", func() bool { return w.Ready() == nil })
			if lines := log.with("impaired"); len(lines) > 12 {
				t.Errorf("%d lines about it", len(lines))
			}
		})
	}
}

// TestScenario057ValuesNotPairs has entries without a payload, a state or any text
// delivered, and stored as dead letters.
func TestScenario057ValuesNotPairs(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	var rec recorder
	r := listener.New()
	r.Add(listener.Handle("good", "#", rec.listen), listener.Handle("bad", "#", func(context.Context, *listener.Delivery) error {
		return listener.Discard(errors.New("no"))
	}))
	guilds, entries := []string{"", "", ""}, []wire.Entry{
		{Event: "orders.empty", Codec: wire.JSON},
		{Event: "orders.null", Codec: wire.JSON, Payload: []byte("null")},
		{Event: "orders.text", Codec: wire.JSON, Payload: []byte(`""`), State: []byte("{}")},
	}
	for i := range guilds {
		guilds[i] = d.guild(0, 1)
	}
	d.put(false, guilds, entries)
	d.run(r, quick)
	letters := d.letters("workers", 3)
	if rec.len() != 3 {
		t.Errorf("%d deliveries, want 3", rec.len())
	}
	for i, letter := range letters {
		if n := len(letter) - 1; n != len(wire.Fields)+8 { // the helper adds the letter's id
			t.Errorf("letter %d has %d fields, want %d: %v", i, n, len(wire.Fields)+8, letter)
		}
		if letter["payload"] != string(entries[i].Payload) || letter["state"] != string(entries[i].State) {
			t.Errorf("letter %d: payload %q, state %q", i, letter["payload"], letter["state"])
		}
	}
}
