package cache

import (
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

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
	if c.event.Cache.Kind == dispatch.User {
		s.noteSelf(c)
	}
	switch rule := &c.event.Cache; rule.Do {
	case dispatch.Ready:
		s.ready(c, w)
	case dispatch.Put:
		if col, id := s.locate(c); col != nil && id != nil {
			s.put(col, id, s.own(c, object(c)), w)
			s.created(c, col, id, w)
		}
	case dispatch.Replace:
		return s.replace(c, w)
	case dispatch.Merge, dispatch.MergeKnown, dispatch.GuildUpdate:
		return s.merge(c, w)
	case dispatch.MergeVoice:
		if rawjson.IsNull(f.Raw(dispatch.ChannelID)) {
			return s.leaveVoice(c, w)
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
	case dispatch.SyncThreads:
		return s.syncThreads(c, w)
	case dispatch.ThreadMembers:
		return s.threadMembers(c, w)
	case dispatch.GuildCreate:
		s.guildCreate(c, w)
	case dispatch.GuildDelete:
		return s.guildDelete(c, w)
	case dispatch.Raise, dispatch.Lower, dispatch.Clear, dispatch.ClearOne:
		return s.count(c, w)
	case dispatch.Lay:
		return s.lay(c, c.payload, w)
	case dispatch.LayList:
		return s.layList(c, w)
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

// part marks, as a leading space, a value that is only a part of its entity.
const part = ' '

// whole returns a value without its mark, and whether it had it.
func whole(value []byte) (object []byte, isPart bool) {
	if len(value) > 0 && value[0] == part {
		return value[1:], true
	}
	return value, false
}

// own returns value for keeping: itself if it is most of the payload, else a
// copy, so that a small object does not hold a large buffer.
func (s *Store) own(c *Change, value []byte) []byte {
	for len(value) > 0 && value[0] <= ' ' {
		value = value[1:] // a leading space is a mark
	}
	if 2*len(value) >= cap(c.payload) {
		return value
	}
	return append(make([]byte, 0, len(value)), value...)
}

// before returns what is cached of an entity, mark and all, and makes it the state
// of the change.
func (s *Store) before(c *Change, col *collection, id []byte) ([]byte, error) {
	old, known := s.mem.lookup(col, id, c.received)
	if !known {
		return nil, ErrNotRead
	}
	c.State, c.Partial = whole(old)
	return old, nil
}

// put writes one object, or one value beside one.
func (s *Store) put(col *collection, id, value []byte, w Writer) {
	e := s.mem.set(col, id, value, s.entryExpiry(col))
	hsetOne(w, col.key, e.id, value)
	if col.bucket.channel != "" {
		s.keepBucket(col, w)
	}
}

func (s *Store) entryExpiry(col *collection) int64 {
	if col.bucket.channel == "" {
		return 0
	}
	return s.latest + s.cfg.MessageAge.Milliseconds()
}

// keepBucket sets the expiry of a message bucket that is being written to, once in a
// batch, and sees that its scope's index vouches for it until then. A batch that
// wrote without could find the bucket run out, and make one that never does.
func (s *Store) keepBucket(col *collection, w Writer) {
	if col.kept == s.mem.building {
		return
	}
	col.kept = s.mem.building
	age := s.cfg.MessageAge.Milliseconds()
	write(w, "PEXPIRE", col.key, s.age)
	if until := s.latest + age; col.indexed < until {
		col.indexed = until + age/4 + 1000
		index := s.keys.Cache("buckets:" + col.in.id)
		write(w, "ZADD", index, itoa(col.indexed), col.bucket.member())
		write(w, "ZREMRANGEBYSCORE", index, "-inf", itoa(s.latest))
		write(w, "PEXPIRE", index, itoa(2*age+2000))
	}
}

// created does what comes with a new entity.
func (s *Store) created(c *Change, col *collection, id []byte, w Writer) {
	f := &c.fields
	switch c.event.Cache.Kind {
	case dispatch.Message:
		s.touch(col.bucket)
	case dispatch.Invite:
		s.touchInvites(col.in.id)
	case dispatch.Thread:
		s.supersede(col, id, func(by dispatch.Field) bool { return f.Raw(by) != nil }, w)
		s.putOwnMember(c, id, f.Raw(c.event.Cache.Member), w)
	}
}

// replace stores a member as it came; it may have been known.
func (s *Store) replace(c *Change, w Writer) error {
	id := c.fields.ID(c.event.Cache.ID)
	if id == nil {
		return nil
	}
	count, err := s.memberCount(c)
	if err != nil {
		return err
	}
	known := false
	if col, _ := s.locate(c); col != nil {
		old, err := s.before(c, col, id)
		if err != nil {
			return err
		}
		known = old != nil
		s.put(col, id, s.own(c, object(c)), w)
	}
	if !known {
		s.setMemberCount(c, count, 1, w)
	}
	if voice := s.children(dispatch.VoiceState, c.fields.ID(dispatch.GuildID)); voice != nil {
		s.dropBeside(voice, id, dispatch.Left, w)
	}
	return nil
}

func (s *Store) merge(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	rule := &c.event.Cache
	if rule.Kind == dispatch.ThreadMember {
		if known, err := s.hasThread(c, c.fields.ID(dispatch.ID)); !known || err != nil {
			return err
		}
	}
	old, err := s.before(c, col, id)
	if err != nil {
		return err
	}
	if rule.Kind == dispatch.VoiceState && old == nil {
		if err := s.takeLeft(c, col, id, w); err != nil {
			return err
		}
	}
	value := object(c)
	if !rawjson.IsObject(value) {
		return nil
	}
	old, isPart := whole(old)
	if rule.Do == dispatch.GuildUpdate {
		value = withoutNested(value)
	}
	switch {
	case old != nil:
		merged := make([]byte, 0, max(len(old), len(value))+64)
		if isPart {
			merged = append(merged, part)
		}
		value = rawjson.AppendMerged(merged, old, value)
	case rule.Do == dispatch.MergeKnown:
		return nil
	case rule.Part:
		value = append(append(make([]byte, 0, 1+len(value)), part), value...)
	default:
		value = s.own(c, value)
	}
	s.put(col, id, value, w)
	s.supersede(col, id, func(by dispatch.Field) bool { return c.fields.Raw(by) != nil }, w)
	return nil
}

func withoutNested(guild []byte) []byte {
	return rawjson.AppendWithout(make([]byte, 0, 4096), guild, func(key, _ []byte) bool { return dispatch.IsNested(key) })
}

// removeMany deletes a list of messages. Those that were known are the state.
func (s *Store) removeMany(c *Change, w Writer) error {
	var (
		err error
		was states
	)
	s.eachMessage(c, func(col *collection, id []byte) {
		old, known := s.mem.lookup(col, id, c.received)
		if !known {
			err = ErrNotRead
		}
		was.add(old)
	})
	if err != nil {
		return err
	}
	c.State, c.Partial = was.done()
	var (
		in  *collection
		ids []string
	)
	s.eachMessage(c, func(col *collection, id []byte) { // most are of one bucket
		if col != in && in != nil {
			writeAll(w, "HDEL", in.key, ids)
			ids = ids[:0]
		}
		in, ids = col, s.forget(col, id, ids)
	})
	if in != nil {
		writeAll(w, "HDEL", in.key, ids)
	}
	return nil
}

// states gathers those of some entities that were known.
type states struct {
	text    []byte
	missing bool
}

func (l *states) add(value []byte) {
	if value == nil {
		l.missing = true
		return
	}
	value, isPart := whole(value)
	l.missing = l.missing || isPart
	l.text = append(append(l.text, ','), value...)
}

// done returns the array, nil if none was known, and whether some were and some
// were not.
func (l *states) done() (state []byte, isPart bool) {
	if len(l.text) == 0 {
		return nil, false
	}
	l.text[0] = '['
	return append(l.text, ']'), l.missing
}

func (s *Store) putList(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	if _, err := s.before(c, col, id); err != nil {
		return err
	}
	s.putGuildList(c, c.event.Cache.Kind, id, object(c), w)
	return nil
}

// mergeList lays each element of a list over what is cached of it. What comes of it
// counts as whole.
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
		old, _ = whole(old)
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
