// Package sluice makes a Discord bot's main: a worker that runs listeners on what
// a gateway process forwards, or a whole bot in one process.
//
//	func main() {
//		sluice.Worker(func(ctx context.Context, env *sluice.Env) error {
//			env.Add(listener.MessageUpdate.Handle("edit-log", editLog))
//			return nil
//		})
//	}
//
// The gateway binary (cmd/gateway) holds the connections to Discord and puts
// every dispatch, with the state its entity had before, into Redis streams. Any
// number of workers take them from there; an entry is acknowledged once every
// listener has succeeded. See docs/guarantees.md for what holds when something
// dies.
package sluice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/internal/program"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

// Env is what a setup function builds on. Its listeners are registered before
// the worker runs; afterwards the registries are closed. The other fields may be
// used from listeners, by any number of them at once.
type Env struct {
	// Registry takes the listeners of the configured group (replay.group). A group
	// without listeners is not worked for.
	*listener.Registry
	// Session is ready for REST calls, with State.User set; it has no gateway
	// connection. It is nil if no token is configured.
	Session *discordgo.Session
	// Cache reads what the gateway has cached: what is now.
	Cache *cache.Reader
	// Redis is the client the worker uses too.
	Redis redis.UniversalClient
	// Publisher appends events of one's own.
	Publisher *forward.Publisher
	Log       *slog.Logger
	// Events are the patterns of what the gateway forwards (forward.events); empty:
	// everything. A listener for what is not forwarded is an error.
	Events []string

	group  string
	groups []group
	stops  []func(ctx context.Context) error
}

type group struct {
	name     string
	registry *listener.Registry
}

// Group returns the registry of another group: it gets every entry as well, and
// has its own place in the streams, its own retries and its own dead letters.
// What its listeners do holds up no other group's. The configured group's own
// name gives the Env's registry. All processes of a group have the same listeners:
// each takes a part of the entries, and only its own listeners get them.
func (e *Env) Group(name string) *listener.Registry {
	if name == e.group {
		return e.Registry
	}
	for _, g := range e.groups {
		if g.name == name {
			return g.registry
		}
	}
	r := listener.New()
	e.groups = append(e.groups, group{name, r})
	return r
}

// OnStop has f called once the listeners have ended, the last one given first,
// with 10 s of time for all of them. It is called also if setup fails.
func (e *Env) OnStop(f func(ctx context.Context) error) { e.stops = append(e.stops, f) }

// stopTimeout bounds what is given to OnStop.
const stopTimeout = 10 * time.Second

func (e *Env) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for _, f := range slices.Backward(e.stops) {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// Worker is the main of a worker. It reads the configuration (file, environment,
// flags; see docs/configuration.md), waits for Redis and for a gateway to have
// recorded its topology, calls setup, and runs the listeners until SIGINT or
// SIGTERM. It does not return: it ends the process, with 0 after a clean stop, 1
// after a failure, 2 if it is configured wrongly.
func Worker(setup func(ctx context.Context, env *Env) error) {
	exit(program.Program{
		About: "This is a worker of Sluice: it runs listeners on the dispatches that a gateway forwards.",
		Run:   func(ctx context.Context, p *program.Process) error { return runWorker(ctx, p, setup) },
	})
}

// Bot is Worker with the gateway in the process too. Dispatches take the same
// way, through the streams, so that moving to several processes changes nothing
// but the main. It needs the bot's token.
func Bot(setup func(ctx context.Context, env *Env) error) {
	exit(program.Program{
		About:      "This is a bot on Sluice: gateway and worker in one process.",
		NeedsToken: true,
		Run:        func(ctx context.Context, p *program.Process) error { return runBot(ctx, p, setup) },
	})
}

func exit(p program.Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(program.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, p))
}

// runWorker runs a worker until ctx is cancelled.
func runWorker(ctx context.Context, p *program.Process, setup func(context.Context, *Env) error) error {
	rdb, err := p.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	return work(ctx, p, rdb, setup, func(workers []*replay.Worker) {
		p.SetReady(func(context.Context) error { return workersReady(workers) })
	})
}

// runBot runs gateway and worker until ctx is cancelled: the gateway stops
// first, then the worker.
func runBot(ctx context.Context, p *program.Process, setup func(context.Context, *Env) error) error {
	rdb, err := p.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	forwarder, err := p.Forwarder(ctx, rdb)
	if err != nil {
		return err
	}
	working, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWorking(nil)
	group, forwarding := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer stopWorking(nil)
		return forwarder.Run(forwarding)
	})
	group.Go(func() error {
		return work(working, p, rdb, setup, func(workers []*replay.Worker) {
			p.SetReady(func(ctx context.Context) error { return errors.Join(forwarder.Ready(ctx), workersReady(workers)) })
		})
	})
	return group.Wait()
}

// work sets a worker up and runs it until ctx is cancelled.
func work(ctx context.Context, p *program.Process, rdb redis.UniversalClient, setup func(context.Context, *Env) error, started func([]*replay.Worker)) (err error) {
	topology, err := awaitTopology(ctx, p, rdb)
	if err != nil {
		return err
	}
	env := &Env{Registry: listener.New(), Redis: rdb, Log: p.Log, Events: p.Config.Forward.Events, group: p.Config.Replay.Group}
	if env.Cache, err = cache.NewReader(rdb, p.Config.Redis.Prefix, topology.Shards); err != nil {
		return err
	}
	if env.Publisher, err = forward.NewPublisher(rdb, p.Config.Redis.Prefix, topology); err != nil {
		return err
	}
	if p.Config.Discord.Token != "" {
		if env.Session, err = newSession(ctx, p, env.Cache); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, env.stop(ctx)) }()
	if err := setup(ctx, env); err != nil {
		return fmt.Errorf("setup: %w", err)
	}
	var workers []*replay.Worker
	for _, g := range append([]group{{env.group, env.Registry}}, env.groups...) {
		if env.Session != nil {
			g.registry.SetSession(env.Session)
		} else if g.registry.NeedsSession() {
			return fmt.Errorf("group %q has discordgo handlers, which are called with a session: %w", g.name, p.Config.RequireToken())
		}
		if len(g.registry.All()) == 0 {
			continue // a worker would take the group's entries and acknowledge them unheard
		}
		settings := p.Config.ReplayConfig()
		settings.Group, settings.Logger, settings.Metrics = g.name, p.Log, p.Metrics
		w, err := replay.New(rdb, g.registry, settings)
		if err != nil {
			return fmt.Errorf("group %q: %w", g.name, err)
		}
		workers = append(workers, w)
	}
	if len(workers) == 0 {
		return errors.New("setup has added no listener")
	}
	started(workers)
	running, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		running.Go(func() error { return w.Run(ctx) })
	}
	return running.Wait()
}

func workersReady(workers []*replay.Worker) error {
	var errs []error
	for _, w := range workers {
		errs = append(errs, w.Ready())
	}
	return errors.Join(errs...)
}

// awaitTopology waits until a gateway has recorded its topology.
func awaitTopology(ctx context.Context, p *program.Process, rdb redis.UniversalClient) (forward.Topology, error) {
	waiting := false
	for {
		t, ok, err := forward.ReadTopology(ctx, rdb, p.Config.Redis.Prefix)
		if err == nil && ok {
			return t, nil
		}
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		if !waiting {
			waiting = true
			p.Log.Warn("waiting for a gateway to record the topology", "prefix", p.Config.Redis.Prefix, "err", err)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return t, ctx.Err()
		}
	}
}
