package replay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

// A node is a Redis server as the worker uses it: the one there is, or, of a
// cluster, the one that holds a shard. It has a connection for each class of
// streams to read, and one for what must not wait behind a read: acks, and calls
// that end a read early.
type node struct {
	w       *Worker
	name    string // for texts
	cluster bool
	lanes   []*lane
	readers [classes]*reader
	clock   serverClock

	mu sync.Mutex
	// Guarded by mu.
	acks   map[*source][]entryID
	queued int

	work chan struct{} // capacity 1: there is something to do; further signals add nothing
}

const (
	ackBatch = 1000                 // ids in an XACK
	ackSoon  = 1000                 // acks that do not wait for more
	ackWait  = 5 * time.Millisecond // how long fewer wait for more
	backoff0 = 50 * time.Millisecond
	backoffN = 2 * time.Second
)

func newNode(w *Worker, shard wire.Shard, cluster bool) *node {
	n := &node{w: w, cluster: cluster, acks: make(map[*source][]entryID), work: make(chan struct{}, 1)}
	if cluster {
		n.name = fmt.Sprintf(" of shard %d", shard.ID)
	}
	for i := range n.readers {
		n.readers[i] = newReader(n, class(i))
	}
	return n
}

// connect connects to the node.
func (n *node) connect(ctx context.Context, buffer int) (*conn, error) {
	opt, err := redisclient.NodeOf(ctx, n.w.given, n.lanes[0].lease)
	if err != nil {
		return nil, err
	}
	return dial(ctx, *opt, buffer)
}

// ack queues an entry to be acknowledged. It does not block.
func (n *node) ack(s *source, id entryID) {
	n.mu.Lock()
	n.acks[s] = append(n.acks[s], id)
	n.queued++
	first := n.queued == 1 || n.queued == ackSoon
	n.mu.Unlock()
	if first {
		n.signal()
	}
}

func (n *node) signal() {
	select {
	case n.work <- struct{}{}:
	default:
	}
}

// backlog returns how many acks are queued.
func (n *node) backlog() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queued
}

// run sends acks and ends reads until ctx ends; then it sends what acks are left,
// if that works at once.
func (n *node) run(ctx context.Context) {
	var (
		c     *conn
		tries int
		again bool
		taken = make(map[*source][]entryID)
		dials = context.WithoutCancel(ctx) // also for the last acks; go-redis bounds it
	)
	defer func() {
		if c != nil {
			c.close()
		}
	}()
	for {
		if len(taken) == 0 && !n.wait(ctx, again) {
			if n.take(taken); len(taken) == 0 {
				return
			}
		}
		err := error(nil)
		if c == nil {
			c, err = n.connect(dials, 16<<10)
		}
		if err == nil {
			again, err = n.unpark(c)
		}
		if err == nil {
			n.take(taken)
			err = n.flush(c, taken)
		}
		if err == nil {
			n.w.health.ok("acks" + n.name)
			tries = 0
			continue
		}
		n.w.health.fail("acks"+n.name, err)
		if c != nil && !usable(err) {
			c.close()
			c = nil
		}
		if !pause(ctx, tries) {
			return // what is not acknowledged is delivered again
		}
		tries++
	}
}

// wait waits until there is something to do: a read to end, or acks, a moment
// longer for more of them. It reports whether ctx still lasts. again says that a
// read was called to an end and may not have heard it.
func (n *node) wait(ctx context.Context, again bool) bool {
	var wake <-chan time.Time
	if again {
		wake = time.After(5 * time.Millisecond)
	}
	var soon *time.Timer
	for n.backlog() < ackSoon {
		if soon == nil && n.backlog() > 0 {
			soon = time.NewTimer(ackWait)
			defer soon.Stop()
			wake = soon.C
		}
		if !again && n.called() {
			break
		}
		select {
		case <-n.work:
			continue
		case <-wake:
		case <-ctx.Done():
			return false
		}
		break
	}
	return ctx.Err() == nil
}

// called reports whether a parked read is to be ended.
func (n *node) called() bool {
	for _, r := range n.readers {
		if r.call.Load() && r.parked.Load() != 0 {
			return true
		}
	}
	return false
}

// take moves the queued acks to taken.
func (n *node) take(taken map[*source][]entryID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s, ids := range n.acks {
		if len(ids) > 0 {
			taken[s] = append(taken[s], ids...)
			n.acks[s] = ids[:0]
		}
	}
	n.queued = 0
}

// flush sends acks and waits for their confirmation.
func (n *node) flush(c *conn, taken map[*source][]entryID) error {
	if len(taken) == 0 {
		return nil
	}
	type part struct {
		source *source
		ids    []entryID
	}
	var parts []part
	for s, ids := range taken {
		for len(ids) > 0 {
			k := min(len(ids), ackBatch)
			parts = append(parts, part{s, ids[:k]})
			c.command(3+k, "XACK")
			c.text(s.stream)
			c.text(n.w.config.Group)
			for _, id := range ids[:k] {
				c.entry(id)
			}
			ids = ids[k:]
		}
	}
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var bad error
	for _, p := range parts {
		k, err := c.want(':')
		if err != nil {
			if !usable(err) {
				return err
			}
			bad = err // this one stays, the others' answers count
			continue
		}
		n.w.metrics.acked.Add(float64(k))
		if late := len(p.ids) - int(k); late > 0 {
			n.w.metrics.lateAcks.Add(float64(late))
		}
		n.w.desk.acked(p.source, p.ids)
		taken[p.source] = taken[p.source][len(p.ids):]
		if len(taken[p.source]) == 0 {
			delete(taken, p.source)
		}
	}
	return bad
}

// unpark ends the blocking reads of readers that have something else to look at.
// again says that it must be repeated: the call may have come before the read.
func (n *node) unpark(c *conn) (again bool, err error) {
	for _, r := range n.readers {
		id := r.parked.Load()
		if id == 0 || !r.call.Load() {
			continue
		}
		c.command(3, "CLIENT")
		c.text("UNBLOCK")
		c.int(id)
		if err := c.flush(ioTimeout); err != nil {
			return false, err
		}
		if _, err := c.want(':'); err != nil {
			return false, fmt.Errorf("CLIENT UNBLOCK: %w", err)
		}
		again = true
	}
	return again, nil
}

// pause waits as long as is due after a number of failures in a row, and reports
// whether ctx still lasts.
func pause(ctx context.Context, tries int) bool {
	d := min(backoffN, backoff0<<min(tries, 10))
	d -= rand.N(d / 2)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
