package replay

import (
	"slices"
	"time"
)

// A gather collects what a batch listener is to run for.
type gather struct {
	size  int           // of a whole batch
	wait  time.Duration // after the first task until the batch runs as it is
	tasks []*task       // in the order they came
	whole bool          // in core.whole
	round int           // counts the batches: which one a timer is for
}

// gather adds a task to its listener's next batch.
func (c *core) gather(g *gather, t *task) {
	g.tasks = append(g.tasks, t)
	if len(g.tasks) == 1 {
		c.begun = append(c.begun, g)
	}
	if len(g.tasks) >= g.size {
		c.ripen(g)
	}
}

// ripen says that a gather's batch is to run, whole or not.
func (c *core) ripen(g *gather) {
	if !g.whole && len(g.tasks) > 0 {
		g.whole = true
		c.whole = append(c.whole, g)
	}
}

// hurry makes all batches run as they are: places are short.
func (c *core) hurry() {
	for _, g := range c.gathers {
		c.ripen(g)
	}
}

// batch takes the tasks of a batch and returns its first one, with the others as
// its mates; nil if there is none.
func (c *core) batch() *task {
	for len(c.whole) > 0 {
		g := c.whole[0]
		c.whole = slices.Delete(c.whole, 0, 1)
		g.whole = false
		g.round++
		var first *task
		n := 0
		for _, t := range g.tasks {
			if first != nil && 1+len(first.mates) == g.size {
				break
			}
			n++
			if t.state != queued {
				continue
			}
			if !t.entry.src.open { // the lane closes
				t.state = dropped
				continue
			}
			t.start()
			t.mates = nil
			if first == nil {
				first = t
			} else {
				first.mates = append(first.mates, t)
			}
		}
		g.tasks = slices.Delete(g.tasks, 0, n)
		if len(g.tasks) >= g.size {
			c.ripen(g)
		} else if len(g.tasks) > 0 {
			c.begun = append(c.begun, g)
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// sift takes out what drop has.
func (g *gather) sift() {
	g.tasks = slices.DeleteFunc(g.tasks, func(t *task) bool { return t.state != queued })
}
