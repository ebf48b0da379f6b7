package cache

import (
	"bytes"
	"slices"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

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

func (s *Store) ready(c *Change, w Writer) {
	if user := c.fields.Raw(dispatch.UserObject); rawjson.IsObject(user) {
		if col, id := s.locate(c); col != nil {
			s.put(col, id, s.own(c, user), w)
		}
	}
	key := s.keys.Cache("unavailable")
	clear(s.unavailable)
	write(w, "DEL", key)
	var announced []string
	var a rawjson.Array
	for a.Reset(c.fields.Raw(dispatch.GuildList)); a.Next(); {
		if id := rawjson.ID(rawjson.Get(a.Value, "id")); id != nil {
			s.unavailable[string(id)] = struct{}{}
			announced = append(announced, string(id))
		}
	}
	writeAll(w, "SADD", key, announced)
}

// noteSelf notes the bot's own id that a READY or a USER_UPDATE has.
func (s *Store) noteSelf(c *Change) {
	id := c.fields.ID(dispatch.UserObject)
	if c.event.Cache.Do != dispatch.Ready {
		id = c.fields.ID(dispatch.ID)
	}
	if id != nil && !bytes.Equal(id, s.self) {
		s.self = bytes.Clone(id)
	}
}

// guildCreate replaces everything of the guild that the payload has. Lists that it
// does not have (a guild in an outage has none) stay as they are, and so do the
// members, but for those listed, if it lists only some of them.
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
		kind := guildLists[i].kind
		if kind == dispatch.Member && !s.complete(c, list) {
			continue
		}
		if kind == dispatch.Thread && !s.off[kindIndex(kind)] {
			s.dropThreadMembers(s.knownThreads(c, id), w)
		}
		if col := s.children(kind, id); col != nil {
			unlink = append(unlink, col.key)
			s.mem.clear(col)
		}
	}
	if len(unlink) > 0 {
		write(w, "UNLINK", unlink...)
	}
	if col := s.global(dispatch.Guild); col != nil {
		s.put(col, id, withoutNested(c.payload), w)
		s.dropBeside(col, id, dispatch.MemberCount, w)
	}
	s.putGuildList(c, dispatch.Emojis, id, c.fields.Raw(dispatch.EmojiList), w)
	s.putGuildList(c, dispatch.Stickers, id, c.fields.Raw(dispatch.StickerList), w)
	for i, list := range lists {
		s.putAll(c, guildLists[i].kind, list, w)
	}
	s.eachOf(c, dispatch.Thread, c.fields.Raw(dispatch.ThreadList), func(_ *collection, id, thread []byte) {
		s.putOwnMember(c, id, rawjson.Get(thread, c.event.Cache.Member.Name()), w)
	})
}

// complete reports whether a guild's list of members has all of them: of a large
// guild Discord sends a part.
func (s *Store) complete(c *Change, members []byte) bool {
	want, ok := rawjson.Int(c.fields.Raw(dispatch.CountOfMembers))
	if !ok {
		return true
	}
	var n int64
	var a rawjson.Array
	for a.Reset(members); a.Next(); {
		n++
	}
	return n >= want
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
		if _, err := s.before(c, col, id); err != nil {
			return err
		}
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
	s.dropThreadMembers(s.knownThreads(c, id), w)
	unlink := []string{s.keys.Cache("buckets:" + string(id))}
	for _, kind := range dispatch.Kinds {
		if !ofGuild(kind) {
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

// ofGuild reports whether the entities of a kind lie in one hash a guild.
func ofGuild(kind dispatch.Kind) bool {
	switch kind {
	case dispatch.Message, dispatch.ThreadMember:
		return false
	}
	return !isGlobal(kind)
}

// isGlobal reports whether the entities of a kind lie in one hash for the shard.
func isGlobal(kind dispatch.Kind) bool {
	switch kind {
	case dispatch.Guild, dispatch.Emojis, dispatch.Stickers, dispatch.User, dispatch.Entitlement, dispatch.Subscription:
		return true
	}
	return false
}

// knownThreads returns the ids of all threads that may be cached of a guild, in
// Redis or not yet.
func (s *Store) knownThreads(c *Change, guild []byte) []string {
	ids := make([]string, 0, len(c.threads))
	for _, id := range c.threads {
		if !isBeside(id) {
			ids = append(ids, id)
		}
	}
	col := s.children(dispatch.Thread, guild)
	if col == nil {
		return ids
	}
	for id, e := range col.entries {
		if e.value != nil && !isBeside(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
