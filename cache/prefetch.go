package cache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// selfID is the field of the bot's own user.
const selfID = "@me"

// wants are the lookups of a batch that memory can't answer, by collection.
type wants struct {
	fields  map[*collection][]string
	whole   map[*collection]struct{}
	indexes []*Change // changes that need their scope's bucket index
}

func (w *wants) reset() {
	if w.fields == nil {
		w.fields = make(map[*collection][]string)
		w.whole = make(map[*collection]struct{})
	}
	clear(w.fields)
	clear(w.whole)
	w.indexes = w.indexes[:0]
}

// Load reads what is kept in memory whole. It is called after a takeover, before
// the first change.
func (s *Store) Load(ctx context.Context, rdb redis.Cmdable) error {
	ids, err := rdb.SMembers(ctx, s.keys.Cache("unavailable")).Result()
	if err != nil {
		return fmt.Errorf("cache: read the unavailable guilds of shard %d: %w", s.keys.ID, err)
	}
	for _, id := range ids {
		s.unavailable[id] = struct{}{}
	}
	return nil
}

// Guilds returns the ids of all guilds that Redis has cached. What is not yet
// committed is not in it.
func (s *Store) Guilds(ctx context.Context, rdb redis.Cmdable) ([]string, error) {
	ids, err := rdb.HKeys(ctx, s.keys.Cache("guild")).Result()
	if err != nil {
		return nil, fmt.Errorf("cache: list the guilds of shard %d: %w", s.keys.ID, err)
	}
	return ids, nil
}

// Prefetch looks up everything the changes will ask for that memory does not
// know, in one round trip (in none, if there is nothing to ask), and pins it
// for the batch begun last. It reports how many lookups went to Redis. After
// an error nothing has changed and Prefetch can be called again.
func (s *Store) Prefetch(ctx context.Context, rdb redis.Cmdable, changes []*Change) (misses int, err error) {
	s.wants.reset()
	for _, c := range changes {
		s.need(c)
	}
	if len(s.wants.fields) == 0 && len(s.wants.whole) == 0 && len(s.wants.indexes) == 0 {
		return 0, nil
	}
	return s.read(ctx, rdb)
}

// need notes what Apply will look up for c. It follows Apply action by action.
func (s *Store) need(c *Change) {
	if c.event == nil || !c.fields.Object {
		return
	}
	f := &c.fields
	switch rule := &c.event.Cache; rule.Do {
	case dispatch.Merge, dispatch.MergeKnown, dispatch.MergeVoice, dispatch.Remove, dispatch.PutList, dispatch.GuildUpdate:
		col, id := s.locate(c)
		if col != nil {
			s.want(col, id, c.received)
		}
		if rule.Do == dispatch.Remove && (rule.Kind == dispatch.Channel || rule.Kind == dispatch.Thread) {
			if rule.Kind == dispatch.Channel {
				s.wantWhole(s.children(dispatch.Thread, f.ID(dispatch.GuildID)))
			}
			s.wantIndex(c)
		}
	case dispatch.RemoveMany:
		s.eachMessage(c, func(col *collection, id []byte) { s.want(col, id, c.received) })
	case dispatch.MergeList:
		s.eachOf(c, rule.Kind, f.Raw(rule.Object), func(col *collection, id, _ []byte) { s.want(col, id, c.received) })
	case dispatch.MembersChunk:
		s.eachOf(c, dispatch.Member, f.Raw(dispatch.MemberList), func(col *collection, id, _ []byte) { s.want(col, id, c.received) })
		s.eachOf(c, dispatch.Presence, f.Raw(dispatch.PresenceList), func(col *collection, id, _ []byte) { s.want(col, id, c.received) })
	case dispatch.GuildDelete:
		col, id := s.locate(c)
		if col != nil {
			s.want(col, id, c.received)
		}
		if id != nil && !rawjson.IsTrue(f.Raw(dispatch.Unavailable)) {
			s.wantIndex(c)
		}
	}
}

