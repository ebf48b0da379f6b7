package cache

import (
	"slices"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// hasThread reports whether a thread of the change's guild is cached. Members of
// others are not kept: nothing would ever remove them.
func (s *Store) hasThread(c *Change, thread []byte) (bool, error) {
	col := s.children(dispatch.Thread, c.fields.ID(dispatch.GuildID))
	if col == nil || thread == nil {
		return false, nil
	}
	value, known := s.mem.lookup(col, thread, c.received)
	if !known {
		return false, ErrNotRead
	}
	return value != nil, nil
}

// memberID returns the user a thread member is. The bot's own need not say.
func (s *Store) memberID(member []byte) []byte {
	if id := rawjson.ID(rawjson.Get(member, "user_id")); id != nil {
		return id
	}
	return s.self
}

// putOwnMember stores the bot's own membership of a thread.
func (s *Store) putOwnMember(c *Change, thread, member []byte, w Writer) {
	if !rawjson.IsObject(member) {
		return
	}
	col, user := s.children(dispatch.ThreadMember, thread), s.memberID(member)
	if col != nil && user != nil {
		s.put(col, user, s.own(c, member), w)
	}
}

// dropThreadMembers deletes the members of threads, also those that were cached
// before their kind was switched off.
func (s *Store) dropThreadMembers(threads []string, w Writer) {
	if len(threads) == 0 {
		return
	}
	unlink := make([]string, 0, len(threads))
	for _, thread := range threads {
		if col := s.children(dispatch.ThreadMember, []byte(thread)); col != nil {
			s.mem.clear(col)
		}
		unlink = append(unlink, s.keys.Cache(childrenName(dispatch.ThreadMember, thread)))
	}
	write(w, "UNLINK", unlink...)
}

// syncThreads takes a list of the active threads of some channels, or of the guild:
// those cached of them that are not in it are active no more, or not for the bot.
//
// Source: https://discord.com/developers/docs/events/gateway-events#thread-list-sync
func (s *Store) syncThreads(c *Change, w Writer) error {
	f := &c.fields
	guild, active := f.ID(dispatch.GuildID), f.Raw(dispatch.ThreadList)
	col := s.children(dispatch.Thread, guild)
	if col == nil {
		return nil
	}
	if col.whole == nil {
		return ErrNotRead
	}
	if len(active) > 0 && active[0] == '[' {
		gone := s.inactive(c, col, active)
		var was states
		for _, id := range gone {
			was.add(col.entries[id].value)
		}
		c.State, _ = was.done()
		s.dropAll(col, gone, w)
		s.dropThreadMembers(gone, w)
		if len(gone) > 0 {
			s.dropMessages(c, func(channel string) bool { return slices.Contains(gone, channel) }, w)
		}
	}
	if err := s.mergeList(c, dispatch.Thread, active, w); err != nil {
		return err
	}
	s.eachOf(c, dispatch.Thread, active, func(col *collection, id, thread []byte) {
		s.supersede(col, id, func(by dispatch.Field) bool { return rawjson.Get(thread, by.Name()) != nil }, w)
	})
	var a rawjson.Array
	for a.Reset(f.Raw(dispatch.MemberList)); a.Next(); {
		thread := rawjson.ID(rawjson.Get(a.Value, "id"))
		known, err := s.hasThread(c, thread)
		if err != nil {
			return err
		}
		if known {
			s.putOwnMember(c, thread, a.Value, w)
		}
	}
	return nil
}

// inactive returns the cached threads that a list of active ones lacks, in order.
func (s *Store) inactive(c *Change, col *collection, active []byte) (ids []string) {
	listed := make(map[string]bool)
	s.eachOf(c, dispatch.Thread, active, func(_ *collection, id, _ []byte) { listed[string(id)] = true })
	var channels map[string]bool // nil: all of the guild
	if raw := c.fields.Raw(dispatch.ChannelIDs); len(raw) > 0 && raw[0] == '[' {
		channels = make(map[string]bool)
		var a rawjson.Array
		for a.Reset(raw); a.Next(); {
			channels[string(rawjson.ID(a.Value))] = true
		}
	}
	for id, e := range col.entries {
		if e.value == nil || isBeside(id) || listed[id] {
			continue
		}
		if channels != nil && !channels[string(rawjson.ID(rawjson.Get(e.value, "parent_id")))] {
			continue
		}
		if !rawjson.IsTrue(rawjson.Get(rawjson.Get(e.value, "thread_metadata"), "archived")) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// threadMembers removes and adds members of a thread and notes their number beside
// it. Those that were known of the removed ones are the state.
func (s *Store) threadMembers(c *Change, w Writer) error {
	f := &c.fields
	thread := f.ID(dispatch.ID)
	if known, err := s.hasThread(c, thread); !known || err != nil {
		return err
	}
	if col := s.children(dispatch.ThreadMember, thread); col != nil {
		var was states
		var a rawjson.Array
		for a.Reset(f.Raw(dispatch.RemovedIDs)); a.Next(); {
			if user := rawjson.ID(a.Value); user != nil {
				old, known := s.mem.lookup(col, user, c.received)
				if !known {
					return ErrNotRead
				}
				was.add(old)
			}
		}
		c.State, c.Partial = was.done()
		var gone []string
		for a.Reset(f.Raw(dispatch.RemovedIDs)); a.Next(); {
			if user := rawjson.ID(a.Value); user != nil {
				gone = append(gone, s.mem.set(col, user, nil, 0).id)
			}
		}
		writeAll(w, "HDEL", col.key, gone)
		var set hset
		for a.Reset(f.Raw(dispatch.AddedList)); a.Next(); {
			if user := s.memberID(a.Value); user != nil && rawjson.IsObject(a.Value) {
				value := s.own(c, a.Value)
				set.add(col.key, s.mem.set(col, user, value, 0).id, value, w)
			}
		}
		set.flush(w)
	}
	if n, ok := rawjson.Int(f.Raw(dispatch.CountOfMembers)); ok {
		threads := s.children(dispatch.Thread, f.ID(dispatch.GuildID))
		s.put(threads, s.besideID(thread, dispatch.MemberCount), []byte(itoa(n)), w)
	}
	return nil
}
