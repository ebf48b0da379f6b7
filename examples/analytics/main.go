// Analytics counts messages apart from the bot: a group of its own gets every
// event as well, and nothing it does, fails at or is late with is felt by the
// bot's workers. It takes events many at a time, and begins with what is still in
// the streams from before it was first started.
//
//	go run ./examples/analytics
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/listener"
)

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		t := &tally{counts: make(map[string]int)}
		options := listener.BatchOptions{MaxSize: 500} // or what came within a second
		env.Group("analytics").Add(listener.HandleBatch("tally", "message.*", options, t.add))
		env.OnStop(t.report)
		return nil
	})
}

// A tally stands for a table.
type tally struct {
	mu     sync.Mutex
	counts map[string]int // by event type
}

// add stands for one INSERT of many rows. With d.Key() as their primary key, a
// batch that comes again, because the process was killed before it was
// acknowledged, would change nothing.
func (t *tally) add(_ context.Context, ds []*listener.Delivery) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range ds {
		t.counts[strings.ToLower(d.Type)]++
	}
	fmt.Printf("%d more, now %v\n", len(ds), t.counts)
	return nil
}

func (t *tally) report(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := fmt.Printf("in all %v\n", t.counts)
	return err
}
