package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// abandon has a consumer that is gone hold entries of a stream, read once.
func (d *deployment) abandon(stream, consumer string, entries int) {
	d.t.Helper()
	d.rdb.XGroupCreateMkStream(d.t.Context(), stream, "workers", "0")
	if err := d.rdb.Do(d.t.Context(), "XREADGROUP", "GROUP", "workers", consumer, "COUNT", entries, "STREAMS", stream, ">").Err(); err != nil {
		d.t.Fatal(err)
	}
}

// TestScenario015ClaimDeletedEntry takes over four entries, two of which are gone.
func TestScenario015ClaimDeletedEntry(t *testing.T) {
	t.Parallel()
	for _, deliveries := range []int{1, 2} { // suspects, of which one is not claimed until its turn, too
		t.Run(fmt.Sprint("deliveries=", deliveries), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, "", 1, 1)
			d.t = t
			guild := d.guild(0, 1)
			stream := d.stream(guild, false)
			var ids []string
			for range 4 {
				ids = append(ids, d.post(guild))
			}
			d.abandon(stream, "dead", 4)
			for _, id := range ids {
				d.rdb.Do(t.Context(), "XCLAIM", stream, "workers", "dead", 0, id, "RETRYCOUNT", deliveries, "JUSTID")
			}
			d.rdb.XDel(t.Context(), stream, ids[1], ids[3])
			var rec recorder
			var log journal
			reg := prometheus.NewRegistry()
			config := quick
			config.Logger, config.Metrics = log.logger(), reg
			d.run(registry("l", "#", rec.listen), config)
			waitFor(t, "the two, and nothing pending", func() bool { return rec.len() == 2 && d.pending("workers") == 0 })
			for i, e := range rec.all() {
				if want := int64(2*i + 1); e.Sequence != want || len(e.Payload) == 0 {
					t.Errorf("delivery %d: sequence %d with payload %q, want %d", i, e.Sequence, e.Payload, want)
				}
			}
			if n := total(t, reg, "sluice_replay_entries_vanished_total"); n != 2 {
				t.Errorf("%v entries counted as lost, want 2", n)
			}
			for _, id := range []string{ids[1], ids[3]} {
				if len(log.with("entries are lost", "0/0/"+id)) != 1 {
					t.Errorf("no line names %s: %q", id, log.with("lost"))
				}
			}
			if n := total(t, reg, "sluice_replay_dead_letters_total"); n != 0 {
				t.Errorf("%v dead letters of what is lost", n)
			}
		})
	}
}

// An entry that its former owner acknowledges at the last moment is not lost.
func TestALateAckOfAFormerOwnerIsNoLoss(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	first := d.post(guild)
	d.post(guild)
	d.abandon(stream, "former", 2)
	// Between the worker's list of what is pending and its claim.
	m := newMeddler(t, d.addr)
	m.before("XCLAIM", func() { d.rdb.XAck(context.Background(), stream, "workers", first) })
	var rec recorder
	reg := prometheus.NewRegistry()
	config := quick
	config.Metrics = reg
	d.runAt(m.addr(), registry("l", "#", rec.listen), config)
	waitFor(t, "the other", func() bool { return rec.len() == 1 && d.pending("workers") == 0 })
	if n := total(t, reg, "sluice_replay_entries_vanished_total"); n != 0 {
		t.Errorf("%v entries counted as lost, want none", n)
	}
}

// TestScenario017MaxlenTrimsUnacked freezes a worker that holds three entries while
// the stream is cut short under it.
func TestScenario017MaxlenTrimsUnacked(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	const lease = 500 * time.Millisecond
	frozen := d.start(recipe{Name: "frozen", Lease: lease, Drain: time.Second})
	d.holds("map[frozen:1]")
	var guilds, ids []string
	for g := range 3 {
		guilds = append(guilds, d.guild(0, g))
		ids = append(ids, d.tell(guilds[g], "1m"))
	}
	waitFor(t, "three starts", func() bool { return len(d.happenings()) == 3 })
	frozen.signal(syscall.SIGSTOP)
	for i := range 50 {
		d.post(guilds[i%3])
	}
	stream := d.stream(guilds[0], false)
	d.rdb.XTrimMaxLen(t.Context(), stream, 5)
	held := d.pending("workers") // the three, and what its parked read was served
	var rec recorder
	var log journal
	reg := prometheus.NewRegistry()
	w := d.run(registry("l", "#", rec.listen), replay.Config{Lease: lease, Consumer: "heir", Logger: log.logger(), Metrics: reg})
	waitFor(t, "the five that are left", func() bool { return rec.len() == 5 && d.pending("workers") == 0 })
	if n := total(t, reg, "sluice_replay_entries_vanished_total"); n < 3 || n != float64(held) {
		t.Errorf("%v entries counted as lost, want the %d that were pending", n, held)
	}
	for _, id := range ids {
		if len(log.with("entries are lost", "entries="+fmt.Sprint(held), id)) != 1 {
			t.Errorf("no line names %s", id)
		}
	}
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	frozen.signal(syscall.SIGCONT)
	waitFor(t, "its listeners to end", func() bool { return len(d.happenings()) == 6 })
	d.shares(2)
	for range 10 {
		d.post(guilds[0]) // to whichever
	}
	waitFor(t, "what comes then", func() bool { return rec.len()+len(d.happenings())/2-3 == 15 && d.pending("workers") == 0 })
}

