package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// selfID is the field of the bot's own user.
const selfID = "@me"

// wants are the lookups of a batch that memory can't answer.
type wants struct {
	fields map[*collection]*fields
	whole  map[*collection]struct{}
	lists  []listWant
}

// fields are the fields of one hash, each once.
type fields struct {
	ids  []string
	seen map[string]struct{}
}

// A listWant is a list of keys that a removal goes by.
type listWant struct {
	change *Change
	key    string
	fields bool // of a hash; else the members of a sorted set
}

func (w *wants) reset() {
	if w.fields == nil {
		w.fields = make(map[*collection]*fields)
		w.whole = make(map[*collection]struct{})
	}
	clear(w.fields)
	clear(w.whole)
	clear(w.lists)
	w.lists = w.lists[:0]
}

func (w *wants) add(c *collection, id string) {
	f := w.fields[c]
	if f == nil {
		f = &fields{seen: make(map[string]struct{})}
		w.fields[c] = f
	}
	if _, twice := f.seen[id]; !twice {
		f.seen[id] = struct{}{}
		f.ids = append(f.ids, id)
	}
}

// Load reads what is kept in memory whole. It is called after a takeover, before
// the first change.
func (s *Store) Load(ctx context.Context, rdb redis.Cmdable) error {
	pipe := rdb.Pipeline()
	unavailable := pipe.SMembers(ctx, s.keys.Cache("unavailable"))
	user := pipe.HGet(ctx, s.keys.Cache(string(dispatch.User)), selfID)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("cache: read the unavailable guilds and the own user of shard %d: %w", s.keys.ID, err)
	}
	for _, id := range unavailable.Val() {
		s.unavailable[id] = struct{}{}
	}
	s.self = rawjson.ID(rawjson.Get([]byte(user.Val()), "id"))
	return nil
}

