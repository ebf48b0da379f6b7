package replay

import (
	"fmt"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
	"github.com/sluicehq/sluice/listener"
)

// makeEntry returns an item as the core takes it, with a task for each of the
// listeners. The error says why it can't be delivered.
func makeEntry(s *source, it *item, listeners []*bound, fields *dispatch.Fields) (*entry, error) {
	in := &it.entry
	payload, previous := in.Payload, in.State
	if in.Codec == wire.Msgpack {
		var err error
		if payload, err = wire.ToJSON(nil, in.Payload); err != nil {
			return nil, fmt.Errorf("payload: %w", err)
		}
		if previous, err = wire.ToJSON(nil, in.State); err != nil {
			return nil, fmt.Errorf("state: %w", err)
		}
	}
	// What does not parse has the fields found so far; that it is not JSON is for
	// the listeners to find.
	_ = fields.Scan(payload)
	key, guild := dispatch.Lookup(in.Event).Key(fields)
	e := &entry{
		src:        s,
		id:         it.id,
		keyName:    key,
		size:       len(payload) + len(previous),
		deliveries: it.deliveries,
		delivery: listener.Delivery{
			ID:        deliveryID(s.label, it.id),
			Type:      in.Event,
			Session:   in.Session,
			Trace:     in.Trace,
			Shard:     in.Shard,
			Sequence:  in.Sequence,
			Received:  time.UnixMilli(in.Received),
			Sync:      in.Flags&wire.Sync != 0,
			Synthetic: in.Flags&wire.Synthetic != 0,
			Slim:      in.Flags&wire.Slim != 0,
			Partial:   in.Flags&wire.Partial != 0,
			Payload:   payload,
			Previous:  previous,
		},
	}
	e.hasGuild = guild != nil
	e.target = in.Target
	e.from = it.from
	e.orphaned = it.orphaned
	e.tasks = e.one[:0]
	if len(listeners) > 1 {
		e.tasks = make([]task, 0, len(listeners))
	}
	for _, l := range listeners {
		e.tasks = append(e.tasks, task{listener: l, attempt: it.deliveries})
	}
	if it.progress != nil {
		e.resume(string(it.progress))
	}
	return e, nil
}
