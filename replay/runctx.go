package replay

import (
	"context"
	"sync"
	"time"
)

// A runContext is a listener's context. Most listeners never ask for what costs:
// the timer and the channel are made when Done is first called.
type runContext struct {
	parent   context.Context // ends with the lease
	deadline time.Time

	mu sync.Mutex
	// Guarded by mu.
	timed  context.Context // nil until it is asked for
	cancel context.CancelFunc
	over   bool // the run has returned
}

func (c *runContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *runContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.parent, c.deadline)
		if c.over {
			c.cancel()
		}
	}
	return c.timed.Done()
}

func (c *runContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case c.over:
		return context.Canceled
	case c.parent.Err() != nil:
		return c.parent.Err()
	case !time.Now().Before(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *runContext) Value(key any) any {
	c.mu.Lock()
	timed := c.timed
	c.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return c.parent.Value(key)
}

// end releases what the context holds, once the run has returned.
func (c *runContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}
