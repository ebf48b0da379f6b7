package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

const (
	topologyEvery = time.Second
	ackTimeout    = 5 * time.Second // for the last acks and the handing over of lanes
)

var errNoTopology = errors.New("no topology is recorded yet; a gateway records it when it first starts")

// Run waits until a gateway has recorded the deployment's topology, then takes
// lanes and replays their entries until ctx ends. Then it reads no more, lets the
// listeners that run end within Config.DrainTimeout, acknowledges what has ended,
// hands its lanes over and returns nil. It returns an error only for a topology
// that it can't use, one that wraps ErrServer for such a server, and ErrStarted if
// it was called before.
func (w *Worker) Run(ctx context.Context) error {
	if !w.started.CompareAndSwap(false, true) {
		return ErrStarted
	}
	w.control = w.controlClient()
	defer w.control.Close()
	topology, err := w.awaitTopology(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if err := w.check(ctx, topology); err != nil {
		return err
	}
	_, cluster := w.given.(*redis.ClusterClient)
	lay := newLayout(w, topology, cluster)
	w.log.Info("worker starts", "consumer", w.id, "shards", topology.Shards, "lanes", len(lay.lanes), "listeners", len(w.all))
	w.warnOff()

	// Three lives: reading ends with ctx, listeners when they have had their time,
	// what serves both of them last.
	runs, endRuns := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endRuns(nil)
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	defer endServing()

	var reading, services sync.WaitGroup
	k := newKeeper(w, lay, runs)
	for range w.config.Concurrency {
		w.startRunner(plain)
	}
	for range max(1, w.config.Concurrency/8) {
		w.startRunner(express)
	}
	for _, n := range lay.nodes {
		if err := n.askTime(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("can't ask Redis for its time; until it answers nothing expires", "err", err)
		}
		services.Go(func() { n.run(serving) })
		services.Go(func() { n.keepTime(serving) })
		for _, r := range n.readers {
			reading.Go(func() { r.run(ctx) })
		}
	}
	services.Go(func() { w.watch(serving) })
	services.Go(func() { (&clerk{w: w}).run(serving) })
	var telling sync.WaitGroup
	if w.config.OnDead != nil {
		w.letters = make(chan DeadLetter, maxUntold)
		telling.Go(w.tell)
	}
	w.layout.Store(lay)
	k.run(ctx)

	w.log.Info("worker stops")
	w.drain(k, endRuns)
	for _, n := range lay.nodes {
		for _, r := range n.readers {
			r.kick()
		}
	}
	reading.Wait()
	w.desk.close()
	late := w.join()
	endServing()
	services.Wait()
	if w.letters != nil {
		close(w.letters)
		telling.Wait()
	}
	if len(late) > 0 {
		w.log.Error("listeners have not returned and are left behind", "listeners", late)
	}
	w.log.Info("worker stopped")
	return nil
}

// drain hands the lanes over as the listeners end, and ends the listeners'
// contexts when their time is up.
func (w *Worker) drain(k *keeper, endRuns context.CancelCauseFunc) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(k.runs), w.config.DrainTimeout+ackTimeout, errStopped)
	defer cancel()
	timer := time.AfterFunc(w.config.DrainTimeout, func() { endRuns(errStopped) })
	defer timer.Stop()
	k.leave(ctx)
	if k.count(closing) == 0 {
		return
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(k.runs), time.Second)
	defer cancel()
	for _, group := range k.groups {
		k.giveUp(last, slices.DeleteFunc(slices.Clone(group), func(l *lane) bool { return l.state == free }))
	}
}

var errStopped = errors.New("replay: the worker stops, and the time for listeners to end is up")

// join waits for the runners. Listeners that do not return are named.
func (w *Worker) join() (late []string) {
	done := make(chan struct{})
	go func() { // ends with the last runner
		defer close(done)
		w.runners.Wait()
	}()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	w.desk.mu.Lock()
	defer w.desk.mu.Unlock()
	for r := range w.desk.runners {
		if r.task != nil && r.deadline.Load() != 0 {
			late = append(late, r.task.listener.name)
		}
	}
	slices.Sort(late)
	return slices.Compact(late)
}

// awaitTopology waits for the topology and returns it, or the zero value if ctx
// ends first.
func (w *Worker) awaitTopology(ctx context.Context) (wire.Topology, error) {
	const name = "the topology"
	for {
		record, err := w.control.HGetAll(ctx, wire.TopologyKey(w.config.Prefix)).Result()
		if err == nil {
			err = w.begin(ctx)
		}
		if ctx.Err() != nil {
			return wire.Topology{}, nil
		}
		if err == nil {
			t, ok, err := wire.ParseTopology(record)
			if err != nil {
				return wire.Topology{}, fmt.Errorf("replay: %s: %w", wire.TopologyKey(w.config.Prefix), err)
			}
			if ok {
				w.health.ok(name)
				return t, nil
			}
			w.health.fail(name, errNoTopology)
		} else {
			w.health.fail(name, err)
		}
		timer := time.NewTimer(topologyEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return wire.Topology{}, nil
		}
	}
}

// begin works out behind which id a group begins. "$" is fixed here, once: a lane's
// group that has to be made later, because it was lost while another worker had the
// lane, passes over nothing that has come since.
func (w *Worker) begin(ctx context.Context) error {
	w.start = w.config.Start
	if w.start != "$" {
		return nil
	}
	now, err := w.control.Time(ctx).Result()
	if err != nil {
		return fmt.Errorf("time of the server: %w", err)
	}
	w.start = behind(now)
	return nil
}

// controlClient returns a client for scripts, with connections that listeners
// can't use up and answers in time for the leases.
func (w *Worker) controlClient() redis.UniversalClient {
	timeout := min(max(w.config.Lease/4, 100*time.Millisecond), 3*time.Second)
	switch given := w.given.(type) {
	case *redis.ClusterClient:
		opt := *given.Options()
		opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = timeout, timeout, timeout
		opt.PoolSize, opt.MinIdleConns, opt.MaxActiveConns = 8, 0, 0
		opt.ContextTimeoutEnabled = true
		opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(&opt)
	default:
		opt := *given.(*redis.Client).Options()
		opt.ReadTimeout, opt.WriteTimeout, opt.PoolTimeout = timeout, timeout, timeout
		opt.PoolSize, opt.MinIdleConns, opt.MaxActiveConns = 8, 0, 0
		opt.ContextTimeoutEnabled = true
		opt.MaxRetries, opt.DialerRetries = 1, 1
		redisclient.Unshare(&opt)
		return redis.NewClient(&opt)
	}
}

// warnOff warns of names in Config.Off that no listener has.
func (w *Worker) warnOff() {
	for _, name := range w.config.Off {
		if !slices.ContainsFunc(w.all, func(b *bound) bool { return b.name == name }) {
			w.log.Warn("a listener to pass over does not exist in this group", "listener", name)
		}
	}
}