func (s *Store) want(c *collection, id []byte, now int64) {
	if id == nil {
		return
	}
	if _, known := s.mem.lookup(c, id, now); known {
		if e := c.entries[string(id)]; e != nil {
			e.commit = max(e.commit, s.mem.building)
		} else if c.whole != nil {
			c.whole.commit = max(c.whole.commit, s.mem.building)
		}
		s.metrics.hits.Inc()
		return
	}
	s.metrics.misses.Inc()
	s.wants.fields[c] = append(s.wants.fields[c], string(id))
}

func (s *Store) wantWhole(c *collection) {
	if c == nil {
		return
	}
	if c.whole != nil {
		s.mem.setWhole(c) // pins it
		return
	}
	s.wants.whole[c] = struct{}{}
}

func (s *Store) wantIndex(c *Change) {
	if !s.off[kindIndex(dispatch.Message)] && s.scopeID(c) != nil {
		s.wants.indexes = append(s.wants.indexes, c)
	}
}

func (s *Store) read(ctx context.Context, rdb redis.Cmdable) (misses int, err error) {
	pipe := rdb.Pipeline()
	fields := make(map[*collection]*redis.SliceCmd, len(s.wants.fields))
	for c, ids := range s.wants.fields {
		if _, all := s.wants.whole[c]; all {
			continue
		}
		misses += len(ids)
		fields[c] = pipe.HMGet(ctx, c.key, ids...)
	}
	whole := make(map[*collection]*redis.MapStringStringCmd, len(s.wants.whole))
	for c := range s.wants.whole {
		misses++
		whole[c] = pipe.HGetAll(ctx, c.key)
	}
	indexes := make([]*redis.StringSliceCmd, len(s.wants.indexes))
	for i, c := range s.wants.indexes {
		misses++
		indexes[i] = pipe.ZRange(ctx, s.keys.Cache("buckets:"+string(s.scopeID(c))), 0, -1)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return misses, fmt.Errorf("cache: read previous states of shard %d: %w", s.keys.ID, err)
	}
	for c, cmd := range fields {
		expires, now := s.expiry(c), s.now(c)
		for i, value := range cmd.Val() {
			var raw []byte
			if text, ok := value.(string); ok {
				raw = []byte(text)
			}
			s.mem.learn(c, []byte(s.wants.fields[c][i]), raw, expires, now)
		}
	}
	for c, cmd := range whole {
		for id, text := range cmd.Val() {
			s.mem.learn(c, []byte(id), []byte(text), 0, 0)
		}
		s.mem.setWhole(c)
	}
	for i, c := range s.wants.indexes {
		c.buckets = indexes[i].Val()
	}
	return misses, nil
}

// expiry returns when an entry read for c now is to be asked for again.
func (s *Store) expiry(c *collection) int64 {
	if c.kind != kindIndex(dispatch.Message) {
		return 0
	}
	return s.latest + s.cfg.MessageAge.Milliseconds()
}

func (s *Store) now(*collection) int64 { return s.latest }

// locate returns the collection and the id of the entity a change is about; a
// nil collection if the kind is switched off or the payload does not say.
func (s *Store) locate(c *Change) (*collection, []byte) {
	rule := &c.event.Cache
	s.latest = max(s.latest, c.received)
	switch rule.Kind {
	case dispatch.User:
		return s.global(rule.Kind), []byte(selfID)
	case dispatch.Guild, dispatch.Emojis, dispatch.Stickers:
		id := c.fields.ID(rule.ID)
		if id == nil {
			return nil, nil
		}
		return s.global(rule.Kind), id
	case dispatch.Entitlement, dispatch.Subscription:
		id := c.fields.ID(rule.ID)
		if id == nil {
			return nil, nil
		}
		return s.global(rule.Kind), id
	case dispatch.ThreadMember:
		thread, user := c.fields.ID(dispatch.ID), c.fields.ID(rule.ID)
		if thread == nil || user == nil {
			return nil, nil
		}
		return s.children(rule.Kind, thread), user
	case dispatch.Message:
		id := c.fields.ID(rule.ID)
		return s.messages(c, id), id
	}
	id := c.fields.ID(rule.ID)
	if id == nil {
		return nil, nil
	}
	return s.children(rule.Kind, c.fields.ID(dispatch.GuildID)), id
}

