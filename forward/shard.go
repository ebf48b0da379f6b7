package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// standbyEvery is the time between two tries to take over a shard that another
// process holds.
const standbyEvery = 500 * time.Millisecond

// A shard is one shard of this process: it takes it over, forwards it for as
// long as it is its own, and begins again.
type shard struct {
	rdb     redis.UniversalClient
	cfg     Config
	keys    wire.Shard
	gateway *gateway.Shard
	source  func(context.Context, gateway.Session) error // runs the connection: gateway.Run
	store   *cache.Store
	metrics *metrics
	events  []dispatch.Pattern
	budget  *budget
	crew    *crew
	intents int
	logger  *slog.Logger

	mu     sync.Mutex // guards what follows
	tenure *tenure    // nil while the shard is not held
	lost   loss       // why the session ended, until the next READY
	gaveUp error      // why the shard is not tried any more

	// Only run uses it: the session and its last committed sequence as this
	// process knew them when its last tenure ended.
	before record
}

func newShard(rdb redis.UniversalClient, gw gateway.Config, cfg Config, cc cache.Config, id int, patterns []dispatch.Pattern, b *budget, crew *crew) (*shard, error) {
	keys := wire.NewShard(cfg.Prefix, id, cfg.Topology.Shards)
	store, err := cache.NewStore(cfg.Prefix, id, cfg.Topology.Shards, cc)
	if err != nil {
		return nil, err
	}
	s := &shard{
		rdb: rdb, cfg: cfg, keys: keys, store: store, metrics: newMetrics(cfg.Metrics, id),
		events: patterns, budget: b, crew: crew, intents: gw.Intents, logger: cfg.Logger.With("shard", id),
	}
	gw.Shard, gw.Shards = id, cfg.Topology.Shards
	gw.Logger, gw.Metrics = cfg.Logger, cfg.Metrics // it names its shard itself
	if s.gateway, err = gateway.New(gw, s); err != nil {
		return nil, err
	}
	s.source = s.gateway.Run
	return s, nil
}

// run holds the shard whenever it is free, until ctx is cancelled.
func (s *shard) run(ctx context.Context) error {
	for {
		record, err := s.takeover(ctx)
		if err != nil {
			return nil // ctx was cancelled
		}
		err = s.hold(ctx, record)
		s.crew.release()
		switch {
		case ctx.Err() != nil && err == nil:
			return nil
		case errors.Is(err, errFenced), errors.Is(err, errWentBack):
			s.logger.Warn("lost the shard", "err", err)
		case err != nil:
			return fmt.Errorf("forward: shard %d: %w", s.keys.ID, err)
		}
	}
}

// takeover waits until the shard is this process's. It fails only with ctx. On
// success a place in the crew is taken.
func (s *shard) takeover(ctx context.Context) (record, error) {
	var (
		wait    backoff
		waiting string // the owner that was logged
		failing bool
		free    time.Time // since when the shard was seen without an owner
	)
	select {
	case <-s.crew.known:
	case <-ctx.Done():
		return record{}, ctx.Err()
	}
	for {
		r, owner, err := s.try(ctx, !free.IsZero() && time.Since(free) > 2*s.cfg.OwnerTTL)
		switch {
		case ctx.Err() != nil:
			if err == nil && owner == "" {
				s.crew.release()
				s.release(ctx)
			}
			return record{}, ctx.Err()
		case errors.Is(err, errShare):
			// Another process is to take it, and has not yet.
			if free.IsZero() {
				free = time.Now()
			}
		case err != nil:
			if !failing {
				failing = true
				s.logger.Error("can't take the shard over; trying again", "err", err)
			}
			if err := wait.wait(ctx); err != nil {
				return record{}, err
			}
			continue
		case owner == "":
			s.logger.Info("holding the shard", "seq", r.sequence, "commit", r.commit, "session", wire.ShortSession(r.sessionID))
			return r, nil
		default:
			free, failing = time.Time{}, false
			if owner != waiting {
				waiting = owner
				s.logger.Info("standing by: another process holds the shard", "owner", owner)
			}
		}
		select {
		case <-time.After(standbyEvery):
		case <-ctx.Done():
			return record{}, ctx.Err()
		}
	}
}

// errShare says that the shard is free and this process has its share already.
var errShare = errors.New("this process has its even share of the shards")

// try tries to take the shard over once, if the crew has a place for it.
func (s *shard) try(ctx context.Context, urgent bool) (r record, owner string, err error) {
	if !s.crew.reserve(urgent) {
		owner, err := s.rdb.Get(ctx, s.keys.Owner()).Result()
		switch {
		case err == nil:
			return record{}, owner, nil
		case errors.Is(err, redis.Nil):
			return record{}, "", errShare
		}
		return record{}, "", fmt.Errorf("owner of shard %d: %w", s.keys.ID, err)
	}
	r, owner, err = takeover(ctx, s.rdb, s.keys, s.cfg.Process, s.cfg.OwnerTTL)
	if err != nil || owner != "" {
		s.crew.release()
	}
	return r, owner, err
}

