package cache

import (
	"bytes"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// remove deletes an entity and what depends on it.
func (s *Store) remove(c *Change, w Writer) error {
	f := &c.fields
	guild := f.ID(dispatch.GuildID)
	switch c.event.Cache.Kind {
	case dispatch.Member:
		return s.removeMember(c, guild, w)
	case dispatch.Channel:
		return s.removeChannel(c, guild, w)
	case dispatch.Thread:
		return s.removeThread(c, guild, w)
	}
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	if _, err := s.before(c, col, id); err != nil {
		return err
	}
	s.drop(col, id, w)
	return nil
}

// drop deletes one object and what is beside it.
func (s *Store) drop(col *collection, id []byte, w Writer) {
	var room [4]string
	writeAll(w, "HDEL", col.key, s.forget(col, id, room[:0]))
}

// forget deletes one object and what is beside it from memory, and appends the
// fields that are to be deleted in Redis.
func (s *Store) forget(col *collection, id []byte, fields []string) []string {
	col.kept = 0 // with its last field a message's hash goes, and its expiry with it
	expires := s.entryExpiry(col)
	fields = append(fields, s.mem.set(col, id, nil, expires).id)
	for _, b := range asides[col.kind] {
		fields = append(fields, s.mem.set(col, s.besideID(id, b.name), nil, expires).id)
	}
	return fields
}

// dropWhere deletes the objects of a collection, known as a whole, that match, and
// returns their ids.
func (s *Store) dropWhere(col *collection, match func(e *entry) bool, w Writer) (ids []string) {
	for id, e := range col.entries {
		if e.value != nil && !isBeside(id) && match(e) {
			ids = append(ids, id)
		}
	}
	s.dropAll(col, ids, w)
	return ids
}

// dropAll deletes several objects of a collection and what is beside them.
func (s *Store) dropAll(col *collection, ids []string, w Writer) {
	var fields []string
	for _, id := range ids {
		fields = s.forget(col, []byte(id), fields)
	}
	writeAll(w, "HDEL", col.key, fields)
}

// removeMember takes the presence along and moves the voice state aside: that of a
// member who left the guild out of a voice channel is asked for once more, by the
// VOICE_STATE_UPDATE that may follow.
func (s *Store) removeMember(c *Change, guild []byte, w Writer) error {
	count, err := s.memberCount(c)
	if err != nil {
		return err
	}
	id := c.fields.ID(c.event.Cache.ID)
	if id == nil {
		return nil
	}
	voice := s.children(dispatch.VoiceState, guild)
	var spoke []byte
	if voice != nil {
		var known bool
		if spoke, known = s.mem.lookup(voice, id, c.received); !known {
			return ErrNotRead
		}
	}
	if col := s.children(dispatch.Member, guild); col != nil {
		if _, err := s.before(c, col, id); err != nil {
			return err
		}
		s.drop(col, id, w)
	}
	s.setMemberCount(c, count, -1, w)
	if col := s.children(dispatch.Presence, guild); col != nil {
		s.drop(col, id, w)
	}
	if spoke != nil {
		write(w, "HDEL", voice.key, s.mem.set(voice, id, nil, 0).id)
		left := s.mem.set(voice, s.besideID(id, dispatch.Left), spoke, 0)
		hsetOne(w, voice.key, left.id, spoke)
		s.touchLeft(voice.key, left.id)
	}
	return nil
}

// leaveVoice deletes a voice state.
func (s *Store) leaveVoice(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	old, err := s.before(c, col, id)
	if err != nil {
		return err
	}
	if old == nil {
		return s.takeLeft(c, col, id, w)
	}
	write(w, "HDEL", col.key, s.mem.set(col, id, nil, 0).id)
	return nil
}

// takeLeft makes the voice state of a member who has left the guild the state of
// the change, and drops it.
func (s *Store) takeLeft(c *Change, col *collection, id []byte, w Writer) error {
	left, known := s.mem.lookup(col, s.besideID(id, dispatch.Left), c.received)
	if !known {
		return ErrNotRead
	}
	if left != nil {
		c.State = left
		s.dropBeside(col, id, dispatch.Left, w)
	}
	return nil
}

// removeChannel takes along a channel's threads with their members, the messages in
// it and in them, its stage instance, and the voice states in it.
func (s *Store) removeChannel(c *Change, guild []byte, w Writer) error {
	id := c.fields.ID(dispatch.ID)
	if id == nil {
		return nil
	}
	threads, stages, voices := s.children(dispatch.Thread, guild), s.children(dispatch.StageInstance, guild), s.children(dispatch.VoiceState, guild)
	for _, col := range [...]*collection{threads, stages, voices} {
		if col != nil && col.whole == nil {
			return ErrNotRead
		}
	}
	if col := s.children(dispatch.Channel, guild); col != nil {
		if _, err := s.before(c, col, id); err != nil {
			return err
		}
		s.drop(col, id, w)
	}
	gone := map[string]bool{string(id): true}
	if threads != nil {
		of := s.dropWhere(threads, func(e *entry) bool { return bytes.Equal(rawjson.ID(rawjson.Get(e.value, "parent_id")), id) }, w)
		for _, thread := range of {
			gone[thread] = true
		}
		s.dropThreadMembers(of, w)
	}
	inIt := func(e *entry) bool { return bytes.Equal(rawjson.ID(rawjson.Get(e.value, "channel_id")), id) }
	if stages != nil {
		s.dropWhere(stages, inIt, w)
	}
	if voices != nil {
		s.dropVoices(voices, inIt, w)
	}
	s.dropMessages(c, func(channel string) bool { return gone[channel] }, w)
	return nil
}

// dropVoices deletes voice states, also of members who have left, that match.
func (s *Store) dropVoices(col *collection, match func(e *entry) bool, w Writer) {
	var fields []string
	for id, e := range col.entries {
		if e.value != nil && match(e) {
			fields = append(fields, id)
		}
	}
	for _, id := range fields {
		s.mem.set(col, []byte(id), nil, 0)
	}
	writeAll(w, "HDEL", col.key, fields)
}

// removeThread takes along a thread's members and the messages in it.
func (s *Store) removeThread(c *Change, guild []byte, w Writer) error {
	id := c.fields.ID(dispatch.ID)
	if id == nil {
		return nil
	}
	if col := s.children(dispatch.Thread, guild); col != nil {
		if _, err := s.before(c, col, id); err != nil {
			return err
		}
		s.drop(col, id, w)
		s.dropThreadMembers([]string{string(id)}, w)
	}
	s.dropMessages(c, func(channel string) bool { return channel == string(id) }, w)
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
	var unlink, forget []string
	for b, col := range in.messages {
		if match(b.channel) {
			s.mem.clear(col)
			col.kept, col.indexed = 0, 0
			unlink = append(unlink, col.key)
			forget = append(forget, b.member())
		}
	}
	if len(unlink) > 0 {
		write(w, "UNLINK", unlink...)
		writeAll(w, "ZREM", s.keys.Cache("buckets:"+in.id), forget)
	}
	s.mem.releaseScope(in)
}
