package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
)

// ErrNotCached says that nothing is known of an entity: it does not exist, the
// gateway has not heard of it, or its kind is switched off.
var ErrNotCached = errors.New("not cached")

// readAtOnce bounds the entities that one command of a Reader asks for.
const readAtOnce = 500

// A Reader reads what the gateway has cached, from any process. It tells what is
// now, which may be later than the dispatch a listener is at; what was then came
// with the dispatch. It never writes. Safe for concurrent use.
//
// Entities are decoded into discordgo's types, with the ids of their guild and
// channel filled in where discordgo has a place for them; Raw gives them as
// Discord sent them. Errors wrap ErrNotCached where nothing is known, a nil
// entity and a nil error never come together.
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

// hash returns the key that holds a kind of a guild.
func (r *Reader) hash(kind dispatch.Kind, guildID string) (string, error) {
	shard, err := r.shard(guildID)
	if err != nil {
		return "", err
	}
	switch kind {
	case dispatch.Guild, dispatch.Emojis, dispatch.Stickers, dispatch.User:
		return shard.Cache(string(kind)), nil
	}
	return shard.Cache(childrenName(kind, guildID)), nil
}

// Raw returns one entity as Discord sent it. kind is one of KindNames; of
// messages see RawMessage. For guild, emojis and stickers id is the guild's.
func (r *Reader) Raw(ctx context.Context, kind, guildID, id string) (json.RawMessage, error) {
	if kindIndex(dispatch.Kind(kind)) < 0 || kind == string(dispatch.Message) {
		return nil, fmt.Errorf("cache: no kind %q to read by guild: want some of %s", kind, strings.Join(KindNames(), ", "))
	}
	key, err := r.hash(dispatch.Kind(kind), guildID)
	if err != nil {
		return nil, err
	}
	return r.field(ctx, key, kind, id)
}

func (r *Reader) field(ctx context.Context, key, what, id string) (json.RawMessage, error) {
	text, err := r.rdb.HGet(ctx, key, id).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, fmt.Errorf("cache: %s %s: %w", what, id, ErrNotCached)
	case err != nil:
		return nil, fmt.Errorf("cache: read %s %s: %w", what, id, err)
	}
	return text, nil
}

// RawMessage returns one message as Discord sent it, with its edits laid over.
// guildID is empty outside guilds.
func (r *Reader) RawMessage(ctx context.Context, guildID, channelID, messageID string) (json.RawMessage, error) {
	shard, err := r.shard(guildID)
	if err != nil {
		return nil, err
	}
	key := shard.Cache(messagesName(channelID, bucketOf([]byte(messageID))))
	return r.field(ctx, key, "message", messageID)
}

// read decodes one entity.
func read[T any](ctx context.Context, r *Reader, kind dispatch.Kind, guildID, id string) (*T, error) {
	raw, err := r.Raw(ctx, string(kind), guildID, id)
	if err != nil {
		return nil, err
	}
	return decode[T](raw, kind, id)
}

func decode[T any](raw []byte, kind dispatch.Kind, id string) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(raw, v); err != nil {
		return nil, fmt.Errorf("cache: decode %s %s: %w", kind, id, err)
	}
	return v, nil
}

// Guild returns a guild, without its collections: they are read by themselves.
func (r *Reader) Guild(ctx context.Context, guildID string) (*discordgo.Guild, error) {
	return read[discordgo.Guild](ctx, r, dispatch.Guild, guildID, guildID)
}

// Channel returns a channel or a thread of a guild.
func (r *Reader) Channel(ctx context.Context, guildID, channelID string) (*discordgo.Channel, error) {
	c, err := read[discordgo.Channel](ctx, r, dispatch.Channel, guildID, channelID)
	if errors.Is(err, ErrNotCached) {
		c, err = read[discordgo.Channel](ctx, r, dispatch.Thread, guildID, channelID)
	}
	if err != nil {
		return nil, err
	}
	c.GuildID = guildID
	return c, nil
}