// A tenure is the time in which a shard is held under one fence.
type tenure struct {
	fence string
	state *state
	queue *queue

	// Only the gateway's reader uses these.
	sessionID string
	accepted  int64 // the last sequence taken in that session
}

// hold forwards the shard until ctx is cancelled (nil, everything that was
// received is committed) or the shard can't be forwarded any more.
func (s *shard) hold(ctx context.Context, r record) error {
	// What runs does so until it is stopped in its order: the reader first, then
	// the builder, which empties the queue, then the committer.
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)

	q := newQueue(s.budget, s.metrics.spoolBytes)
	defer q.drop()
	t := &tenure{
		fence: r.fence, queue: q, state: newState(s.logger, s.metrics, q, s.intents, r),
		sessionID: r.sessionID, accepted: r.sequence,
	}
	session := gateway.Session{ID: r.sessionID, ResumeURL: r.resumeURL, Sequence: r.sequence}
	if r.sessionID != "" && r.intents != int64(s.intents) {
		// A RESUME would keep the intents the session began with.
		s.logger.Info("intents have changed since the session began: identifying", "was", r.intents, "now", s.intents)
		s.SessionEnded(ctx, "intents changed")
		session = gateway.Session{}
	}
	lost := r // the session that a new one would follow
	if r.sessionID == "" && s.before.sessionID != "" {
		s.SessionEnded(ctx, "redis has lost the session record")
		lost = s.before
		t.state.sequence.Store(lost.sequence)
		t.state.fresh.Store(true)
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.setTenure(t)
	defer s.setTenure(nil)
	defer s.metrics.stalled.Set(0) // whoever holds it then tells

	batches := make(chan *batch) // a batch waits with its builder, growing
	stock := newStock()
	write := entries{keys: s.keys, codec: s.cfg.Codec, maxPayload: s.cfg.MaxPayload, state: t.state}
	streams, express := laneKeys(s.keys, s.cfg.Topology.Lanes)
	builder := &builder{
		rdb: s.rdb, keys: s.keys, store: s.store, queue: t.queue, state: t.state, write: write,
		events: events{patterns: s.events}, out: batches, stock: stock, lost: s.takeLoss,
		streams: streams, express: express, sessionID: lost.sessionID, built: lost.sequence,
	}
	committer := &committer{rdb: s.rdb, keys: s.keys, state: t.state, items: write, stock: stock, fence: r.fence, commit: r.commit}
	trimmer := &trimmer{
		rdb: s.rdb, keys: s.keys, cfg: s.cfg, metrics: s.metrics, logger: s.logger,
		store: s.store, fence: r.fence, stalled: t.state.stalled, streams: append(append([]string(nil), streams...), express...),
	}

	group, groupCtx := errgroup.WithContext(life)
	var readErr error // ends the tenure once everything received is committed
	group.Go(func() error {
		readErr = s.read(ctx, groupCtx, t, session)
		return nil
	})
	group.Go(func() error { return builder.run(groupCtx) })
	// Both end when the builder has closed batches and they are committed.
	background, stop := context.WithCancel(groupCtx)
	group.Go(func() error {
		defer stop()
		return committer.run(groupCtx, batches)
	})
	group.Go(func() error { return s.keepOwning(background, t.fence) })
	group.Go(func() error { return trimmer.run(background) })

	drained := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(s.cfg.DrainTimeout, func() {
			end(fmt.Errorf("what was received could not be committed within %v of the stop", s.cfg.DrainTimeout))
		})
		context.AfterFunc(groupCtx, func() { timer.Stop() })
	})
	err := group.Wait()
	drained()
	s.before = record{sessionID: builder.sessionID, sequence: t.state.sequence.Load()}
	if cause := context.Cause(life); err != nil && cause != nil {
		err = cause
	}
	if err == nil {
		err = readErr
	}
	if !errors.Is(err, errFenced) {
		s.release(ctx)
	}
	return err
}

// read runs the gateway connection, until ctx is cancelled or the tenure ends.
func (s *shard) read(ctx, life context.Context, t *tenure, session gateway.Session) error {
	defer t.queue.close()
	reading, stop := context.WithCancel(life)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	err := s.source(reading, session)
	if reading.Err() != nil {
		return nil // it was stopped; what stopped it says why
	}
	return err
}

// prepare empties the memory, which belongs to a fence, checks that every lane can
// be appended to, and records the topology where Redis has lost it. It fails if
// another one was recorded meanwhile.
func (s *shard) prepare(ctx context.Context) error {
	var wait backoff
	failing := false
	for {
		s.store.Reset()
		err := s.store.Load(ctx, s.rdb)
		if err == nil {
			err = s.checkLanes(ctx)
		}
		if err == nil {
			err = s.checkTopology(ctx)
		}
		var other *TopologyError
		if err == nil || errors.As(err, &other) {
			return err
		}
		if !failing {
			failing = true
			s.logger.Error("can't begin to forward; trying again", "err", err)
		}
		if wait.wait(ctx) != nil {
			return nil // the reader sees ctx too
		}
	}
}

