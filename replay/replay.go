// Package replay is a worker: it reads the entries of the lanes it holds, runs
// the listeners they are for, and acknowledges an entry once all of them have
// ended.
//
// Lanes are shared evenly among the workers of a group, each held by one of them
// at a time under a lease. A listener takes the entries of one guild (or channel,
// or user) in their order, one after another; everything else runs side by side.
// What is not acknowledged is delivered again: to this worker if a listener
// failed, to another if this one is gone.
//
// Everything the worker does to Redis it does on connections of its own, made
// with the options of the client it was given.
package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
)

// A Worker replays entries into the listeners of a registry. Make one with New.
// Its methods are safe for concurrent use; Run is called once.
type Worker struct {
	config                                       Config
	id                                           string // holds leases: the consumer's name and something no other process has
	log                                          *slog.Logger
	metrics                                      *metrics
	health                                       health
	desk                                         *desk
	match                                        func(eventType string) []*bound
	all                                          []*bound
	given                                        redis.UniversalClient
	givenUp, stuck, deaths, drops, lapses, begun sparing // log lines

	missing atomic.Int32    // lanes of the share that are not held
	quiet   chan struct{}   // capacity 1: a lane that is to be handed over may be still
	letters chan DeadLetter // to be told; full: they are not. nil: nobody wants to know

	epoch   time.Time     // what clock counts from
	soonest time.Duration // an entry that is younger is too old for nobody
	// serverTime asks the server that stamps a node's entries.
	serverTime func(context.Context, *node) (time.Time, error)
	start      string // behind which id a group begins; made by Run
	started    atomic.Bool
	layout     atomic.Pointer[layout]
	runners    sync.WaitGroup

	control redis.UniversalClient // scripts; made by Run
}

// A layout is the topology with all its lanes.
type layout struct {
	topology wire.Topology
	lanes    []*lane // shard by shard
	nodes    []*node
	sources  []*source
}

// A bound is a listener with what the configuration says about it.
type bound struct {
	*listener.Bound
	name        string
	timeout     time.Duration
	maxAge      time.Duration
	maxAttempts int
	unordered   bool
	off         bool
	gather      *gather // of a batch listener

	counts counts
}

// ErrClient is wrapped by New's error for a Redis client of a kind that a worker
// can't make connections from.
var ErrClient = errors.New("want a *redis.Client or a *redis.ClusterClient")

// ErrStarted is returned by a second Run.
var ErrStarted = errors.New("replay: the worker was run before; make another with New")

// New returns a worker for the registry's listeners, which it takes into use:
// nothing can be added afterwards. The client is for one Redis (also behind
// sentinels) or for a cluster; it stays the caller's to close. New does no I/O.
// The error names every field of config that is wrong and every listener that
// would run nowhere, or wraps ErrClient, or listener.ErrNoSession for handlers of
// AddHandler without a session to call them with.
func New(client redis.UniversalClient, registry *listener.Registry, config Config) (*Worker, error) {
	c, err := config.withDefaults()
	errs := []error{err}
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		errs = append(errs, fmt.Errorf("client is a %T: %w", client, ErrClient))
	}
	if registry == nil {
		errs = append(errs, errors.New("registry is nil"))
	} else {
		errs = append(errs, refuse(registry, c.Events))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	w := &Worker{
		config:  c,
		id:      c.Consumer + "/" + randomText(),
		log:     c.Logger.With("group", c.Group),
		metrics: newMetrics(c.Metrics, c.Group),
		desk:    newDesk(),
		given:   client,
		quiet:   make(chan struct{}, 1),
		epoch:   time.Now(),

		serverTime: serverTime,
	}
	w.health.log = w.log
	w.health.errors = w.metrics.errors
	w.soonest = lateInteraction
	for _, after := range c.Expire {
		w.soonest = min(w.soonest, after)
	}
	known := make(map[*listener.Bound]*bound)
	for _, l := range registry.All() {
		o := l.Options()
		b := &bound{
			Bound: l, name: l.Name(), timeout: o.Timeout, maxAge: o.MaxAge, maxAttempts: o.MaxAttempts,
			unordered: o.Unordered, off: slices.Contains(c.Off, l.Name()),
		}
		if b.timeout == 0 {
			b.timeout = c.ListenerTimeout
		}
		if b.maxAttempts == 0 {
			b.maxAttempts = c.MaxDeliveries
		}
		if o, ok := l.Batch(); ok {
			b.gather = &gather{size: o.MaxSize, wait: o.MaxWait}
			w.desk.core.gathers = append(w.desk.core.gathers, b.gather)
		}
		if b.maxAge > 0 {
			w.soonest = min(w.soonest, b.maxAge)
		}
		b.counts = w.metrics.of(b.name)
		known[l] = b
		w.all = append(w.all, b)
	}
	w.match = func(eventType string) []*bound {
		found := registry.Match(eventType)
		bounds := make([]*bound, len(found))
		for i, l := range found {
			bounds[i] = known[l]
		}
		return bounds
	}
	return w, nil
}

// Owns reports whether this worker now holds the lane that the guild's entries
// come through, so that what it keeps in memory about the guild is current. It is
// false before Run and for an id that is no number.
func (w *Worker) Owns(guildID string) bool {
	l := w.layout.Load()
	if l == nil {
		return false
	}
	shard, ok := wire.ShardOf(guildID, l.topology.Shards)
	if !ok {
		return false
	}
	lane := l.lanes[shard*l.topology.Lanes+wire.Lane([]byte(guildID), l.topology.Lanes)]
	return lane.valid(w.clock())
}

// Ready returns nil if the worker does what it is for: Redis answers, the lanes
// it holds are read, and there is room for more entries. Otherwise it says what
// is wrong.
func (w *Worker) Ready() error {
	l := w.layout.Load()
	if l == nil {
		if err := w.health.err(); err != nil {
			return fmt.Errorf("replay: not started: %w", err)
		}
		return errors.New("replay: not started")
	}
	errs := []error{w.health.err()}
	if missing := w.missing.Load(); missing > 0 {
		errs = append(errs, fmt.Errorf("%d lanes of this worker's share are not yet held", missing))
	}
	if behind := w.desk.behind(l.sources); behind > 0 {
		errs = append(errs, fmt.Errorf("%d streams are not yet read: what is pending in them goes first", behind))
	}
	for _, n := range l.nodes {
		for _, r := range n.readers {
			if r.stuffed.Load() {
				entries, bytes := w.desk.held(r.class)
				errs = append(errs, fmt.Errorf("%d entries (%d MiB) are in hand, no more are read; most wait for listener %q", entries, bytes>>20, w.desk.slowest(l.sources)))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

// clock returns the time since the worker was made; it never goes back.
func (w *Worker) clock() time.Duration { return time.Since(w.epoch) }

// limit returns how many entries of a class may be in hand.
func (w *Worker) limit(class class) int {
	if class == express {
		return max(1, w.config.MaxInHand/4)
	}
	return w.config.MaxInHand
}
