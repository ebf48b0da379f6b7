package cache

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
)

// An entity is what was read of one, or of several as an array.
type entity struct {
	id      string
	raw     json.RawMessage
	partial bool
}

// A query puts its commands into a pipe. What it returns makes the entity of
// their replies.
type query func(ctx context.Context, pipe redis.Pipeliner) (answer func() (entity, error))

// fail is the query of what can't be asked for.
func fail(err error) query {
	return func(context.Context, redis.Pipeliner) func() (entity, error) {
		return func() (entity, error) { return entity{}, err }
	}
}

// one asks for one entity, and takes it from the first of the places that has it.
func one(id string, places ...place) query {
	if places[0].err != nil {
		return fail(places[0].err)
	}
	return func(ctx context.Context, pipe redis.Pipeliner) func() (entity, error) {
		var asked []func() ([]entity, error)
		for _, p := range places {
			for _, shard := range p.shards {
				asked = append(asked, p.ask(ctx, pipe, shard, []string{id}))
			}
		}
		return func() (entity, error) {
			for _, answer := range asked {
				switch found, err := answer(); {
				case err != nil:
					return entity{}, fmt.Errorf("cache: read %s: %w", places[0].what(id), err)
				case len(found) > 0:
					return found[0], nil
				}
			}
			return entity{}, notCached(places[0].what(id))
		}
	}
}

// several asks for the entities with the ids given: an array of those that are
// known, in that order.
func several(ids []string, p place) query {
	if p.err != nil {
		return fail(p.err)
	}
	return func(ctx context.Context, pipe redis.Pipeliner) func() (entity, error) {
		if len(ids) == 0 {
			return func() (entity, error) { return arrayOf(nil), nil }
		}
		answer := p.ask(ctx, pipe, p.shards[0], ids)
		return func() (entity, error) {
			found, err := answer()
			if err != nil {
				return entity{}, fmt.Errorf("cache: read %d of %q: %w", len(ids), p.key(p.shards[0]), err)
			}
			return arrayOf(found), nil
		}
	}
}

// every asks for all entities of a kind in a guild that is known: an array,
// ordered by id. It is for kinds that Discord allows a guild few hundreds of.
func every(p place) query {
	if p.err != nil {
		return fail(p.err)
	}
	return func(ctx context.Context, pipe redis.Pipeliner) func() (entity, error) {
		hash := pipe.HGetAll(ctx, p.key(p.shards[0]))
		known := p.known(ctx, pipe, p.shards[0])
		return func() (entity, error) {
			if hash.Err() != nil {
				return entity{}, fmt.Errorf("cache: read %q: %w", p.key(p.shards[0]), hash.Err())
			}
			if err := known(len(hash.Val()) > 0); err != nil {
				return entity{}, err
			}
			var found []entity
			for _, id := range slices.SortedFunc(maps.Keys(hash.Val()), byID) {
				if isBeside(id) {
					continue
				}
				var values []string
				for _, field := range fieldsOf(p.kind, id) {
					values = append(values, hash.Val()[field])
				}
				if e, ok := entityOf(p.kind, id, values); ok {
					found = append(found, e)
				}
			}
			return arrayOf(found), nil
		}
	}
}

// within asks for an element of a list that is kept whole.
func within(list query, what, id string) query {
	return func(ctx context.Context, pipe redis.Pipeliner) func() (entity, error) {
		answer := list(ctx, pipe)
		return func() (entity, error) {
			e, err := answer()
			if err != nil {
				return entity{}, err
			}
			var a rawjson.Array
			for a.Reset(e.raw); a.Next(); {
				if string(rawjson.ID(rawjson.Get(a.Value, "id"))) == id {
					return entity{id: id, raw: bytes.Clone(a.Value)}, nil
				}
			}
			return entity{}, notCached(what + " " + id)
		}
	}
}

// ask asks one shard for entities with what belongs to them: beside them, of
// members the roles that there are, of guilds which are in an outage. The answer
// has those that are known, in the order of ids.
func (p place) ask(ctx context.Context, pipe redis.Pipeliner, shard wire.Shard, ids []string) (answer func() ([]entity, error)) {
	var fields []string
	for _, id := range ids {
		fields = append(fields, fieldsOf(p.kind, id)...)
	}
	values := pipe.HMGet(ctx, p.key(shard), fields...)
	finish := p.finish(ctx, pipe, shard, ids)
	return func() ([]entity, error) {
		if values.Err() != nil {
			return nil, values.Err()
		}
		var found []entity
		width := len(fields) / len(ids)
		for i, id := range ids {
			if e, ok := entityOf(p.kind, id, texts(values.Val()[i*width:(i+1)*width])); ok {
				found = append(found, e)
			}
		}
		return found, finish(found)
	}
}

// finish asks for what members and guilds depend on beyond their own fields, and
// returns what applies it.
func (p place) finish(ctx context.Context, pipe redis.Pipeliner, shard wire.Shard, ids []string) func([]entity) error {
	switch p.kind {
	case dispatch.Member:
		ids := pipe.HKeys(ctx, shard.Cache(childrenName(dispatch.Role, p.guildID)))
		return func(found []entity) error {
			roles := setOf(ids.Val())
			for i := range found {
				found[i].raw = withoutGone(found[i].raw, roles)
			}
			return ids.Err()
		}
	case dispatch.Guild:
		asked := make([]any, len(ids))
		for i, id := range ids {
			asked[i] = id
		}
		out := pipe.SMIsMember(ctx, shard.Cache("unavailable"), asked...)
		return func(found []entity) error {
			for i := range found {
				if at := slices.Index(ids, found[i].id); at < len(out.Val()) && out.Val()[at] {
					found[i].raw = overAll(found[i].raw, outage)
				}
			}
			return out.Err()
		}
	}
	return func([]entity) error { return nil }
}

// outage is laid over a guild that is in one.
var outage = []byte(`{"unavailable":true}`)

// arrayOf makes one of several.
func arrayOf(found []entity) entity {
	all := entity{raw: []byte{'['}}
	for i, e := range found {
		if i > 0 {
			all.raw = append(all.raw, ',')
		}
		all.raw = append(all.raw, e.raw...)
		all.partial = all.partial || e.partial
	}
	all.raw = append(all.raw, ']')
	return all
}

// byID orders ids by age.
func byID(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

func notCached(what string) error { return fmt.Errorf("cache: %s: %w", what, ErrNotCached) }