func (s *shard) checkTopology(ctx context.Context) error {
	t, key := s.cfg.Topology, wire.TopologyKey(s.cfg.Prefix)
	recorded, err := establish(ctx, s.rdb, key, t, Plan{Application: t.Application, Shards: t.Shards, Logger: s.logger})
	if err == nil && recorded.Lanes != t.Lanes {
		err = &TopologyError{Key: key, What: "number of lanes", Recorded: fmt.Sprint(recorded.Lanes), Wanted: fmt.Sprint(t.Lanes), Advice: "start the gateway again"}
	}
	return err
}

func (s *shard) checkLanes(ctx context.Context) error {
	streams, express := laneKeys(s.keys, s.cfg.Topology.Lanes)
	pipe := s.rdb.Pipeline()
	types := make(map[string]*redis.StatusCmd)
	for _, key := range append(streams, express...) {
		types[key] = pipe.Type(ctx, key)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("types of the lanes: %w", err)
	}
	var errs []error
	for key, cmd := range types {
		if kind := cmd.Val(); kind != "stream" && kind != "none" {
			errs = append(errs, &typeError{key: key, kind: kind})
		}
	}
	return errors.Join(errs...)
}

// keepOwning renews the ownership, and ends the tenure when it is gone.
func (s *shard) keepOwning(ctx context.Context, fence string) error {
	ticker := time.NewTicker(s.cfg.OwnerTTL / 3)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		held, err := renew(ctx, s.rdb, s.keys, s.cfg.Process, fence, s.cfg.OwnerTTL)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !held:
			return errFenced
		case err != nil && !failing:
			s.logger.Warn("can't renew the ownership; trying again", "err", err)
		}
		failing = err != nil
	}
}

func (s *shard) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := release(ctx, s.rdb, s.keys, s.cfg.Process); err != nil {
		s.logger.Warn("can't release the shard; it runs out by itself", "err", err)
	}
}

func (s *shard) setTenure(t *tenure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenure = t
}

func (s *shard) current() *tenure {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenure
}

// refuse notes that Discord will not have the shard.
func (s *shard) refuse(err error) {
	s.logger.Error("discord refuses the shard; it is given up", "err", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaveUp = err
}

// ready reports why the shard is held and not forwarded.
func (s *shard) ready() error {
	s.mu.Lock()
	t, gaveUp := s.tenure, s.gaveUp
	s.mu.Unlock()
	if gaveUp != nil {
		return gaveUp
	}
	if t == nil {
		return nil
	}
	if err := t.state.stalled(); err != nil {
		return fmt.Errorf("shard %d is stalled: %w", s.keys.ID, err)
	}
	if !s.gateway.Status().Connected {
		return fmt.Errorf("shard %d is not connected to Discord", s.keys.ID)
	}
	return nil
}

// Check implements gateway.Handler: only the holder connects.
func (s *shard) Check(ctx context.Context) error {
	t := s.current()
	if t == nil {
		return errFenced
	}
	held := false
	if err := t.state.retry(ctx, func() (err error) {
		held, err = renew(ctx, s.rdb, s.keys, s.cfg.Process, t.fence, s.cfg.OwnerTTL)
		return err
	}); err != nil {
		return err
	}
	if !held {
		return errFenced
	}
	return nil
}

// Dispatch implements gateway.Handler: it puts a dispatch into the queue.
func (s *shard) Dispatch(ctx context.Context, d gateway.Dispatch) error {
	t := s.current()
	if t == nil {
		return errFenced
	}
	s.metrics.received.Inc()
	if d.SessionID != t.sessionID {
		t.sessionID, t.accepted = d.SessionID, 0
		t.state.fresh.Store(true)
	}
	if d.Sequence != 0 {
		if d.Sequence <= t.accepted {
			s.metrics.repeated.Inc()
			return nil
		}
		t.accepted = d.Sequence
	}
	return t.queue.push(ctx, d)
}

// SessionEnded implements gateway.Handler.
func (s *shard) SessionEnded(_ context.Context, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = loss{reason: reason, at: time.Now()}
}

// takeLoss returns why the session before ended.
func (s *shard) takeLoss() loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lost
	s.lost = loss{}
	if l.reason == "" {
		l.reason = "unknown"
	}
	return l
}

// Sequence implements gateway.Handler: a heartbeat acknowledges what is
// committed, so that Discord keeps what is not.
func (s *shard) Sequence(received int64) int64 {
	t := s.current()
	if t == nil || t.state.fresh.Load() {
		return 0
	}
	return min(t.state.sequence.Load(), received)
}
