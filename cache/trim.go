package cache

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// maxTrimBuckets bounds the buckets of a channel that Trim looks at, the newest
// first. Older ones run out by themselves.
const maxTrimBuckets = 8

// trimScript deletes messages for the holder of the fence.
//
//	KEYS  session, bucket
//	ARGV  fence, message id, …
//	→ messages deleted; 0 if the fence is another's
var trimScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], '` + wire.SessionFence + `') ~= ARGV[1] then return 0 end
return redis.call('HDEL', KEYS[2], unpack(ARGV, 2))`)

// maxTrim bounds the ids given to one script (Lua's unpack has a limit).
const maxTrim = 1000

func (s *Store) touch(b bucket) {
	s.mu.Lock()
	s.touched[b.channel] = max(s.touched[b.channel], b.number)
	s.mu.Unlock()
}

func (s *Store) takeTouched() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := s.touched
	s.touched = make(map[string]int64)
	return touched
}

// Trim drops the oldest messages of each channel that has had a new one since
// the last call and now holds more than MessagesPerChannel, if fence is still
// the shard's. Memory may know them a little longer. It is called on a timer, and
// may run beside the store's other methods. After an error, the channels it did
// not come to are looked at with their next message.
func (s *Store) Trim(ctx context.Context, rdb redis.UniversalClient, fence string) error {
	age := s.cfg.MessageAge.Milliseconds() / BucketWidth.Milliseconds()
	back := min(age+1, maxTrimBuckets-1)
	touched := s.takeTouched()
	if len(touched) == 0 {
		return nil
	}
	pipe := rdb.Pipeline()
	lengths := make(map[string][]*redis.IntCmd, len(touched))
	for channel, newest := range touched {
		for number := newest; number >= max(newest-back, 0); number-- {
			lengths[channel] = append(lengths[channel], pipe.HLen(ctx, s.keys.Cache(messagesName(channel, number))))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("cache: count the messages of shard %d: %w", s.keys.ID, err)
	}
	for channel, newest := range touched {
		var total int64
		for _, length := range lengths[channel] {
			total += length.Val()
		}
		if total <= int64(s.cfg.MessagesPerChannel) {
			continue
		}
		if err := s.trimChannel(ctx, rdb, fence, channel, newest, len(lengths[channel])); err != nil {
			return err
		}
	}
	return nil
}

// trimChannel walks a channel's buckets from the newest and drops what is over
// the bound.
func (s *Store) trimChannel(ctx context.Context, rdb redis.UniversalClient, fence, channel string, newest int64, buckets int) error {
	room := s.cfg.MessagesPerChannel
	for number := newest; number > newest-int64(buckets); number-- {
		key := s.keys.Cache(messagesName(channel, number))
		ids, err := rdb.HKeys(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("cache: list %q: %w", key, err)
		}
		if len(ids) <= room {
			room -= len(ids)
			continue
		}
		slices.SortFunc(ids, newestFirst)
		for chunk := range slices.Chunk(ids[room:], maxTrim) {
			args := []any{fence}
			for _, id := range chunk {
				args = append(args, id)
			}
			n, err := trimScript.Run(ctx, rdb, []string{s.keys.Session(), key}, args...).Int()
			if err != nil {
				return fmt.Errorf("cache: trim %q: %w", key, err)
			}
			s.metrics.trimmed.Add(float64(n))
		}
		room = 0
	}
	return nil
}

// newestFirst orders message ids by age; an id that is no number is the oldest.
func newestFirst(a, b string) int {
	x, _ := strconv.ParseUint(a, 10, 64)
	y, _ := strconv.ParseUint(b, 10, 64)
	switch {
	case x > y:
		return -1
	case x < y:
		return 1
	}
	return 0
}
