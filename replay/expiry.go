package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// DefaultExpire returns what Config.Expire is for types it does not name. Discord
// takes the first answer to an interaction for 3 seconds; a client shows somebody
// typing for 10.
//
// Source: https://discord.com/developers/docs/interactions/receiving-and-responding#interaction-callback
func DefaultExpire() map[string]time.Duration {
	return map[string]time.Duration{interactionCreate: lateInteraction, "TYPING_START": 10 * time.Second}
}

const (
	interactionCreate = "INTERACTION_CREATE"
	lateInteraction   = 3 * time.Second
)

// expiries returns Config.Expire with what it does not name, and what is wrong
// with it. Types that do not expire are left out.
func expiries(given map[string]time.Duration) (all map[string]time.Duration, errs []error) {
	all = DefaultExpire()
	for name, after := range given {
		switch proper, _ := dispatch.TypeOf(name); {
		case proper != "":
			errs = append(errs, fmt.Errorf("Config.Expire names %q, want %s", name, proper))
		case !dispatch.IsType(name) && dispatch.ValidSubject(name) != nil:
			errs = append(errs, fmt.Errorf("Config.Expire names %.100q, want a dispatch type (TYPING_START) or a custom event (orders.created)", name))
		case after < 0:
			errs = append(errs, fmt.Errorf("value of Config.Expire[%q] is %v, want 0 (never) or more", name, after))
		}
		all[name] = after
	}
	maps.DeleteFunc(all, func(_ string, after time.Duration) bool { return after <= 0 })
	return all, errs
}

// A serverClock tells the time as a Redis server does that stamps entries with it.
// The worker's own idea of what time it is does not matter; that it knows how long
// a second is does. The zero value does not know yet. Safe for concurrent use.
type serverClock struct {
	ahead atomic.Int64 // time.Duration of the server's unix time ahead of Worker.clock; 0: not known
}

// hear takes in that the server said now, in answer to a question sent at asked
// and answered by heard, both of Worker.clock. That it said so at the latest
// possible moment is assumed: an entry is rather taken for younger than it is.
func (c *serverClock) hear(now time.Time, asked, heard time.Duration) {
	if heard-asked > maxRoundTrip && c.ahead.Load() != 0 {
		return // what is known is better
	}
	c.ahead.Store(now.UnixNano() - int64(heard))
}

// age returns how long ago, at a time of Worker.clock, an entry was written. ok is
// false if the server's time is not known yet.
func (c *serverClock) age(id entryID, now time.Duration) (age time.Duration, ok bool) {
	ahead := c.ahead.Load()
	if ahead == 0 {
		return 0, false
	}
	return time.Duration(ahead) + now - time.Duration(id.ms)*time.Millisecond, true
}

const (
	maxRoundTrip = 500 * time.Millisecond
	askEvery     = 5 * time.Second
	askAgain     = 200 * time.Millisecond // when it is not known at all
)

// keepTime asks the node's server for its time until ctx ends. Entries do not
// expire before it has answered once.
func (n *node) keepTime(ctx context.Context) {
	for {
		every := askEvery
		if err := n.askTime(ctx); err != nil && n.clock.ahead.Load() == 0 {
			every = askAgain
		}
		timer := time.NewTimer(every)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (n *node) askTime(ctx context.Context) error {
	asked := n.w.clock()
	now, err := n.w.serverTime(ctx, n)
	if err == nil {
		n.clock.hear(now, asked, n.w.clock())
	}
	return err
}

// serverTime asks the server that stamps a node's entries for its time.
func serverTime(ctx context.Context, n *node) (time.Time, error) {
	if cluster, ok := n.w.control.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, n.lanes[0].lease)
		if err != nil {
			return time.Time{}, err
		}
		return master.Time(ctx).Result()
	}
	return n.w.control.Time(ctx).Result()
}

// expired reports whether a task's entry is too old for it to run now. A listener's
// MaxAge goes before what holds for the type. It also notes how long the entry has
// waited, if this is its listener's first run.
func (w *Worker) expired(t *task, now time.Duration) bool {
	e, l := t.entry, t.listener
	age, ok := e.src.lane.node.clock.age(e.id, now)
	if !ok {
		return false
	}
	// An entry that another worker had is taken to have been started there, unless
	// that worker got it too late itself.
	first := t.attempt == 1
	if first {
		w.metrics.waits[e.src.class].Observe(max(0, age).Seconds())
	}
	if age <= w.soonest {
		return false
	}
	late := func(limit time.Duration) bool { return age > limit && (first || e.orphaned > limit) }
	if e.delivery.Type == interactionCreate && late(lateInteraction) {
		w.metrics.lateInteractions.Inc()
	}
	limit := l.maxAge
	if limit == 0 {
		limit = w.config.Expire[e.delivery.Type]
		if e.delivery.Type == interactionCreate { // once it is answered there is more time
			return limit > 0 && late(limit)
		}
	}
	return limit > 0 && age > limit
}

// orphans notes of the reader's items that are pending for others, and have been
// delivered once, how old they were then: what came too late to be started in time
// was not.
func (r *reader) orphans(pending []pendingEntry) {
	now := r.w.clock()
	for _, p := range pending {
		if p.deliveries != 1 || r.w.own(p.consumer) || p.consumer == handedBack {
			continue
		}
		i, found := slices.BinarySearchFunc(r.items, p.id, func(it item, id entryID) int { return it.id.compare(id) })
		if age, ok := r.n.clock.age(p.id, now); found && ok {
			r.items[i].orphaned = age - p.idle
		}
	}
}
