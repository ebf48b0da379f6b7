package cache

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// readAtOnce bounds the entities that one round trip of an iterator asks for.
const readAtOnce = 500

// pages yields the entities of a place that have one of the ids given, or without
// ids all of them.
func pages[T any](ctx context.Context, r *Reader, s shape[T], p place, ids []string) iter.Seq2[*T, error] {
	return decoded(s, p.guildID, r.some(ctx, p, ids))
}

// some yields the entities with the ids given, or without ids all of a place.
func (r *Reader) some(ctx context.Context, p place, ids []string) iter.Seq2[entity, error] {
	if len(ids) == 0 {
		return r.all(ctx, p)
	}
	return r.byID(ctx, p, ids)
}

// decoded yields entities in their type.
func decoded[T any](s shape[T], guildID string, all iter.Seq2[entity, error]) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		decode := s.one(guildID)
		for e, err := range all {
			var v *T
			if err == nil {
				v, err = decode(e)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// byID yields those of the entities with the ids given that are known, in their
// order.
func (r *Reader) byID(ctx context.Context, p place, ids []string) iter.Seq2[entity, error] {
	return func(yield func(entity, error) bool) {
		if p.err != nil {
			yield(entity{}, p.err)
			return
		}
		for page := range slices.Chunk(ids, readAtOnce) {
			found, err := r.page(ctx, p, page)
			if err != nil {
				yield(entity{}, fmt.Errorf("cache: read %d of %q: %w", len(page), p.key(p.shards[0]), err))
				return
			}
			for _, e := range found {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// page reads the entities with the ids given from all shards of a place.
func (r *Reader) page(ctx context.Context, p place, ids []string) (found []entity, err error) {
	pipe := r.rdb.Pipeline()
	answers := make([]func() ([]entity, error), len(p.shards))
	for i, shard := range p.shards {
		answers[i] = p.ask(ctx, pipe, shard, ids)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for _, answer := range answers {
		some, err := answer()
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	if len(p.shards) > 1 {
		order := make(map[string]int, len(ids))
		for i, id := range ids {
			order[id] = i
		}
		slices.SortStableFunc(found, func(a, b entity) int { return cmp.Compare(order[a.id], order[b.id]) })
	}
	return found, nil
}

// all yields all entities of a place.
func (r *Reader) all(ctx context.Context, p place) iter.Seq2[entity, error] {
	return func(yield func(entity, error) bool) {
		if p.err != nil {
			yield(entity{}, p.err)
			return
		}
		for _, shard := range p.shards {
			one := r.scan
			if besides[p.kind] != nil {
				one = r.list
			}
			for e, err := range one(ctx, p, shard) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// list yields the entities of a hash that has values beside them: by their ids,
// since a scan may come to a value and its entity pages apart.
func (r *Reader) list(ctx context.Context, p place, shard wire.Shard) iter.Seq2[entity, error] {
	return func(yield func(entity, error) bool) {
		pipe := r.rdb.Pipeline()
		ids, known := pipe.HKeys(ctx, p.key(shard)), p.known(ctx, pipe, shard)
		if _, err := pipe.Exec(ctx); err != nil {
			yield(entity{}, fmt.Errorf("cache: list %q: %w", p.key(shard), err))
			return
		}
		entities := slices.DeleteFunc(ids.Val(), isBeside)
		if err := known(len(entities) > 0); err != nil {
			yield(entity{}, err)
			return
		}
		p.shards = []wire.Shard{shard}
		r.byID(ctx, p, entities)(yield)
	}
}

// scan yields the entities of a hash a page at a time, each once.
func (r *Reader) scan(ctx context.Context, p place, shard wire.Shard) iter.Seq2[entity, error] {
	return func(yield func(entity, error) bool) {
		finish, known := func([]entity) error { return nil }, func(bool) error { return nil }
		seen := make(map[string]struct{}) // a scan may return a field twice
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			pipe := r.rdb.Pipeline()
			scan := pipe.HScan(ctx, p.key(shard), cursor, "", readAtOnce)
			if first {
				finish, known = p.finish(ctx, pipe, shard, nil), p.known(ctx, pipe, shard)
			}
			_, err := pipe.Exec(ctx)
			fields, next := scan.Val()
			var found []entity
			for i := 0; i+1 < len(fields); i += 2 {
				if _, twice := seen[fields[i]]; twice || isBeside(fields[i]) {
					continue
				}
				seen[fields[i]] = struct{}{}
				if e, ok := entityOf(p.kind, fields[i], fields[i+1:i+2]); ok {
					found = append(found, e)
				}
			}
			if err == nil {
				err = finish(found)
			}
			if err != nil {
				yield(entity{}, fmt.Errorf("cache: read %q: %w", p.key(shard), err))
				return
			}
			for _, e := range found {
				if !yield(e, nil) {
					return
				}
			}
			cursor = next
		}
		if err := known(len(seen) > 0); err != nil {
			yield(entity{}, err)
		}
	}
}

// known asks whether what the entities of a place are part of is known. What it
// returns is the error of a place where nothing was found because it is not.
func (p place) known(ctx context.Context, pipe redis.Pipeliner, shard wire.Shard) func(found bool) error {
	if p.parent == nil {
		return func(bool) error { return nil }
	}
	is := pipe.HExists(ctx, p.parent.key(shard), p.of)
	return func(found bool) error {
		if is.Err() != nil || found || is.Val() {
			return is.Err()
		}
		return notCached(p.parent.what(p.of))
	}
}