// Channels yields the channels of a guild, without its threads, in no order. It
// ends with the first error.
func (r *Reader) Channels(ctx context.Context, guildID string) iter.Seq2[*discordgo.Channel, error] {
	return all(ctx, r, dispatch.Channel, guildID, func(c *discordgo.Channel) { c.GuildID = guildID })
}

// Threads yields the threads of a guild, in no order. It ends with the first error.
func (r *Reader) Threads(ctx context.Context, guildID string) iter.Seq2[*discordgo.Channel, error] {
	return all(ctx, r, dispatch.Thread, guildID, func(c *discordgo.Channel) { c.GuildID = guildID })
}

// Role returns a role of a guild.
func (r *Reader) Role(ctx context.Context, guildID, roleID string) (*discordgo.Role, error) {
	return read[discordgo.Role](ctx, r, dispatch.Role, guildID, roleID)
}

// Roles yields the roles of a guild, in no order. It ends with the first error.
func (r *Reader) Roles(ctx context.Context, guildID string) iter.Seq2[*discordgo.Role, error] {
	return all(ctx, r, dispatch.Role, guildID, func(*discordgo.Role) {})
}

// Member returns a member of a guild.
func (r *Reader) Member(ctx context.Context, guildID, userID string) (*discordgo.Member, error) {
	m, err := read[discordgo.Member](ctx, r, dispatch.Member, guildID, userID)
	if err != nil {
		return nil, err
	}
	m.GuildID = guildID
	return m, nil
}

// Members yields members of a guild: those with the ids given that are known, in
// that order, or without ids all of them, in no order. It ends with the first
// error. A page of members is read at a time.
func (r *Reader) Members(ctx context.Context, guildID string, userIDs ...string) iter.Seq2[*discordgo.Member, error] {
	set := func(m *discordgo.Member) { m.GuildID = guildID }
	if len(userIDs) == 0 {
		return all(ctx, r, dispatch.Member, guildID, set)
	}
	return some(ctx, r, dispatch.Member, guildID, userIDs, set)
}

// Presence returns the presence of a member.
func (r *Reader) Presence(ctx context.Context, guildID, userID string) (*discordgo.Presence, error) {
	return read[discordgo.Presence](ctx, r, dispatch.Presence, guildID, userID)
}

// VoiceState returns the voice state of a member who is in a voice channel.
func (r *Reader) VoiceState(ctx context.Context, guildID, userID string) (*discordgo.VoiceState, error) {
	v, err := read[discordgo.VoiceState](ctx, r, dispatch.VoiceState, guildID, userID)
	if err != nil {
		return nil, err
	}
	v.GuildID = guildID
	return v, nil
}

// VoiceStates yields the voice states of a guild, in no order. It ends with the
// first error.
func (r *Reader) VoiceStates(ctx context.Context, guildID string) iter.Seq2[*discordgo.VoiceState, error] {
	return all(ctx, r, dispatch.VoiceState, guildID, func(v *discordgo.VoiceState) { v.GuildID = guildID })
}

// Message returns a message with its edits laid over. guildID is empty outside
// guilds. Of a message with a component that discordgo does not know the
// components are left out: it can't decode the rest otherwise.
func (r *Reader) Message(ctx context.Context, guildID, channelID, messageID string) (*discordgo.Message, error) {
	raw, err := r.RawMessage(ctx, guildID, channelID, messageID)
	if err != nil {
		return nil, err
	}
	m, err := decode[discordgo.Message](raw, dispatch.Message, messageID)
	if err != nil {
		raw = rawjson.AppendWithout(nil, raw, func(key, _ []byte) bool { return rawjson.KeyIs(key, "components") })
		if m, err = decode[discordgo.Message](raw, dispatch.Message, messageID); err != nil {
			return nil, err
		}
	}
	m.GuildID = guildID
	return m, nil
}