// TestScenario019OneNilAbortsBatch has XCLAIM answer as Redis 6.2 does for an entry
// that is gone: with a nil among the others.
func TestScenario019OneNilAbortsBatch(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	guild := d.guild(0, 1)
	stream := d.stream(guild, false)
	var ids []string
	for range 3 {
		ids = append(ids, d.post(guild))
	}
	d.abandon(stream, "dead", 3)
	d.rdb.XDel(t.Context(), stream, ids[1])
	m := newMeddler(t, d.addr)
	m.rewrite("XCLAIM", func(answer []byte) []byte {
		if rest, ok := bytes.CutPrefix(answer, []byte("*2\r\n")); ok {
			return append([]byte("*3\r\n*-1\r\n"), rest...)
		}
		return answer
	})
	var rec recorder
	reg := prometheus.NewRegistry()
	config := quick
	config.Metrics = reg
	d.runAt(m.addr(), registry("l", "#", rec.listen), config)
	waitFor(t, "the two that live", func() bool { return rec.len() == 2 && d.pending("workers") == 0 })
	if m.rewritten() != 1 {
		t.Fatalf("%d answers were rewritten, want 1", m.rewritten())
	}
	if n := total(t, reg, "sluice_replay_entries_vanished_total"); n != 1 {
		t.Errorf("%v entries counted as lost, want 1", n)
	}
	waitFor(t, "the orphan's ack", func() bool { return m.saw("XACK", ids[1]) })
}

