package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/internal/wire"
)

// maxTrimBuckets bounds the buckets of a channel that Trim looks at, the newest
// first. Older ones run out by themselves.
const maxTrimBuckets = 8

// trimScript deletes fields of a hash for the holder of the fence.
//
//	KEYS  session, hash
//	ARGV  fence, field, …
//	→ fields deleted; 0 if the fence is another's
var trimScript = redis.NewScript(`
if redis.call('HGET', KEYS[1], '` + wire.SessionFence + `') ~= ARGV[1] then return 0 end
return redis.call('HDEL', KEYS[2], unpack(ARGV, 2))`)

// maxTrim bounds the ids given to one script (Lua's unpack has a limit).
const maxTrim = 1000

// maxInvites is the number of invites that Discord lets a guild have.
const maxInvites = 1000

// leftFor is how long the voice state of a member who has left the guild is kept for
// the VOICE_STATE_UPDATE that follows.
const leftFor = time.Minute

// trims are what the next Trim is to look at.
type trims struct {
	messages map[string]int64    // channels with a new message: newest bucket
	invites  map[string]struct{} // guilds with a new one
	left     []leftField
}

// A leftField is a voice state kept for a member who has left.
type leftField struct {
	key, field string
	at         time.Time
}

func (s *Store) touch(b bucket) {
	s.mu.Lock()
	s.trims.messages[b.channel] = max(s.trims.messages[b.channel], b.number)
	s.mu.Unlock()
}

func (s *Store) touchInvites(guild string) {
	s.mu.Lock()
	s.trims.invites[guild] = struct{}{}
	s.mu.Unlock()
}

func (s *Store) touchLeft(key, field string) {
	s.mu.Lock()
	s.trims.left = append(s.trims.left, leftField{key, field, time.Now()})
	s.mu.Unlock()
}

func (s *Store) takeTrims() trims {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.trims
	s.trims = trims{messages: make(map[string]int64), invites: make(map[string]struct{})}
	return taken
}

// Trim drops the oldest messages of each channel that has had a new one since the
// last call and now holds more than MessagesPerChannel, the invites of each such
// guild over what Discord lets it have (those run out first, then the oldest), and
// the voice states of members who left a while ago, if fence is still the shard's.
// Memory may know them a little longer. It is called on a timer, and may run beside
// the store's other methods. After an error, the channels and guilds it did not come
// to are looked at with their next message or invite.
func (s *Store) Trim(ctx context.Context, rdb redis.UniversalClient, fence string) error {
	take := s.takeTrims()
	if err := s.trimLeft(ctx, rdb, fence, take.left); err != nil {
		return err
	}
	for guild := range take.invites {
		if err := s.trimInvites(ctx, rdb, fence, guild); err != nil {
			return err
		}
	}
	return s.trimMessages(ctx, rdb, fence, take.messages)
}

// trimLeft deletes the voice states of members who left long enough ago, and keeps
// the others, and all after an error, for the next time.
func (s *Store) trimLeft(ctx context.Context, rdb redis.UniversalClient, fence string, left []leftField) (err error) {
	var later []leftField
	for _, l := range left {
		if err == nil && time.Since(l.at) >= leftFor {
			if _, err = s.delete(ctx, rdb, fence, l.key, []string{l.field}); err == nil {
				continue
			}
		}
		later = append(later, l)
	}
	if len(later) > 0 {
		s.mu.Lock()
		s.trims.left = append(s.trims.left, later...)
		s.mu.Unlock()
	}
	return err
}

// trimInvites drops the invites of a guild that are over the bound.
func (s *Store) trimInvites(ctx context.Context, rdb redis.UniversalClient, fence, guild string) error {
	key := s.keys.Cache(childrenName(dispatch.Invite, guild))
	n, err := rdb.HLen(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("cache: count %q: %w", key, err)
	}
	if n <= maxInvites {
		return nil
	}
	all, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("cache: list %q: %w", key, err)
	}
	now := time.Now()
	codes := make([]string, 0, len(all))
	ages := make(map[string]inviteAge, len(all))
	for code, invite := range all {
		codes = append(codes, code)
		ages[code] = ageOf([]byte(invite), now)
	}
	slices.SortFunc(codes, func(a, b string) int {
		if x, y := ages[a], ages[b]; x.expired != y.expired {
			if x.expired {
				return -1
			}
			return 1
		}
		return cmp.Or(ages[a].created.Compare(ages[b].created), strings.Compare(a, b))
	})
	dropped, err := s.delete(ctx, rdb, fence, key, codes[:len(codes)-maxInvites])
	s.metrics.expelled.Add(float64(dropped))
	return err
}

// An inviteAge is what decides which invites go first.
type inviteAge struct {
	expired bool
	created time.Time
}

func ageOf(invite []byte, now time.Time) inviteAge {
	at := func(name string) time.Time {
		text, _ := rawjson.Text(rawjson.Get(invite, name))
		t, _ := time.Parse(time.RFC3339, string(text)) // what is no time is the oldest
		return t
	}
	age := inviteAge{created: at("created_at")}
	ends := at("expires_at")
	if seconds, ok := rawjson.Int(rawjson.Get(invite, "max_age")); ok && seconds > 0 && ends.IsZero() {
		ends = age.created.Add(time.Duration(seconds) * time.Second)
	}
	age.expired = !ends.IsZero() && !now.Before(ends)
	return age
}

// delete deletes fields of a hash for the holder of the fence and reports how many
// it had.
func (s *Store) delete(ctx context.Context, rdb redis.UniversalClient, fence, key string, fields []string) (deleted int, err error) {
	for chunk := range slices.Chunk(fields, maxTrim) {
		args := []any{fence}
		for _, field := range chunk {
			args = append(args, field)
		}
		n, err := trimScript.Run(ctx, rdb, []string{s.keys.Session(), key}, args...).Int()
		if err != nil {
			return deleted, fmt.Errorf("cache: trim %q: %w", key, err)
		}
		deleted += n
	}
	return deleted, nil
}

// trimMessages looks at channels, each with its newest bucket.
func (s *Store) trimMessages(ctx context.Context, rdb redis.UniversalClient, fence string, touched map[string]int64) error {
	age := s.cfg.MessageAge.Milliseconds() / BucketWidth.Milliseconds()
	back := min(age+1, maxTrimBuckets-1)
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
		var total int64 // at least as many as the messages: what is beside them counts too
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
// the bound, with what is beside it.
func (s *Store) trimChannel(ctx context.Context, rdb redis.UniversalClient, fence, channel string, newest int64, buckets int) error {
	room := s.cfg.MessagesPerChannel
	for number := newest; number > newest-int64(buckets); number-- {
		key := s.keys.Cache(messagesName(channel, number))
		fields, err := rdb.HKeys(ctx, key).Result()
		if err != nil {
			return fmt.Errorf("cache: list %q: %w", key, err)
		}
		ids := slices.DeleteFunc(slices.Clone(fields), isBeside)
		if len(ids) <= room {
			room -= len(ids)
			continue
		}
		slices.SortFunc(ids, newestFirst)
		kept := make(map[string]struct{}, room)
		for _, id := range ids[:room] {
			kept[id] = struct{}{}
		}
		gone := slices.DeleteFunc(fields, func(field string) bool {
			id, _, _ := strings.Cut(field, ":")
			_, keep := kept[id]
			return keep
		})
		deleted, err := s.delete(ctx, rdb, fence, key, gone)
		if deleted > 0 {
			s.metrics.trimmed.Add(float64(len(ids) - room))
		}
		if err != nil {
			return err
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
