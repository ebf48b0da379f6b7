package cache

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/bwmarrin/discordgo"
	"github.com/redis/go-redis/v9"
)

// Message returns a message with its edits, reactions and poll results laid over.
// guildID is empty outside guilds. Of a message with a component that discordgo
// does not know the components are left out: it can't decode the rest otherwise.
func (r *Reader) Message(ctx context.Context, guildID, channelID, messageID string) (*discordgo.Message, error) {
	b := r.Batch()
	return read(ctx, b, b.Message(guildID, channelID, messageID))
}

// Messages yields the cached messages of a channel or a thread, the newest first,
// at most limit of them; 0: all. guildID is empty outside guilds. A channel whose
// messages are not kept, or have gone, yields none.
func (r *Reader) Messages(ctx context.Context, guildID, channelID string, limit int) iter.Seq2[*discordgo.Message, error] {
	return decoded(messages, guildID, func(yield func(entity, error) bool) {
		buckets, err := r.buckets(ctx, guildID, channelID)
		if err != nil {
			yield(entity{}, err)
			return
		}
		left := limit
		for _, ids := range buckets {
			if limit > 0 {
				if left == 0 {
					return
				}
				ids.list = ids.list[:min(left, len(ids.list))]
			}
			for e, err := range r.byID(ctx, ids.in, ids.list) {
				if !yield(e, err) || err != nil {
					return
				}
				left--
			}
		}
	})
}

// messageIDs are the ids of a bucket's messages.
type messageIDs struct {
	in   place
	list []string // the newest first
}

// buckets returns a channel's messages by id, the newest first: which buckets it
// has, from the index of its guild, and what is in them.
func (r *Reader) buckets(ctx context.Context, guildID, channelID string) ([]messageIDs, error) {
	shard, err := r.shard(guildID)
	if err != nil {
		return nil, err
	}
	scope := guildID
	if scope == "" {
		scope = channelID
	}
	index := shard.Cache("buckets:" + scope)
	numbers := make(map[int64]struct{})
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var members []string // each followed by its score
		if members, cursor, err = r.rdb.ZScan(ctx, index, cursor, channelID+":*", 2*readAtOnce).Result(); err != nil {
			return nil, fmt.Errorf("cache: read %q: %w", index, err)
		}
		for i := 0; i < len(members); i += 2 {
			if b, ok := parseBucket(members[i]); ok {
				numbers[b.number] = struct{}{}
			}
		}
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	pipe := r.rdb.Pipeline()
	var all []messageIDs
	var keys []*redis.StringSliceCmd
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(numbers))) {
		in := r.bucket(guildID, bucket{channelID, number})
		all, keys = append(all, messageIDs{in: in}), append(keys, pipe.HKeys(ctx, in.key(shard)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("cache: list the messages of channel %s: %w", channelID, err)
	}
	for i := range all {
		all[i].list = slices.DeleteFunc(keys[i].Val(), isBeside)
		slices.SortFunc(all[i].list, newestFirst)
	}
	return all, nil
}
