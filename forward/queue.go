package forward

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/sluicehq/sluice/gateway"
)

// dispatchBytes is what a waiting dispatch costs beyond its payload.
const dispatchBytes = 512

// A budget bounds the bytes that wait for Redis, over all shards of a process.
type budget struct {
	size int64
	sem  *semaphore.Weighted
}

func newBudget(size int64) *budget {
	return &budget{size: size, sem: semaphore.NewWeighted(size)}
}

// cost of a dispatch. One that is larger than the whole budget takes all of it:
// it goes alone, but it goes.
func (b *budget) cost(d *gateway.Dispatch) int64 {
	return min(int64(len(d.Data))+dispatchBytes, b.size)
}

func (b *budget) acquire(ctx context.Context, n int64) error { return b.sem.Acquire(ctx, n) }

func (b *budget) release(n int64) {
	if n > 0 {
		b.sem.Release(n)
	}
}

// A queue holds dispatches between the shard's reader and its builder, within
// the budget. One goroutine pushes, one takes.
type queue struct {
	budget *budget
	spool  prometheus.Gauge // what held is, for those who look on
	ready  chan struct{}    // one slot: signalled while there is something to take, or closed is set

	mu     sync.Mutex // guards what follows
	items  []gateway.Dispatch
	held   int64 // acquired of the budget and not given back
	closed bool
}

func newQueue(b *budget, spool prometheus.Gauge) *queue {
	return &queue{budget: b, spool: spool, ready: make(chan struct{}, 1)}
}

// push blocks while the budget is used up.
func (q *queue) push(ctx context.Context, d gateway.Dispatch) error {
	cost := q.budget.cost(&d)
	if err := q.budget.acquire(ctx, cost); err != nil {
		return err
	}
	q.mu.Lock()
	q.items = append(q.items, d)
	q.held += cost
	q.spool.Set(float64(q.held))
	q.mu.Unlock()
	q.signal()
	return nil
}

// close says that nothing more is pushed.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take appends up to n dispatches of up to maxBytes in all to into (at least
// one, if there is any). ended is true once the queue is closed and empty. The
// cost of what is taken is given back with release.
func (q *queue) take(into []gateway.Dispatch, n, maxBytes int) (out []gateway.Dispatch, cost int64, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := 0
	for ; i < len(q.items) && i < n; i++ {
		d := &q.items[i]
		if maxBytes -= len(d.Data); maxBytes < 0 && i > 0 {
			break
		}
		cost += q.budget.cost(d)
		into = append(into, *d)
	}
	rest := copy(q.items, q.items[i:])
	clear(q.items[rest:])
	q.items = q.items[:rest]
	if rest > 0 {
		q.signal()
	}
	return into, cost, q.closed && rest == 0
}

// release gives back the cost of what was taken.
func (q *queue) release(cost int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= cost
	q.spool.Set(float64(q.held))
	q.budget.release(cost)
}

// drop forgets everything, taken or not, and gives its cost back.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.budget.release(q.held)
	q.items, q.held = nil, 0
	q.spool.Set(0)
}