// Emojis returns the emojis of a guild; a guild without any has an empty list.
func (r *Reader) Emojis(ctx context.Context, guildID string) ([]*discordgo.Emoji, error) {
	return list[discordgo.Emoji](ctx, r, dispatch.Emojis, guildID)
}

// Stickers returns the stickers of a guild; a guild without any has an empty list.
func (r *Reader) Stickers(ctx context.Context, guildID string) ([]*discordgo.Sticker, error) {
	return list[discordgo.Sticker](ctx, r, dispatch.Stickers, guildID)
}

func list[T any](ctx context.Context, r *Reader, kind dispatch.Kind, guildID string) ([]*T, error) {
	raw, err := r.Raw(ctx, string(kind), guildID, guildID)
	if err != nil {
		return nil, err
	}
	all, err := decode[[]*T](raw, kind, guildID)
	if err != nil {
		return nil, err
	}
	return *all, nil
}

// ScheduledEvent returns a scheduled event of a guild.
func (r *Reader) ScheduledEvent(ctx context.Context, guildID, eventID string) (*discordgo.GuildScheduledEvent, error) {
	return read[discordgo.GuildScheduledEvent](ctx, r, dispatch.ScheduledEvent, guildID, eventID)
}

// StageInstance returns a stage instance of a guild.
func (r *Reader) StageInstance(ctx context.Context, guildID, stageID string) (*discordgo.StageInstance, error) {
	return read[discordgo.StageInstance](ctx, r, dispatch.StageInstance, guildID, stageID)
}

// Self returns the bot's own user.
func (r *Reader) Self(ctx context.Context) (*discordgo.User, error) {
	// Every shard has it from its READY; one that runs is enough.
	var errs []error
	for shard := range r.shards {
		raw, err := r.field(ctx, wire.NewShard(r.prefix, shard, r.shards).Cache(string(dispatch.User)), "own user", selfID)
		if err == nil {
			return decode[discordgo.User](raw, dispatch.User, selfID)
		}
		if !errors.Is(err, ErrNotCached) {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, errs[0]
}

// some yields the entities of a kind with the ids given.
func some[T any](ctx context.Context, r *Reader, kind dispatch.Kind, guildID string, ids []string, set func(*T)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		key, err := r.hash(kind, guildID)
		if err != nil {
			yield(nil, err)
			return
		}
		for page := range slices.Chunk(ids, readAtOnce) {
			values, err := r.rdb.HMGet(ctx, key, page...).Result()
			if err != nil {
				yield(nil, fmt.Errorf("cache: read %d of %q: %w", len(page), key, err))
				return
			}
			for i, value := range values {
				if text, ok := value.(string); ok && !yieldOne(yield, []byte(text), kind, page[i], set) {
					return
				}
			}
		}
	}
}

// all yields all entities of a kind in a guild.
func all[T any](ctx context.Context, r *Reader, kind dispatch.Kind, guildID string, set func(*T)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		key, err := r.hash(kind, guildID)
		if err != nil {
			yield(nil, err)
			return
		}
		// A scan may return an entity twice; it is yielded once.
		seen := make(map[string]struct{})
		for cursor := uint64(0); ; {
			page, next, err := r.rdb.HScan(ctx, key, cursor, "", readAtOnce).Result()
			if err != nil {
				yield(nil, fmt.Errorf("cache: read %q: %w", key, err))
				return
			}
			for i := 0; i+1 < len(page); i += 2 {
				if _, twice := seen[page[i]]; twice {
					continue
				}
				seen[page[i]] = struct{}{}
				if !yieldOne(yield, []byte(page[i+1]), kind, page[i], set) {
					return
				}
			}
			if next == 0 {
				return
			}
			cursor = next
		}
	}
}

func yieldOne[T any](yield func(*T, error) bool, raw []byte, kind dispatch.Kind, id string, set func(*T)) bool {
	v, err := decode[T](raw, kind, id)
	if err != nil {
		yield(nil, err)
		return false
	}
	set(v)
	return yield(v, nil)
}