// Guilds returns the ids of all guilds that Redis has cached. What is not yet
// committed is not in it.
func (s *Store) Guilds(ctx context.Context, rdb redis.Cmdable) ([]string, error) {
	ids, err := rdb.HKeys(ctx, s.keys.Cache("guild")).Result()
	if err != nil {
		return nil, fmt.Errorf("cache: list the guilds of shard %d: %w", s.keys.ID, err)
	}
	return slices.DeleteFunc(ids, isBeside), nil
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
	if len(s.wants.fields) == 0 && len(s.wants.whole) == 0 && len(s.wants.lists) == 0 {
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
	now := c.received
	want := func(col *collection, id, _ []byte) { s.want(col, id, now) }
	if c.event.Cache.Kind == dispatch.User {
		s.noteSelf(c) // what follows in the batch may ask for the bot's own
	}
	switch rule := &c.event.Cache; rule.Do {
	case dispatch.Replace, dispatch.Merge, dispatch.MergeKnown, dispatch.MergeVoice, dispatch.Remove, dispatch.PutList, dispatch.GuildUpdate:
		col, id := s.locate(c)
		s.want(col, id, now)
		s.needAround(c, col, id)
	case dispatch.RemoveMany:
		s.eachMessage(c, func(col *collection, id []byte) { s.want(col, id, now) })
	case dispatch.MergeList:
		s.eachOf(c, rule.Kind, f.Raw(rule.Object), want)
	case dispatch.MembersChunk:
		s.eachOf(c, dispatch.Member, f.Raw(dispatch.MemberList), want)
		s.eachOf(c, dispatch.Presence, f.Raw(dispatch.PresenceList), want)
	case dispatch.SyncThreads:
		s.wantWhole(s.children(dispatch.Thread, f.ID(dispatch.GuildID)))
		s.wantIndex(c)
	case dispatch.ThreadMembers:
		s.wantThread(c)
		if col := s.children(dispatch.ThreadMember, f.ID(dispatch.ID)); col != nil {
			var a rawjson.Array
			for a.Reset(f.Raw(rule.ID)); a.Next(); {
				s.want(col, rawjson.ID(a.Value), now)
			}
		}
	case dispatch.GuildCreate:
		if list := f.Raw(dispatch.ThreadList); len(list) > 0 && !s.off[kindIndex(dispatch.Thread)] && !rawjson.IsTrue(f.Raw(dispatch.Unavailable)) {
			s.wantThreads(c)
		}
	case dispatch.GuildDelete:
		col, id := s.locate(c)
		s.want(col, id, now)
		if f.ID(dispatch.ID) != nil && !rawjson.IsTrue(f.Raw(dispatch.Unavailable)) {
			s.wantIndex(c)
			s.wantThreads(c)
		}
	case dispatch.Raise, dispatch.Lower, dispatch.Clear, dispatch.ClearOne:
		col, id := s.locate(c)
		s.wantBoth(col, id, rule.Beside, now)
	case dispatch.Lay:
		s.wantVoice(f.ID(dispatch.GuildID), c.payload, now)
	case dispatch.LayList:
		var a rawjson.Array
		for a.Reset(f.Raw(rule.Object)); a.Next(); {
			s.wantVoice(f.ID(dispatch.GuildID), a.Value, now)
		}
	}
}

// needAround notes what a change of one entity looks up of others.
func (s *Store) needAround(c *Change, col *collection, id []byte) {
	f := &c.fields
	guild, now := f.ID(dispatch.GuildID), c.received
	rule := &c.event.Cache
	if rule.Kind == dispatch.Member && rule.Beside == dispatch.MemberCount {
		s.wantBoth(s.global(dispatch.Guild), guild, dispatch.MemberCount, now)
		if rule.Do == dispatch.Remove {
			s.want(s.children(dispatch.VoiceState, guild), f.ID(rule.ID), now)
		}
		return
	}
	switch rule.Kind {
	case dispatch.VoiceState:
		// Where there is a voice state, nothing of one left is beside it.
		if col != nil && id != nil {
			if value, known := s.mem.lookup(col, id, now); !known || value == nil {
				s.want(col, s.besideID(id, dispatch.Left), now)
			}
		}
	case dispatch.ThreadMember:
		s.wantThread(c)
	case dispatch.Channel:
		if rule.Do == dispatch.Remove {
			for _, kind := range [...]dispatch.Kind{dispatch.Thread, dispatch.StageInstance, dispatch.VoiceState} {
				s.wantWhole(s.children(kind, guild))
			}
			s.wantIndex(c)
		}
	case dispatch.Thread:
		if rule.Do == dispatch.Remove {
			s.wantIndex(c)
		}
	}
}

func (s *Store) want(c *collection, id []byte, now int64) {
	if c == nil || id == nil {
		return
	}
	if _, known := s.mem.lookup(c, id, now); known {
		if e := c.entries[string(id)]; e != nil {
			e.commit = max(e.commit, s.mem.building)
		} else if c.whole != nil {
			c.whole.commit = max(c.whole.commit, s.mem.building)
		}
		s.metrics.hits[c.kind].Inc()
		return
	}
	s.metrics.misses[c.kind].Inc()
	s.wants.add(c, string(id))
}

// wantBoth asks for an entity and a value beside it.
func (s *Store) wantBoth(c *collection, id []byte, what dispatch.Beside, now int64) {
	if c != nil && id != nil {
		s.want(c, id, now)
		s.want(c, s.besideID(id, what), now)
	}
}

// wantVoice asks for a channel or thread and what is beside it.
func (s *Store) wantVoice(guild, object []byte, now int64) {
	id := rawjson.ID(rawjson.Get(object, "id"))
	for _, kind := range voiceKinds {
		s.wantBoth(s.children(kind, guild), id, dispatch.Voice, now)
	}
}

// wantThread asks for the thread that a change of thread members names.
func (s *Store) wantThread(c *Change) {
	s.want(s.children(dispatch.Thread, c.fields.ID(dispatch.GuildID)), c.fields.ID(dispatch.ID), c.received)
}

func (s *Store) wantWhole(c *collection) {
	if c == nil {
		return
	}
	if c.whole != nil {
		s.metrics.hits[c.kind].Inc()
		s.mem.setWhole(c) // pins it
		return
	}
	s.metrics.misses[c.kind].Inc()
	s.wants.whole[c] = struct{}{}
}

// wantIndex asks for the message buckets of the change's scope.
func (s *Store) wantIndex(c *Change) {
	if !s.off[kindIndex(dispatch.Message)] && s.scopeID(c) != nil {
		s.wants.lists = append(s.wants.lists, listWant{change: c, key: s.keys.Cache("buckets:" + string(s.scopeID(c)))})
	}
}

// wantThreads asks for the ids of the guild's threads, whatever is off: they may
// have been cached before.
func (s *Store) wantThreads(c *Change) {
	guild := c.fields.ID(dispatch.ID)
	if guild == nil {
		return
	}
	if col := s.children(dispatch.Thread, guild); col != nil && col.whole != nil {
		s.mem.setWhole(col) // pins it
		return
	}
	s.wants.lists = append(s.wants.lists, listWant{change: c, key: s.keys.Cache(childrenName(dispatch.Thread, string(guild))), fields: true})
}

func (s *Store) read(ctx context.Context, rdb redis.Cmdable) (misses int, err error) {
	pipe := rdb.Pipeline()
	values := make(map[*collection]*redis.SliceCmd, len(s.wants.fields))
	for c, f := range s.wants.fields {
		if _, all := s.wants.whole[c]; all {
			continue
		}
		misses += len(f.ids)
		values[c] = pipe.HMGet(ctx, c.key, f.ids...)
	}
	whole := make(map[*collection]*redis.MapStringStringCmd, len(s.wants.whole))
	for c := range s.wants.whole {
		misses++
		whole[c] = pipe.HGetAll(ctx, c.key)
	}
	lists := make([]*redis.StringSliceCmd, len(s.wants.lists))
	for i, want := range s.wants.lists {
		misses++
		if want.fields {
			lists[i] = pipe.HKeys(ctx, want.key)
		} else {
			lists[i] = pipe.ZRange(ctx, want.key, 0, -1)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return misses, fmt.Errorf("cache: read previous states of shard %d: %w", s.keys.ID, err)
	}
	for c, cmd := range values {
		expires, now := s.expiry(c), s.now(c)
		for i, value := range cmd.Val() {
			var raw []byte
			if text, ok := value.(string); ok {
				raw = []byte(text)
			}
			s.mem.learn(c, []byte(s.wants.fields[c].ids[i]), raw, expires, now)
		}
	}
	for c, cmd := range whole {
		for id, text := range cmd.Val() {
			s.mem.learn(c, []byte(id), []byte(text), 0, 0)
		}
		s.mem.setWhole(c)
	}
	for i, want := range s.wants.lists {
		if want.fields {
			want.change.threads = lists[i].Val()
		} else {
			want.change.buckets = lists[i].Val()
		}
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
	if rule.Kind == dispatch.User {
		return s.global(rule.Kind), []byte(selfID)
	}
	id := c.fields.ID(rule.ID)
	if rule.Kind == dispatch.ThreadMember {
		if id == nil {
			id = s.self
		}
		return s.children(rule.Kind, c.fields.ID(dispatch.ID)), id
	}
	if id == nil {
		return nil, nil
	}
	switch {
	case rule.Kind == dispatch.Message:
		return s.messages(c, id), id
	case isGlobal(rule.Kind):
		return s.global(rule.Kind), id
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

// children returns the collection of a kind that has one hash a guild, or a thread;
// nil without one.
func (s *Store) children(kind dispatch.Kind, parent []byte) *collection {
	if parent == nil {
		return nil
	}
	return s.collection(kind, parent, "")
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

func childrenName(kind dispatch.Kind, parent string) string { return string(kind) + ":" + parent }

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