// TestScenario021AutoclaimCursorDiscarded takes over more than a page of entries, in
// their order, also when the answer to a page is lost.
func TestScenario021AutoclaimCursorDiscarded(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	const count = 1500
	for i := range count {
		d.post(d.guild(0, i%70))
	}
	stream := d.stream(d.guild(0, 0), false)
	d.abandon(stream, "dead", 1000)
	d.abandon(stream, "other", count)
	// Some of the first ones are looked at again and again by somebody.
	head := d.rdb.XRangeN(t.Context(), stream, "-", "+", 100).Val()
	ctx, cancel := context.WithCancel(t.Context())
	touched := make(chan struct{})
	go func() {
		defer close(touched)
		for ctx.Err() == nil {
			for _, m := range head[:10] {
				d.rdb.Do(ctx, "XCLAIM", stream, "workers", "dead", 0, m.ID, "JUSTID", "RETRYCOUNT", 1)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	proxy := redistest.NewProxy(t, d.addr)
	proxy.DropReply([]byte("XCLAIM"), 3)
	var mu sync.Mutex
	last, ran := map[string]int64{}, map[int64]int{}
	disorder := 0
	config := quick
	config.MaxInHand = 40 // far less than a page
	w := d.runAt(proxy.Addr(), registry("l", "#", func(_ context.Context, e *listener.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if ran[e.Sequence]++; ran[e.Sequence] > 1 {
			return nil
		}
		if e.Sequence < last[e.GuildID] {
			disorder++
		}
		last[e.GuildID] = e.Sequence
		return nil
	}), config)
	waitFor(t, "all handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ran) == count
	})
	cancel()
	<-touched
	waitFor(t, "all acked", func() bool { return d.pending("workers") == 0 })
	waitFor(t, "ready", func() bool { return w.Ready() == nil })
	if n := proxy.Counts().DroppedReplies; n != 3 {
		t.Errorf("%d answers were lost, want 3", n)
	}
	mu.Lock()
	defer mu.Unlock()
	if disorder > 0 {
		t.Errorf("%d out of order", disorder)
	}
}

// TestScenario023DelconsumerLosesPending kills a process that has read ten entries.
func TestScenario023DelconsumerLosesPending(t *testing.T) {
	t.Parallel()
	d := deploy(t, "", 1, 1)
	const lease = 300 * time.Millisecond
	dying := d.start(recipe{Name: "dying", Lease: lease})
	d.holds("map[dying:1]")
	guild := d.guild(0, 1)
	d.tell(guild, "1m")
	for range 9 {
		d.tell(guild, "")
	}
	waitFor(t, "ten to be read and one to be begun", func() bool { return d.pending("workers") == 10 && len(d.happenings()) == 1 })
	dying.kill()
	var rec recorder
	config := quick
	config.Lease, config.Consumer = lease, "heir"
	d.run(registry("l", "#", rec.listen), config)
	waitFor(t, "all ten", func() bool { return rec.len() == 10 && d.pending("workers") == 0 })
	waitFor(t, "the dead one's consumer to go", func() bool {
		c := d.rdb.XInfoConsumers(t.Context(), d.stream(guild, false), "workers").Val()
		return len(c) == 1 && strings.HasPrefix(c[0].Name, "heir/")
	})
	if n := rec.len(); n != 10 {
		t.Errorf("%d deliveries, want 10", n)
	}
}

// TestScenario025ClientServerReplyShape takes entries over without XAUTOCLAIM, whose
// answer has another shape in each version of Redis. (What XCLAIM answers is in
// scenario 019, the least version in TestScenario055.)
func TestScenario025ClientServerReplyShape(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := deploy(t, server.Addr(), 1, 1)
	guild := d.guild(0, 1)
	for range 5 {
		d.post(guild)
	}
	d.abandon(d.stream(guild, false), "dead", 5)
	var rec recorder
	d.run(registry("l", "#", rec.listen), quick)
	waitFor(t, "all five", func() bool { return rec.len() == 5 && d.pending("workers") == 0 })
	if n := d.calls("xautoclaim"); n != 0 {
		t.Errorf("%d XAUTOCLAIM", n)
	}
}

// A meddler passes connections on to a server and changes what it is told to.
type meddler struct {
	listener net.Listener
	target   string
	links    sync.WaitGroup
	n        atomic.Int32 // answers rewritten

	mu sync.Mutex
	// Guarded by mu.
	ahead  map[string]func()              // done once, before a request that has the text
	change map[string]func([]byte) []byte // of the first answer to a request that has the text
	sent   [][]byte                       // requests
	open   []net.Conn
}

func newMeddler(t testing.TB, target string) *meddler {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &meddler{listener: l, target: target, ahead: map[string]func(){}, change: map[string]func([]byte) []byte{}}
	m.links.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			m.links.Go(func() { m.serve(client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		m.mu.Lock()
		for _, c := range m.open {
			c.Close()
		}
		m.mu.Unlock()
		m.links.Wait()
	})
	return m
}

func (m *meddler) addr() string { return m.listener.Addr().String() }

// before has f called before the first request that has the text is passed on.
func (m *meddler) before(text string, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead[text] = f
}

// rewrite has f change the answer to each request that has the text, where it
// comes in one piece.
func (m *meddler) rewrite(text string, f func(answer []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change[text] = f
}

func (m *meddler) rewritten() int { return int(m.n.Load()) }

// saw reports whether a request had all of the texts.
func (m *meddler) saw(texts ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.sent, func(request []byte) bool {
		for _, text := range texts {
			if !bytes.Contains(request, []byte(text)) {
				return false
			}
		}
		return true
	})
}

// request notes a request, and returns what changes its answer.
func (m *meddler) request(b []byte) (change func([]byte) []byte) {
	var ahead func()
	m.mu.Lock()
	m.sent = append(m.sent, bytes.Clone(b))
	for text, f := range m.ahead {
		if bytes.Contains(b, []byte(text)) {
			ahead = f
			delete(m.ahead, text)
		}
	}
	for text, f := range m.change {
		if bytes.Contains(b, []byte(text)) {
			change = f
		}
	}
	m.mu.Unlock()
	if ahead != nil {
		ahead()
	}
	return change
}

func (m *meddler) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", m.target)
	if err != nil {
		return
	}
	defer server.Close()
	m.mu.Lock()
	m.open = append(m.open, client, server)
	m.mu.Unlock()
	var change atomic.Pointer[func([]byte) []byte]
	m.links.Go(func() {
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if f := m.request(buf[:n]); f != nil {
				change.Store(&f)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		answer := buf[:n]
		if f := change.Swap(nil); f != nil {
			if changed := (*f)(bytes.Clone(answer)); !bytes.Equal(changed, answer) {
				m.n.Add(1)
				answer = changed
			}
		}
		if _, err := client.Write(answer); err != nil {
			return
		}
	}
}
