package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// errUnread is what an item has until its batch is read.
var errUnread = errors.New("cache: the batch of this item has not been read")

// A Batch gathers reads, and sends them in one round trip:
//
//	b := reader.Batch()
//	guild, roles := b.Guild(guildID), b.MemberRoles(guildID, userID)
//	if err := b.Read(ctx); err != nil {
//		return err
//	}
//	g, err := guild.Get() // wraps ErrNotCached if the guild is not known
//
// Its methods ask for what those of the Reader return. On a cluster there is a
// round trip to each node that is asked. Not safe for concurrent use.
type Batch struct {
	r     *Reader
	items []interface {
		ask(ctx context.Context, pipe redis.Pipeliner)
		settle(err error) error
	}
}

// Batch returns an empty batch.
func (r *Reader) Batch() *Batch { return &Batch{r: r} }

// Read reads everything that was asked for. Its error is Redis's, or about an id
// that can't be one; what is not known is an error of its item alone. Read again,
// a batch asks again.
func (b *Batch) Read(ctx context.Context) error {
	pipe := b.r.rdb.Pipeline()
	for _, item := range b.items {
		item.ask(ctx, pipe)
	}
	var failed error
	if pipe.Len() > 0 {
		// What Redis answered to one command is that command's error.
		if _, err := pipe.Exec(ctx); err != nil && !errors.As(err, new(redis.Error)) {
			failed = fmt.Errorf("cache: read: %w", err)
		}
	}
	var first error
	for _, item := range b.items {
		if err := item.settle(failed); first == nil {
			first = err
		}
	}
	return first
}

// An Item is what one call of a Batch asked for, filled by Batch.Read.
type Item[T any] struct {
	query  query
	decode func(e entity) (T, error)
	answer func() (entity, error)
	got    entity
	err    error
}

// Get returns the value, decoded anew by each call. The error wraps ErrNotCached
// if it is not known.
func (i *Item[T]) Get() (T, error) {
	if i.err != nil {
		var none T
		return none, i.err
	}
	return i.decode(i.got)
}

// Raw returns the value as Discord sent it, with what lies beside it laid over;
// of several entities an array.
func (i *Item[T]) Raw() (json.RawMessage, error) { return i.got.raw, i.err }

// Partial reports whether the gateway knows only a part of the entity: it began
// with a dispatch that does not have all of it.
func (i *Item[T]) Partial() bool { return i.got.partial }

func (i *Item[T]) ask(ctx context.Context, pipe redis.Pipeliner) { i.answer = i.query(ctx, pipe) }

// settle takes the replies, or the failure of them all, and returns an error that
// is the batch's.
func (i *Item[T]) settle(err error) error {
	i.got = entity{}
	if err == nil {
		i.got, err = i.answer()
	}
	if i.err = err; errors.Is(err, ErrNotCached) {
		return nil
	}
	return err
}

// item adds a read to b.
func item[T any](b *Batch, q query, decode func(entity) (T, error)) *Item[T] {
	i := &Item[T]{query: q, decode: decode, err: errUnread}
	b.items = append(b.items, i)
	return i
}

// read reads a batch of one item.
func read[T any](ctx context.Context, b *Batch, i *Item[T]) (T, error) {
	if err := b.Read(ctx); err != nil {
		var none T
		return none, err
	}
	return i.Get()
}