// scopeID returns what a change's message buckets are indexed under.
func (s *Store) scopeID(c *Change) []byte {
	if c.event.Cache.Do == dispatch.GuildDelete {
		return c.fields.ID(dispatch.ID)
	}
	if id := c.fields.ID(dispatch.GuildID); id != nil {
		return id
	}
	if kind := c.event.Cache.Kind; kind == dispatch.Channel || kind == dispatch.Thread {
		return c.fields.ID(dispatch.ID)
	}
	return c.fields.ID(dispatch.ChannelID)
}

// global returns the collection of a kind that has one hash for the shard.
func (s *Store) global(kind dispatch.Kind) *collection {
	return s.collection(kind, nil, string(kind))
}

// children returns the collection of a kind that has one hash a guild; nil
// outside guilds.
func (s *Store) children(kind dispatch.Kind, guild []byte) *collection {
	if guild == nil {
		return nil
	}
	return s.collection(kind, guild, "")
}

func (s *Store) collection(kind dispatch.Kind, guild []byte, name string) *collection {
	k := kindIndex(kind)
	if s.off[k] {
		return nil
	}
	in := s.mem.scope(guild)
	if in.kinds[k] == nil {
		if name == "" {
			name = childrenName(kind, in.id)
		}
		in.kinds[k] = s.mem.newCollection(in, k, bucket{}, s.keys.Cache(name))
	}
	return in.kinds[k]
}

func childrenName(kind dispatch.Kind, guild string) string { return string(kind) + ":" + guild }

// messages returns the collection that a message belongs to.
func (s *Store) messages(c *Change, id []byte) *collection {
	channel, scope := c.fields.ID(dispatch.ChannelID), s.scopeID(c)
	if s.off[kindIndex(dispatch.Message)] || channel == nil || scope == nil || id == nil {
		return nil
	}
	return s.bucket(s.mem.scope(scope), bucket{channel: string(channel), number: bucketOf(id)})
}

func (s *Store) bucket(in *scope, b bucket) *collection {
	if c := in.messages[b]; c != nil {
		return c
	}
	if in.messages == nil {
		in.messages = make(map[bucket]*collection)
	}
	c := s.mem.newCollection(in, kindIndex(dispatch.Message), b, s.keys.Cache(messagesName(b.channel, b.number)))
	in.messages[b] = c
	return c
}

func messagesName(channel string, number int64) string {
	return "message:" + channel + ":" + strconv.FormatInt(number, 10)
}

// parseBucket reads a member of a bucket index.
func parseBucket(member string) (bucket, bool) {
	channel, number, ok := strings.Cut(member, ":")
	if !ok {
		return bucket{}, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return bucket{channel: channel, number: n}, err == nil
}

// eachMessage calls f for each id of a bulk change.
func (s *Store) eachMessage(c *Change, f func(*collection, []byte)) {
	s.latest = max(s.latest, c.received)
	var a rawjson.Array
	for a.Reset(c.fields.Raw(dispatch.IDs)); a.Next(); {
		id := rawjson.ID(a.Value)
		if col := s.messages(c, id); col != nil {
			f(col, id)
		}
	}
}

// idOf returns the id of an entity of a kind that is an element of a list.
func idOf(kind dispatch.Kind, object []byte) []byte {
	switch kind {
	case dispatch.Member, dispatch.Presence:
		return rawjson.ID(rawjson.Get(rawjson.Get(object, "user"), "id"))
	case dispatch.VoiceState:
		return rawjson.ID(rawjson.Get(object, "user_id"))
	case dispatch.SoundboardSound:
		return rawjson.ID(rawjson.Get(object, "sound_id"))
	}
	return rawjson.ID(rawjson.Get(object, "id"))
}

// eachOf calls f for each element with an id in a list of one guild's entities.
func (s *Store) eachOf(c *Change, kind dispatch.Kind, list []byte, f func(col *collection, id, object []byte)) {
	guild := c.fields.ID(dispatch.GuildID)
	if c.event.Cache.Do == dispatch.GuildCreate {
		guild = c.fields.ID(dispatch.ID)
	}
	col := s.children(kind, guild)
	if col == nil || len(list) == 0 {
		return
	}
	var a rawjson.Array
	for a.Reset(list); a.Next(); {
		if id := idOf(kind, a.Value); id != nil {
			f(col, id, a.Value)
		}
	}
}
