package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
)

const typeReady = "READY"

// A builder turns dispatches into batches, in order. It owns the shard's cache.
type builder struct {
	rdb    redis.UniversalClient
	keys   wire.Shard
	store  *cache.Store
	queue  *queue
	state  *state
	write  entries
	events events
	out    chan<- *batch
	stock  stock
	lost   func() loss // what is known of the end of the session before

	streams, express []string // keys by lane

	session   short  // of the dispatches being built
	sessionID string // of the record
	built     int64  // sequence of the last dispatch built in that session; 0: none

	number  uint64 // of the last batch begun
	current *batch
	cost    int64 // taken from the queue since the last batch was handed over

	taken   []gateway.Dispatch
	changes []cache.Change
	refs    []*cache.Change
}

// short remembers the short hash of the session seen last.
type short struct{ id, hash string }

func (s *short) of(id string) string {
	if s.id != id {
		s.id, s.hash = id, wire.ShortSession(id)
	}
	return s.hash
}

// A loss is what is known of why a session ended.
type loss struct {
	reason string
	at     time.Time
}

// run builds until the queue is closed and empty. It closes out.
func (b *builder) run(ctx context.Context) error {
	defer close(b.out)
	for {
		b.store.Confirm(b.state.last())
		items, bytes := 0, 0
		if b.current != nil {
			items, bytes = len(b.current.items), b.current.bytes
		}
		var (
			cost  int64
			ended bool
		)
		full := b.current != nil && b.current.full()
		if !full {
			b.taken, cost, ended = b.queue.take(b.taken[:0], maxBatch-items, maxBatchBytes-bytes)
		}
		if len(b.taken) > 0 && !full {
			b.cost += cost
			if err := b.add(ctx, b.taken); err != nil {
				return err
			}
			clear(b.taken)
			continue
		}
		if b.current.empty() {
			if ended {
				return nil
			}
			select {
			case <-b.queue.ready:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		more := b.queue.ready
		if full {
			more = nil // the queue stays signalled; there is no room
		}
		b.current.cost = b.cost
		select {
		case b.out <- b.current:
			b.current, b.cost = nil, 0
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add builds dispatches into the current batch. A READY takes batches of its own.
func (b *builder) add(ctx context.Context, dispatches []gateway.Dispatch) error {
	for len(dispatches) > 0 {
		n := slices.IndexFunc(dispatches, func(d gateway.Dispatch) bool { return d.Type == typeReady })
		if n < 0 {
			n = len(dispatches)
		}
		if n > 0 {
			if err := b.build(ctx, dispatches[:n], 0); err != nil {
				return err
			}
			dispatches = dispatches[n:]
			continue
		}
		if err := b.ready(ctx, dispatches[0]); err != nil {
			return err
		}
		dispatches = dispatches[1:]
	}
	return nil
}

func (b *builder) begin() {
	if b.current == nil {
		b.number++
		b.current = b.stock.take(b.number)
		b.store.Begin(b.number)
	}
}

// build scans dispatches, looks up what was known before them in one round trip
// and adds their commands to the current batch.
func (b *builder) build(ctx context.Context, dispatches []gateway.Dispatch, flags wire.Flags) error {
	b.begin()
	b.current.items = slices.Grow(b.current.items, len(dispatches))
	b.current.starts = slices.Grow(b.current.starts, 2*len(dispatches))
	if cap(b.changes) < len(dispatches) {
		b.changes = make([]cache.Change, len(dispatches))
	}
	b.changes = b.changes[:len(dispatches)]
	b.refs = b.refs[:0]
	for i := range dispatches {
		d, c := &dispatches[i], &b.changes[i]
		if err := c.Set(d.Type, d.Data, d.Received); err != nil || !c.Object() {
			b.state.metrics.unscannable.Inc()
		}
		b.refs = append(b.refs, c)
	}
	if err := b.state.retry(ctx, func() error {
		_, err := b.store.Prefetch(ctx, b.rdb, b.refs)
		return err
	}); err != nil {
		return err
	}
	for i := range dispatches {
		b.gap(&dispatches[i])
		if err := b.item(&dispatches[i], &b.changes[i], flags); err != nil {
			return err
		}
	}
	clear(b.changes)
	return nil
}

// item adds one dispatch to the current batch.
func (b *builder) item(d *gateway.Dispatch, c *cache.Change, flags wire.Flags) error {
	it := item{from: b.current.len(), xadd: -1, sequence: d.Sequence}
	if err := b.store.Apply(c, b.current); err != nil {
		return fmt.Errorf("%s, sequence %d: %w", d.Type, d.Sequence, err)
	}
	if c.Sync {
		flags |= wire.Sync
	}
	if c.Partial {
		flags |= wire.Partial
	}
	if b.events.wanted(d.Type) {
		lane := wire.Lane(c.Key(), len(b.streams))
		it.stream = b.streams[lane]
		if c.Express() {
			it.stream = b.express[lane]
		}
		it.entry = wire.Entry{
			Event:    d.Type,
			Payload:  d.Data,
			State:    c.State,
			Shard:    b.keys.ID,
			Sequence: d.Sequence,
			Session:  b.session.of(d.SessionID),
			Received: d.Received,
			Flags:    flags,
		}
		if d.Type == typeReady {
			it.entry.Payload = rawjson.AppendEmptied(make([]byte, 0, len(d.Data)), d.Data, "session_id", "resume_gateway_url")
		}
		if len(it.entry.Payload) > b.write.maxPayload {
			b.write.slim(&it.entry, b.write.maxPayload)
		}
		b.appendEntry(&it)
	}
	it.to = b.current.len()
	b.current.bytes += len(d.Data) + len(c.State)
	b.current.items = append(b.current.items, it)
	return nil
}

// appendEntry adds the command that appends an item's entry.
func (b *builder) appendEntry(it *item) {
	it.xadd = b.current.len() - it.from
	b.write.append(&b.current.block, it.stream, &it.entry)
	b.state.metrics.published.Inc()
}

// hand gives the current batch to the committer.
func (b *builder) hand(ctx context.Context) error {
	if b.current.empty() {
		return nil
	}
	b.current.cost = b.cost
	select {
	case b.out <- b.current:
		b.current, b.cost = nil, 0
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// settle hands the current batch over and returns when everything is committed.
func (b *builder) settle(ctx context.Context) error {
	if err := b.hand(ctx); err != nil {
		return err
	}
	n := b.number
	if b.current != nil {
		n-- // begun, and empty
	}
	if err := b.state.await(ctx, n); err != nil {
		return err
	}
	b.store.Confirm(n)
	return nil
}

// ready commits the begin of a new session. The record keeps the old one until
// then: first the guilds that are gone, then, in one commit, a notice of the
// lost session into each lane, READY, and the new session.
func (b *builder) ready(ctx context.Context, d gateway.Dispatch) error {
	if err := b.settle(ctx); err != nil {
		return err
	}
	var fields dispatch.Fields
	if err := fields.Scan(d.Data); err != nil {
		b.state.logger.Warn("ready payload breaks off", "err", err)
	}
	if err := b.reconcile(ctx, d, &fields); err != nil {
		return err
	}
	b.begin()
	if b.sessionID != "" && b.sessionID != d.SessionID {
		b.sessionLost(d)
	}
	if err := b.build(ctx, []gateway.Dispatch{d}, 0); err != nil {
		return err
	}
	resumeURL, _ := rawjson.Text(fields.Raw(dispatch.ResumeURL))
	b.current.session = &newSession{id: d.SessionID, resumeURL: string(resumeURL), at: len(b.current.items) - 1}
	b.sessionID, b.built = d.SessionID, d.Sequence
	return b.settle(ctx)
}

// reconcile commits a synthetic GUILD_DELETE for each cached guild that READY
// no longer lists: the bot has left it while it was away.
func (b *builder) reconcile(ctx context.Context, d gateway.Dispatch, ready *dispatch.Fields) error {
	list := ready.Raw(dispatch.GuildList)
	if len(list) == 0 || list[0] != '[' {
		return nil // it does not say
	}
	listed := make(map[string]bool)
	var a rawjson.Array
	for a.Reset(list); a.Next(); {
		listed[string(rawjson.ID(rawjson.Get(a.Value, "id")))] = true
	}
	if a.Err() != nil {
		return nil
	}
	var cached []string
	if err := b.state.retry(ctx, func() (err error) {
		cached, err = b.store.Guilds(ctx, b.rdb)
		return err
	}); err != nil {
		return err
	}
	var gone []gateway.Dispatch
	for _, id := range cached {
		if !listed[id] {
			payload, err := json.Marshal(map[string]string{"id": id})
			if err != nil {
				return err
			}
			gone = append(gone, gateway.Dispatch{Type: "GUILD_DELETE", Data: payload, Received: d.Received, SessionID: d.SessionID})
		}
	}
	if len(gone) == 0 {
		return nil
	}
	b.state.logger.Info("guilds were left while away", "guilds", len(gone))
	for chunk := range slices.Chunk(gone, maxBatch) {
		if err := b.build(ctx, chunk, wire.Synthetic); err != nil {
			return err
		}
		if err := b.settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sessionLost adds a notice to each lane that what Discord sent between the last
// commit and READY is lost, so that listeners can catch up.
func (b *builder) sessionLost(d gateway.Dispatch) {
	l := b.lost()
	b.state.metrics.sessionsLost.Inc()
	notice := struct {
		Session  string `json:"session"`  // short hash of the lost one
		Sequence int64  `json:"sequence"` // its last committed
		Reason   string `json:"reason"`
		Since    int64  `json:"since"` // unix ms of the last commit before; 0: unknown
		Ended    int64  `json:"ended"` // unix ms at which the gateway learned of it; 0: unknown
		Until    int64  `json:"until"` // unix ms of READY
	}{Session: wire.ShortSession(b.sessionID), Sequence: b.state.sequence.Load(), Since: b.state.saved.Load(), Reason: l.reason, Until: d.Received}
	if !l.at.IsZero() {
		notice.Ended = l.at.UnixMilli()
	}
	b.state.logger.Warn("a session was lost; a notice goes into each lane", "reason", l.reason, slog.Int64("seq", notice.Sequence))
	b.notify(&d, wire.EventSessionLost, notice)
}

// gap tells each lane that a session's sequence has jumped: what is between was
// not received, or could not be read.
func (b *builder) gap(d *gateway.Dispatch) {
	if d.Sequence == 0 || d.SessionID != b.sessionID {
		return // the gateway's own, or a session that has yet to begin
	}
	if last := b.built; last != 0 && d.Sequence > last+1 {
		b.state.metrics.gaps.Inc()
		b.state.logger.Warn("the sequence has jumped; a notice goes into each lane", "seq", d.Sequence, "last", last)
		b.notify(d, wire.EventSequenceGap, struct {
			Last int64 `json:"last"` // the last sequence before the gap
			Next int64 `json:"next"` // the first behind it
		}{last, d.Sequence})
	}
	b.built = d.Sequence
}

// notify adds an entry of the gateway's own to each lane, in front of d's.
func (b *builder) notify(d *gateway.Dispatch, event string, notice any) {
	payload, _ := json.Marshal(notice) // strings and numbers
	for _, stream := range b.streams {
		it := item{from: b.current.len(), stream: stream, entry: wire.Entry{
			Event: event, Payload: payload, Shard: b.keys.ID, Session: b.session.of(d.SessionID),
			Received: d.Received, Flags: wire.Synthetic,
		}}
		b.appendEntry(&it)
		it.to = b.current.len()
		b.current.items = append(b.current.items, it)
	}
}

// events tells which dispatch types become entries.
type events struct {
	patterns []dispatch.Pattern // empty: all
	known    map[string]bool
}

// maxKnownEvents bounds what is remembered of types that are not in the table.
const maxKnownEvents = 1024

func (e *events) wanted(eventType string) bool {
	if len(e.patterns) == 0 {
		return true
	}
	wanted, known := e.known[eventType]
	if !known {
		wanted = slices.ContainsFunc(e.patterns, func(p dispatch.Pattern) bool { return p.Match(eventType) })
		if e.known == nil || len(e.known) >= maxKnownEvents {
			e.known = make(map[string]bool)
		}
		e.known[eventType] = wanted
	}
	return wanted
}

// laneKeys returns the keys of a shard's streams by lane.
func laneKeys(keys wire.Shard, lanes int) (streams, express []string) {
	for lane := range lanes {
		streams = append(streams, keys.Stream(lane))
		express = append(express, keys.Express(lane))
	}
	return streams, express
}
