package cache

import (
	"strconv"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// maxFields bounds the fields written by one HSET, far below Redis's limit of
// 1,048,576 arguments a command.
const maxFields = 10_000

// guildLists are the lists in a GUILD_CREATE whose elements are entities.
var guildLists = [...]struct {
	name string
	kind dispatch.Kind
}{
	{"roles", dispatch.Role},
	{"channels", dispatch.Channel},
	{"threads", dispatch.Thread},
	{"members", dispatch.Member},
	{"presences", dispatch.Presence},
	{"voice_states", dispatch.VoiceState},
	{"stage_instances", dispatch.StageInstance},
	{"guild_scheduled_events", dispatch.ScheduledEvent},
	{"soundboard_sounds", dispatch.SoundboardSound},
}

// Apply sets c.State to what was known before the change, makes the change in
// memory and hands its Redis commands to w. Changes are applied in the order of
// their sequence, each after a Prefetch that had it.
//
// Sources: the merging rules of each dispatch at
// https://discord.com/developers/docs/events/gateway-events
func (s *Store) Apply(c *Change, w Writer) error {
	if c.event == nil || !c.fields.Object {
		return nil
	}
	s.latest = max(s.latest, c.received)
	f := &c.fields
	switch rule := &c.event.Cache; rule.Do {
	case dispatch.Ready:
		s.ready(c, w)
	case dispatch.Put, dispatch.Replace:
		if col, id := s.locate(c); col != nil && id != nil {
			s.put(col, id, s.own(c, object(c)), w)
		}
	case dispatch.Merge, dispatch.MergeKnown, dispatch.GuildUpdate:
		return s.merge(c, w)
	case dispatch.MergeVoice:
		if rawjson.IsNull(f.Raw(dispatch.ChannelID)) {
			return s.remove(c, w)
		}
		return s.merge(c, w)
	case dispatch.Remove:
		return s.remove(c, w)
	case dispatch.RemoveMany:
		return s.removeMany(c, w)
	case dispatch.PutList:
		return s.putList(c, w)
	case dispatch.MergeList:
		return s.mergeList(c, rule.Kind, f.Raw(rule.Object), w)
	case dispatch.MembersChunk:
		if err := s.mergeList(c, dispatch.Member, f.Raw(dispatch.MemberList), w); err != nil {
			return err
		}
		return s.mergeList(c, dispatch.Presence, f.Raw(dispatch.PresenceList), w)
	case dispatch.ReplaceList:
		if col := s.children(rule.Kind, f.ID(dispatch.GuildID)); col != nil {
			write(w, "UNLINK", col.key)
			s.mem.clear(col)
			s.putAll(c, rule.Kind, f.Raw(rule.Object), w)
		}
	case dispatch.GuildCreate:
		s.guildCreate(c, w)
	case dispatch.GuildDelete:
		return s.guildDelete(c, w)
	}
	return nil
}

// object returns the entity in a payload.
func object(c *Change) []byte {
	if field := c.event.Cache.Object; field != dispatch.NoField {
		return c.fields.Raw(field)
	}
	return c.payload
}

// own returns value for keeping: itself if it is most of the payload, else a
// copy, so that a small object does not hold a large buffer.
func (s *Store) own(c *Change, value []byte) []byte {
	if 2*len(value) >= cap(c.payload) {
		return value
	}
	return append(make([]byte, 0, len(value)), value...)
}

// put writes one object.
func (s *Store) put(col *collection, id, value []byte, w Writer) {
	if col.bucket.channel != "" {
		e := s.mem.set(col, id, value, s.latest+s.cfg.MessageAge.Milliseconds())
		hsetOne(w, col.key, e.id, value)
		s.keepBucket(col, w)
		s.touch(col.bucket)
		return
	}
	e := s.mem.set(col, id, value, 0)
	hsetOne(w, col.key, e.id, value)
}

// keepBucket sets the expiry of a message bucket that is being written to, and
// sees that its scope's index vouches for it until then. Within a second of the
// last time there is nothing to do.
func (s *Store) keepBucket(col *collection, w Writer) {
	age := s.cfg.MessageAge.Milliseconds()
	if s.latest-col.expirySet < min(1000, age/10) {
		return
	}
	col.expirySet = s.latest
	write(w, "PEXPIRE", col.key, itoa(age))
	if until := s.latest + age; col.indexed < until {
		col.indexed = until + age/4 + 1000
		index := s.keys.Cache("buckets:" + col.in.id)
		write(w, "ZADD", index, itoa(col.indexed), col.bucket.member())
		write(w, "ZREMRANGEBYSCORE", index, "-inf", itoa(s.latest))
		write(w, "PEXPIRE", index, itoa(2*age+2000))
	}
}

func (s *Store) merge(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	old, known := s.mem.lookup(col, id, c.received)
	if !known {
		return ErrNotRead
	}
	c.State = old
	value := object(c)
	if !rawjson.IsObject(value) {
		return nil
	}
	switch {
	case c.event.Cache.Do == dispatch.GuildUpdate:
		value = withoutNested(value)
		if old != nil {
			value = rawjson.AppendMerged(make([]byte, 0, len(old)+64), old, value)
		}
	case old != nil:
		value = rawjson.AppendMerged(make([]byte, 0, max(len(old), len(value))+64), old, value)
	case c.event.Cache.Do == dispatch.MergeKnown:
		return nil
	default:
		value = s.own(c, value)
	}
	e := s.mem.set(col, id, value, s.entryExpiry(col))
	hsetOne(w, col.key, e.id, value)
	if col.bucket.channel != "" {
		s.keepBucket(col, w)
	}
	return nil
}

func (s *Store) entryExpiry(col *collection) int64 {
	if col.bucket.channel == "" {
		return 0
	}
	return s.latest + s.cfg.MessageAge.Milliseconds()
}

func withoutNested(guild []byte) []byte {
	return rawjson.AppendWithout(make([]byte, 0, 4096), guild, func(key, _ []byte) bool { return dispatch.IsNested(key) })
}

func (s *Store) remove(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col != nil && id != nil {
		old, known := s.mem.lookup(col, id, c.received)
		if !known {
			return ErrNotRead
		}
		c.State = old
		s.drop(col, id, w)
	}
	f := &c.fields
	switch guild := f.ID(dispatch.GuildID); c.event.Cache.Kind {
	case dispatch.Member:
		for _, kind := range [...]dispatch.Kind{dispatch.Presence, dispatch.VoiceState} {
			if col := s.children(kind, guild); col != nil && id != nil {
				s.drop(col, id, w)
			}
		}
	case dispatch.Channel:
		if id == nil {
			id = f.ID(dispatch.ID)
		}
		return s.removeChannel(c, id, guild, w)
	case dispatch.Thread:
		if id == nil {
			id = f.ID(dispatch.ID)
		}
		if id != nil {
			s.dropMessages(c, func(channel string) bool { return channel == string(id) }, w)
		}
	}
	return nil
}

// drop deletes one object.
func (s *Store) drop(col *collection, id []byte, w Writer) {
	e := s.mem.set(col, id, nil, s.entryExpiry(col))
	write(w, "HDEL", col.key, e.id)
}

// removeChannel takes a channel's threads and messages along.
func (s *Store) removeChannel(c *Change, id, guild []byte, w Writer) error {
	if id == nil {
		return nil
	}
	gone := map[string]bool{string(id): true}
	if threads := s.children(dispatch.Thread, guild); threads != nil {
		if threads.whole == nil {
			return ErrNotRead
		}
		args := []string{threads.key}
		for _, e := range threads.entries {
			if e.value != nil && string(rawjson.ID(rawjson.Get(e.value, "parent_id"))) == string(id) {
				gone[e.id] = true
				args = append(args, e.id)
			}
		}
		for _, thread := range args[1:] {
			s.mem.set(threads, []byte(thread), nil, 0)
		}
		if len(args) > 1 {
			write(w, "HDEL", args...)
		}
	}
	s.dropMessages(c, func(channel string) bool { return gone[channel] }, w)
	return nil
}

// dropMessages deletes the messages of the channels of c's scope that match.
func (s *Store) dropMessages(c *Change, match func(channel string) bool, w Writer) {
	scopeID := s.scopeID(c)
	if s.off[kindIndex(dispatch.Message)] || scopeID == nil {
		return
	}
	in := s.mem.scope(scopeID)
	for _, member := range c.buckets {
		if b, ok := parseBucket(member); ok && match(b.channel) {
			s.bucket(in, b)
		}
	}
	var unlink []string
	forget := []string{s.keys.Cache("buckets:" + in.id)}
	for b, col := range in.messages {
		if match(b.channel) {
			s.mem.clear(col)
			col.expirySet, col.indexed = 0, 0
			unlink = append(unlink, col.key)
			forget = append(forget, b.member())
		}
	}
	if len(unlink) > 0 {
		write(w, "UNLINK", unlink...)
		write(w, "ZREM", forget...)
	}
	s.mem.releaseScope(in)
}

func (s *Store) removeMany(c *Change, w Writer) error {
	var (
		err   error
		state []byte
	)
	s.eachMessage(c, func(col *collection, id []byte) {
		old, known := s.mem.lookup(col, id, c.received)
		if !known {
			err = ErrNotRead
		}
		if old != nil {
			state = append(append(state, ','), old...)
		}
	})
	if err != nil {
		return err
	}
	if len(state) > 0 {
		state[0] = '['
		c.State = append(state, ']')
	}
	s.eachMessage(c, func(col *collection, id []byte) { s.drop(col, id, w) })
	return nil
}

func (s *Store) putList(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	old, known := s.mem.lookup(col, id, c.received)
	if !known {
		return ErrNotRead
	}
	c.State = old
	s.putGuildList(c, c.event.Cache.Kind, id, object(c), w)
	return nil
}

func (s *Store) mergeList(c *Change, kind dispatch.Kind, list []byte, w Writer) error {
	var (
		err error
		set hset
	)
	s.eachOf(c, kind, list, func(col *collection, id, object []byte) {
		old, known := s.mem.lookup(col, id, c.received)
		if !known {
			err = ErrNotRead
			return
		}
		value := rawjson.AppendMerged(make([]byte, 0, len(old)+len(object)), old, object)
		set.add(col.key, s.mem.set(col, id, value, 0).id, value, w)
	})
	set.flush(w)
	return err
}

// putAll stores each element of a list as it came.
func (s *Store) putAll(c *Change, kind dispatch.Kind, list []byte, w Writer) {
	var set hset
	s.eachOf(c, kind, list, func(col *collection, id, object []byte) {
		value := s.own(c, object)
		set.add(col.key, s.mem.set(col, id, value, 0).id, value, w)
	})
	set.flush(w)
}

// hset gathers the fields of one hash into few commands.
type hset struct {
	key    string
	ids    []string
	values [][]byte
}

func (h *hset) add(key, id string, value []byte, w Writer) {
	h.key = key
	h.ids, h.values = append(h.ids, id), append(h.values, value)
	if len(h.ids) >= maxFields {
		h.flush(w)
	}
}

func (h *hset) flush(w Writer) {
	if len(h.ids) == 0 {
		return
	}
	w.Command("HSET", 1+2*len(h.ids))
	w.Text(h.key)
	for i, id := range h.ids {
		w.Text(id)
		w.Bytes(h.values[i])
	}
	h.ids, h.values = h.ids[:0], h.values[:0]
}

func hsetOne(w Writer, key, id string, value []byte) {
	w.Command("HSET", 3)
	w.Text(key)
	w.Text(id)
	w.Bytes(value)
}

// write hands out a command of texts.
func write(w Writer, name string, args ...string) {
	w.Command(name, len(args))
	for _, arg := range args {
		w.Text(arg)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func (s *Store) ready(c *Change, w Writer) {
	if user := c.fields.Raw(dispatch.UserObject); rawjson.IsObject(user) {
		if col, id := s.locate(c); col != nil {
			s.put(col, id, s.own(c, user), w)
		}
	}
	key := s.keys.Cache("unavailable")
	clear(s.unavailable)
	write(w, "DEL", key)
	args := []string{key}
	var a rawjson.Array
	for a.Reset(c.fields.Raw(dispatch.GuildList)); a.Next(); {
		if id := rawjson.ID(rawjson.Get(a.Value, "id")); id != nil {
			s.unavailable[string(id)] = struct{}{}
			args = append(args, string(id))
		}
	}
	if len(args) > 1 {
		write(w, "SADD", args...)
	}
}

// guildCreate replaces everything of the guild but its messages. Lists that the
// payload does not have (a guild in an outage has none) stay as they are.
func (s *Store) guildCreate(c *Change, w Writer) {
	id := c.fields.ID(dispatch.ID)
	if id == nil {
		return
	}
	_, announced := s.unavailable[string(id)]
	if rawjson.IsTrue(c.fields.Raw(dispatch.Unavailable)) {
		c.Sync = true
		s.setUnavailable(id, w)
		return
	}
	c.Sync = announced
	if announced {
		delete(s.unavailable, string(id))
		write(w, "SREM", s.keys.Cache("unavailable"), string(id))
	}

	var lists [len(guildLists)][]byte
	var o rawjson.Object
	var unlink []string
	for o.Reset(c.payload); o.Next(); {
		for i := range guildLists {
			if rawjson.KeyIs(o.Key, guildLists[i].name) && len(o.Value) > 0 && o.Value[0] == '[' {
				lists[i] = o.Value
			}
		}
	}
	for i, list := range lists {
		if list == nil {
			continue
		}
		if col := s.children(guildLists[i].kind, id); col != nil {
			unlink = append(unlink, col.key)
			s.mem.clear(col)
		}
	}
	if len(unlink) > 0 {
		write(w, "UNLINK", unlink...)
	}
	if col := s.global(dispatch.Guild); col != nil {
		s.put(col, id, withoutNested(c.payload), w)
	}
	s.putGuildList(c, dispatch.Emojis, id, c.fields.Raw(dispatch.EmojiList), w)
	s.putGuildList(c, dispatch.Stickers, id, c.fields.Raw(dispatch.StickerList), w)
	for i, list := range lists {
		s.putAll(c, guildLists[i].kind, list, w)
	}
}

// putGuildList stores one of a guild's lists that are kept whole.
func (s *Store) putGuildList(c *Change, kind dispatch.Kind, guild, list []byte, w Writer) {
	if col := s.global(kind); col != nil && len(list) > 0 && list[0] == '[' {
		s.put(col, guild, s.own(c, list), w)
	}
}

func (s *Store) setUnavailable(id []byte, w Writer) {
	if _, is := s.unavailable[string(id)]; !is {
		s.unavailable[string(id)] = struct{}{}
		write(w, "SADD", s.keys.Cache("unavailable"), string(id))
	}
}

func (s *Store) guildDelete(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col != nil && id != nil {
		old, known := s.mem.lookup(col, id, c.received)
		if !known {
			return ErrNotRead
		}
		c.State = old
	}
	if id == nil {
		if id = c.fields.ID(dispatch.ID); id == nil {
			return nil
		}
	}
	if rawjson.IsTrue(c.fields.Raw(dispatch.Unavailable)) {
		s.setUnavailable(id, w)
		return nil
	}
	for _, kind := range [...]dispatch.Kind{dispatch.Guild, dispatch.Emojis, dispatch.Stickers} {
		if col := s.global(kind); col != nil {
			s.drop(col, id, w)
		}
	}
	if _, is := s.unavailable[string(id)]; is {
		delete(s.unavailable, string(id))
		write(w, "SREM", s.keys.Cache("unavailable"), string(id))
	}
	s.dropMessages(c, func(string) bool { return true }, w)
	unlink := []string{s.keys.Cache("buckets:" + string(id))}
	for _, kind := range dispatch.Kinds {
		switch kind {
		case dispatch.Guild, dispatch.Emojis, dispatch.Stickers, dispatch.User, dispatch.Message:
			continue
		}
		// Also what was cached before its kind was switched off.
		unlink = append(unlink, s.keys.Cache(childrenName(kind, string(id))))
		if col := s.children(kind, id); col != nil {
			s.mem.clear(col)
		}
	}
	write(w, "UNLINK", unlink...)
	return nil
}
