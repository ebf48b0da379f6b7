package forward

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/internal/wire"
)

// Errors that end a tenure.
var (
	ErrFenced   = errFenced
	ErrWentBack = errWentBack
)

// A Held is one tenure of a shard whose dispatches come from a test.
type Held struct {
	shard *shard
	// Session is what the connection was given to resume.
	Session gateway.Session
}

// A Source feeds a tenure: it passes dispatches to take.
type Source = func(ctx context.Context, h *Held, take func(gateway.Dispatch) error) error

func newHeld(rdb redis.UniversalClient, cfg Config, source Source) (*Held, *crew, error) {
	f, err := New(rdb, gateway.Config{Token: "MTIz.x.y", URL: "ws://127.0.0.1:1", Intents: 1}, cfg)
	if err != nil {
		return nil, nil, err
	}
	h := &Held{shard: f.shards[0]}
	h.shard.source = func(ctx context.Context, session gateway.Session) error {
		h.Session = session
		return source(ctx, h, func(d gateway.Dispatch) error { return h.shard.Dispatch(ctx, d) })
	}
	return h, f.crew, nil
}

// Hold takes shard 0 over and holds it while source runs: the dispatches that
// source passes to take go the whole way. It returns what ended the tenure.
func Hold(ctx context.Context, rdb redis.UniversalClient, cfg Config, source Source) error {
	h, crew, err := newHeld(rdb, cfg, source)
	if err != nil {
		return err
	}
	living, leave := context.WithCancel(ctx)
	defer leave()
	go crew.run(living) // ends with Hold
	record, err := h.shard.takeover(ctx)
	if err != nil {
		return err
	}
	defer crew.release()
	return h.shard.hold(ctx, record)
}

// Run runs the first shard over and over, as Forwarder.Run does.
func Run(ctx context.Context, rdb redis.UniversalClient, cfg Config, source Source) error {
	h, crew, err := newHeld(rdb, cfg, source)
	if err != nil {
		return err
	}
	living, leave := context.WithCancel(ctx)
	defer leave()
	go crew.run(living) // ends with Run
	return h.shard.run(ctx)
}

// Stalled returns why commits do not get through.
func (h *Held) Stalled() error {
	if t := h.shard.current(); t != nil {
		return t.state.stalled()
	}
	return nil
}

// Settled reports the last committed sequence.
func (h *Held) Settled() int64 {
	if t := h.shard.current(); t != nil {
		return t.state.sequence.Load()
	}
	return 0
}

// HeartbeatSequence is what a heartbeat would carry.
func (h *Held) HeartbeatSequence(received int64) int64 { return h.shard.Sequence(received) }

// End tells the shard that Discord ended the session.
func (h *Held) End(ctx context.Context, reason string) { h.shard.SessionEnded(ctx, reason) }

// NewPacer returns the pacer that a Forwarder gives its shards.
func NewPacer(rdb redis.UniversalClient, prefix string, limit func(context.Context) (int, int, time.Duration, error)) gateway.Pacer {
	return &redisPacer{rdb: rdb, prefix: prefix, limit: limit, remaining: newIdentifyRemaining(nil), logger: slog.New(slog.DiscardHandler)}
}

// TrimPasses reports how often the shard's streams were looked at.
func (h *Held) TrimPasses() int { return int(testutil.ToFloat64(h.shard.metrics.trimPasses)) }

// A CommitBench commits one batch over and over.
type CommitBench struct {
	committer *committer
	batch     *batch
}

// NewCommitBench takes shard 0 over and builds a batch of size MESSAGE_CREATEs.
func NewCommitBench(ctx context.Context, rdb redis.UniversalClient, cfg Config, size int, payload []byte) (*CommitBench, error) {
	f, err := New(rdb, gateway.Config{Token: "MTIz.x.y", URL: "ws://127.0.0.1:1", Intents: 1}, cfg)
	if err != nil {
		return nil, err
	}
	s := f.shards[0]
	s.crew.count(1)
	record, err := s.takeover(ctx)
	if err != nil {
		return nil, err
	}
	st := newState(s.logger, s.metrics, newQueue(s.budget, s.metrics.spoolBytes), s.intents, record)
	write := entries{keys: s.keys, codec: s.cfg.Codec, maxPayload: s.cfg.MaxPayload, state: st}
	streams, express := laneKeys(s.keys, s.cfg.Topology.Lanes)
	b := &builder{rdb: rdb, keys: s.keys, store: s.store, queue: st.queue, state: st, write: write, streams: streams, express: express, stock: newStock()}
	var dispatches []gateway.Dispatch
	for i := range size {
		dispatches = append(dispatches, gateway.Dispatch{Type: "MESSAGE_CREATE", Sequence: int64(i + 1), Data: payload, Received: 1, SessionID: "s"})
	}
	if err := b.build(ctx, dispatches, 0); err != nil {
		return nil, err
	}
	return &CommitBench{
		committer: &committer{rdb: rdb, keys: s.keys, state: st, items: write, fence: record.fence, commit: record.commit},
		batch:     b.current,
	}, nil
}

// Commands returns what each commit writes, beside the record, as it is sent, and
// how many commands that is.
func (c *CommitBench) Commands() (text []byte, n int) { return c.batch.buf, c.batch.len() }

// Commit commits the batch once more.
func (c *CommitBench) Commit(ctx context.Context) error {
	return c.committer.commitItems(ctx, c.batch, 0, len(c.batch.items))
}

// Close ends the connection.
func (c *CommitBench) Close() { c.committer.disconnect() }

// A Crew is one process's view of those that may hold the same shards.
type Crew struct{ crew *crew }

// NewCrew returns the crew of a process.
func NewCrew(rdb redis.UniversalClient, cfg Config) (*Crew, error) {
	cfg, _, err := cfg.filled()
	return &Crew{newCrew(rdb, cfg)}, err
}

// Run says that the process lives.
func (c *Crew) Run(ctx context.Context) error { return c.crew.run(ctx) }

// Reserve asks for a place for a shard.
func (c *Crew) Reserve(urgent bool) bool { return c.crew.reserve(urgent) }

// Release gives one back.
func (c *Crew) Release() { c.crew.release() }

// Live returns how many processes are known to live.
func (c *Crew) Live() int {
	c.crew.mu.Lock()
	defer c.crew.mu.Unlock()
	return c.crew.live
}

// A Trimmer trims the streams of shard 0 when a test says so.
type Trimmer struct{ t *trimmer }

// NewTrimmer returns a trimmer for an owner that has just taken the shard over, and
// whose commits fail with what stalled returns. What Redis said begins with said.
func NewTrimmer(rdb redis.UniversalClient, cfg Config, said string) (*Trimmer, error) {
	cfg, _, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	keys := wire.NewShard(cfg.Prefix, 0, cfg.Topology.Shards)
	streams, express := laneKeys(keys, cfg.Topology.Lanes)
	t := &trimmer{
		rdb: rdb, keys: keys, cfg: cfg, metrics: newMetrics(cfg.Metrics, 0), logger: cfg.Logger, streams: append(streams, express...),
		stalled: func() error {
			if said == "" {
				return nil
			}
			return fmt.Errorf("commit of 3 commands: %w", resp.Error(said))
		},
	}
	t.groups.begin(t)
	return &Trimmer{t}, nil
}

// Pass looks at the streams once.
func (t *Trimmer) Pass(ctx context.Context) error { return t.t.pass(ctx) }

// End ends the ownership.
func (t *Trimmer) End() { t.t.groups.end() }
