package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// ErrNotCached says that nothing is known of an entity: it does not exist, the
// gateway has not heard of it, or its kind is switched off.
var ErrNotCached = errors.New("not cached")

// A Reader reads what the gateway has cached, from any process. It tells what is
// now, which may be later than the dispatch a listener is at; what was then came
// with the dispatch. It never writes. Safe for concurrent use.
//
// Entities come in discordgo's types, with the ids of their guild and channel
// filled in where discordgo has a place for them, and with what other dispatches
// count laid over (a guild's members, a message's reactions). A member's roles
// are those that the guild still has. Each call makes values of its own.
//
// A method that returns one entity takes one round trip; a [Batch] puts several
// of them into one. If the entity is not known the error wraps ErrNotCached: a
// nil entity and a nil error never come together.
//
// A method that yields several takes ids, and yields those among them that are
// known, in that order. Without ids it yields all that the guild has, in no
// order, a page for each round trip: what changes meanwhile is seen or not. Of a
// guild that is not known it yields ErrNotCached. It ends with the first error.
type Reader struct {
	rdb    redis.UniversalClient
	prefix string
	shards int
}

// NewReader returns a reader of a deployment: the prefix of its keys and the
// number of shards of its topology.
func NewReader(rdb redis.UniversalClient, prefix string, shards int) (*Reader, error) {
	if rdb == nil || prefix == "" || shards < 1 {
		return nil, fmt.Errorf("cache: reader for prefix %q and %d shards: want a client, a prefix and at least 1 shard", prefix, shards)
	}
	return &Reader{rdb: rdb, prefix: prefix, shards: shards}, nil
}

// Raw returns one entity as Discord sent it, with what lies beside it laid over.
// kind is one of KindNames, but message and thread_member: see RawMessage and
// Batch.ThreadMember. For guild, emojis and stickers id is the guild's; outside
// guilds guildID is empty, and for user (the bot's own) id is "@me".
func (r *Reader) Raw(ctx context.Context, kind, guildID, id string) (json.RawMessage, error) {
	if !slices.Contains(plainKinds, kind) {
		return nil, fmt.Errorf("cache: no kind %q to read by guild and id: want some of %s", kind, strings.Join(plainKinds, ", "))
	}
	b := r.Batch()
	return read(ctx, b, item(b, one(id, r.place(dispatch.Kind(kind), guildID)), asRaw))
}

// RawAll yields entities of a guild as Raw returns them: those with the ids
// given, or all. kind is as for Raw, but emojis, stickers and user; guildID is
// empty for what belongs to no guild, and for guild, whose are all guilds.
func (r *Reader) RawAll(ctx context.Context, kind, guildID string, ids ...string) iter.Seq2[json.RawMessage, error] {
	p := r.place(dispatch.Kind(kind), guildID)
	switch {
	case !slices.Contains(plainKinds, kind) || kind == string(dispatch.Emojis) || kind == string(dispatch.Stickers) || kind == string(dispatch.User):
		p.err = fmt.Errorf("cache: no kind %q with entities to list", kind)
	case kind == string(dispatch.Guild):
		p.shards = r.everyShard()
	}
	return func(yield func(json.RawMessage, error) bool) {
		for e, err := range r.some(ctx, p, ids) {
			if !yield(e.raw, err) {
				return
			}
		}
	}
}

// RawMessage returns one message as Discord sent it, with its edits, reactions
// and poll results laid over. guildID is empty outside guilds.
func (r *Reader) RawMessage(ctx context.Context, guildID, channelID, messageID string) (json.RawMessage, error) {
	b := r.Batch()
	return read(ctx, b, item(b, one(messageID, r.bucket(guildID, bucket{channelID, bucketOf([]byte(messageID))})), asRaw))
}

func asRaw(e entity) (json.RawMessage, error) { return e.raw, nil }

// plainKinds are the kinds that are read by the id of a guild and one of their own.
var plainKinds = slices.DeleteFunc(KindNames(), func(name string) bool {
	return name == string(dispatch.Message) || name == string(dispatch.ThreadMember)
})

// A place says where entities of a kind are: in one hash, or for what belongs to
// no guild in one of each shard.
type place struct {
	kind    dispatch.Kind
	guildID string // empty: outside guilds
	shards  []wire.Shard
	name    string // of the hash, below the shard's cache
	parent  *place // where what they are part of is; nil: of nothing
	of      string // id of that
	err     error  // why there is no such place
}

func (p place) key(shard wire.Shard) string { return shard.Cache(p.name) }

// what names an entity in errors.
func (p place) what(id string) string {
	return strings.ReplaceAll(string(p.kind), "_", " ") + " " + id
}

// place returns where a kind of a guild is.
func (r *Reader) place(kind dispatch.Kind, guildID string) place {
	switch kind {
	case dispatch.User, dispatch.Entitlement, dispatch.Subscription:
		return place{kind: kind, shards: r.everyShard(), name: string(kind)}
	case dispatch.Guild, dispatch.Emojis, dispatch.Stickers:
		return r.in(guildID, kind, string(kind))
	}
	p, guild := r.in(guildID, kind, childrenName(kind, guildID)), r.place(dispatch.Guild, guildID)
	p.parent, p.of = &guild, guildID
	return p
}

// threadMembers returns where the members of a thread are.
func (r *Reader) threadMembers(guildID, threadID string) place {
	p, thread := r.in(guildID, dispatch.ThreadMember, childrenName(dispatch.ThreadMember, threadID)), r.place(dispatch.Thread, guildID)
	p.parent, p.of = &thread, threadID
	return p
}

// bucket returns where some of a channel's messages are.
func (r *Reader) bucket(guildID string, b bucket) place {
	return r.in(guildID, dispatch.Message, messagesName(b.channel, b.number))
}

func (r *Reader) in(guildID string, kind dispatch.Kind, name string) place {
	shard, err := r.shard(guildID)
	return place{kind: kind, guildID: guildID, shards: []wire.Shard{shard}, name: name, err: err}
}

// shard returns the names of a guild's shard; outside guilds that is shard 0.
func (r *Reader) shard(guildID string) (wire.Shard, error) {
	if guildID == "" {
		return wire.NewShard(r.prefix, 0, r.shards), nil
	}
	shard, ok := wire.ShardOf(guildID, r.shards)
	if !ok {
		return wire.Shard{}, fmt.Errorf("cache: guild id %q is no number", guildID)
	}
	return wire.NewShard(r.prefix, shard, r.shards), nil
}

// everyShard returns the names of all shards.
func (r *Reader) everyShard() []wire.Shard {
	all := make([]wire.Shard, r.shards)
	for i := range all {
		all[i] = wire.NewShard(r.prefix, i, r.shards)
	}
	return all
}
