package cache

import (
	"bytes"
	"strconv"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// An aside is a value beside the entities of a kind.
type aside struct {
	name dispatch.Beside
	by   dispatch.Field // by which the entity itself says the same
}

// asides lists, by the index of their kind, the values beside an entity.
var asides = func() (of [numKinds][]aside) {
	for _, b := range dispatch.Besides {
		k := kindIndex(b.Kind)
		of[k] = append(of[k], aside{b.Beside, b.By})
	}
	return of
}()

// besideID returns the field of a value beside an entity. It is good until the next
// call.
func (s *Store) besideID(id []byte, what dispatch.Beside) []byte {
	s.scratch = append(append(append(s.scratch[:0], id...), ':'), what...)
	return s.scratch
}

// dropBeside deletes a value beside an entity.
func (s *Store) dropBeside(col *collection, id []byte, what dispatch.Beside, w Writer) {
	write(w, "HDEL", col.key, s.mem.set(col, s.besideID(id, what), nil, s.entryExpiry(col)).id)
}

// supersede deletes the values beside an entity of which its own dispatch says the
// same.
func (s *Store) supersede(col *collection, id []byte, says func(by dispatch.Field) bool, w Writer) {
	for _, b := range asides[col.kind] {
		if b.by != dispatch.NoField && says(b.by) {
			s.dropBeside(col, id, b.name, w)
		}
	}
}

// A memberCount is what is known of a guild's number of members. The zero value: it
// is not, and is not kept.
type memberCount struct {
	col *collection
	n   int64
}

// memberCount looks up the number of members of the change's guild.
func (s *Store) memberCount(c *Change) (memberCount, error) {
	col, guild := s.global(dispatch.Guild), c.fields.ID(dispatch.GuildID)
	if col == nil || guild == nil {
		return memberCount{}, nil
	}
	entity, known := s.mem.lookup(col, guild, c.received)
	value, also := s.mem.lookup(col, s.besideID(guild, dispatch.MemberCount), c.received)
	if !known || !also {
		return memberCount{}, ErrNotRead
	}
	if entity == nil {
		return memberCount{}, nil
	}
	if value == nil {
		value = rawjson.Get(entity, dispatch.CountOfMembers.Name())
	}
	n, ok := rawjson.Int(value)
	if !ok {
		return memberCount{}, nil
	}
	return memberCount{col, n}, nil
}

// setMemberCount writes the number of members after one came or went.
func (s *Store) setMemberCount(c *Change, count memberCount, by int64, w Writer) {
	if count.col != nil {
		n := max(count.n+by, 0)
		s.put(count.col, s.besideID(c.fields.ID(dispatch.GuildID), dispatch.MemberCount), []byte(itoa(n)), w)
	}
}

// count changes the reactions or the poll votes beside a cached message.
func (s *Store) count(c *Change, w Writer) error {
	col, id := s.locate(c)
	if col == nil || id == nil {
		return nil
	}
	rule := &c.event.Cache
	entity, known := s.mem.lookup(col, id, c.received)
	value, also := s.mem.lookup(col, s.besideID(id, rule.Beside), c.received)
	if !known || !also {
		return ErrNotRead
	}
	if entity == nil {
		return nil
	}
	switch rule.Beside {
	case dispatch.Reactions:
		if value == nil {
			value = rawjson.Get(entity, dispatch.ReactionList.Name())
		}
		value = s.react(c, array(value))
	case dispatch.Poll:
		value = s.vote(c, entity, value)
	}
	if value != nil {
		s.put(col, s.besideID(id, rule.Beside), value, w)
	}
	return nil
}

// array returns value if it is an array, else an empty one.
func array(value []byte) []byte {
	if len(value) > 0 && value[0] == '[' {
		return value
	}
	return []byte("[]")
}

// edit appends an array to dst with the first element for which is returns true
// replaced by what with appends of it, or left out where it appends nothing. It
// returns nil if there is none.
func edit(dst, array []byte, is func(element []byte) bool, with func(dst, element []byte) []byte) []byte {
	dst = append(dst, '[')
	start, found := len(dst), false
	var a rawjson.Array
	for a.Reset(array); a.Next(); {
		end := len(dst)
		if end > start {
			dst = append(dst, ',')
		}
		before := len(dst)
		if !found && is(a.Value) {
			found = true
			dst = with(dst, a.Value)
		} else {
			dst = append(dst, a.Value...)
		}
		if len(dst) == before {
			dst = dst[:end] // without the comma
		}
	}
	if !found {
		return nil
	}
	return append(dst, ']')
}

// appendMore appends an array to dst with one more element.
func appendMore(dst, array []byte, element func(dst []byte) []byte) []byte {
	dst = append(dst, '[')
	var a rawjson.Array
	for a.Reset(array); a.Next(); {
		dst = append(append(dst, a.Value...), ',')
	}
	return append(element(dst), ']')
}

// isOwn reports whether a reaction or a vote is the bot's.
func (s *Store) isOwn(c *Change) bool {
	return s.self != nil && bytes.Equal(c.fields.ID(dispatch.UserID), s.self)
}

// react returns a message's reactions after a change of them, nil if it makes none.
//
// Source: https://discord.com/developers/docs/resources/message#reaction-object
func (s *Store) react(c *Change, list []byte) []byte {
	do := c.event.Cache.Do
	if do == dispatch.Clear {
		c.State = list
		return []byte("[]")
	}
	emoji := c.fields.Raw(dispatch.EmojiObject)
	if !rawjson.IsObject(emoji) {
		return nil
	}
	is := func(reaction []byte) bool { return sameEmoji(rawjson.Get(reaction, "emoji"), emoji) }
	r := s.reaction(c)
	same := false
	changed := edit(make([]byte, 0, len(list)+len(emoji)+160), list, is, func(dst, old []byte) []byte {
		switch do {
		case dispatch.ClearOne:
			c.State = old
			return dst
		case dispatch.Raise:
			if r.own && r.was(old) {
				same = true
			}
			return r.appendTo(dst, old, 1)
		}
		return r.appendTo(dst, old, -1)
	})
	switch {
	case same:
		return nil
	case changed == nil && do == dispatch.Raise:
		return appendMore(make([]byte, 0, len(list)+len(emoji)+160), list, func(dst []byte) []byte {
			return r.appendTo(dst, append(append([]byte(`{"emoji":`), emoji...), '}'), 1)
		})
	}
	return changed
}

// sameEmoji compares two emojis by id, or by name where they have none.
func sameEmoji(a, b []byte) bool {
	idA, idB := rawjson.ID(rawjson.Get(a, "id")), rawjson.ID(rawjson.Get(b, "id"))
	if idA != nil || idB != nil {
		return bytes.Equal(idA, idB)
	}
	nameA, okA := rawjson.Text(rawjson.Get(a, "name"))
	nameB, okB := rawjson.Text(rawjson.Get(b, "name"))
	return okA && okB && bytes.Equal(nameA, nameB)
}

// A reaction is one that somebody added or took back.
type reaction struct {
	burst, own bool
	colors     []byte // nil: none said
}

func (s *Store) reaction(c *Change) reaction {
	r := reaction{own: s.isOwn(c)}
	var o rawjson.Object
	for o.Reset(c.payload); o.Next(); {
		switch {
		case rawjson.KeyIs(o.Key, "burst"):
			r.burst = r.burst || rawjson.IsTrue(o.Value)
		case rawjson.KeyIs(o.Key, "type"):
			r.burst = r.burst || string(o.Value) == "1"
		case rawjson.KeyIs(o.Key, "burst_colors"):
			if len(o.Value) > len("[]") && o.Value[0] == '[' {
				r.colors = o.Value
			}
		}
	}
	return r
}

// was reports whether the bot has reacted so already.
func (r *reaction) was(old []byte) bool {
	if r.burst {
		return rawjson.IsTrue(rawjson.Get(old, "me_burst"))
	}
	return rawjson.IsTrue(rawjson.Get(old, "me"))
}

// appendTo appends old with one more (by 1) or one less (by -1) reaction; nothing,
// if none is left.
func (r *reaction) appendTo(dst, old []byte, by int64) []byte {
	count, _ := rawjson.Int(rawjson.Get(old, "count"))
	details := rawjson.Get(old, "count_details")
	burst, _ := rawjson.Int(rawjson.Get(details, "burst"))
	normal, _ := rawjson.Int(rawjson.Get(details, "normal"))
	if !rawjson.IsObject(details) {
		normal = count
	}
	me, meBurst := rawjson.IsTrue(rawjson.Get(old, "me")), rawjson.IsTrue(rawjson.Get(old, "me_burst"))
	count = max(count+by, 0)
	if r.burst {
		burst = max(burst+by, 0)
		meBurst = r.own && by > 0 || meBurst && !r.own
	} else {
		normal = max(normal+by, 0)
		me = r.own && by > 0 || me && !r.own
	}
	if count == 0 {
		return dst
	}
	colors := r.colors
	if colors == nil || by < 0 {
		colors = array(rawjson.Get(old, "burst_colors"))
	}
	var room [256]byte
	now := append(room[:0], `{"count":`...)
	now = strconv.AppendInt(now, count, 10)
	now = append(now, `,"count_details":{"burst":`...)
	now = strconv.AppendInt(now, burst, 10)
	now = append(now, `,"normal":`...)
	now = strconv.AppendInt(now, normal, 10)
	now = append(now, `},"me":`...)
	now = strconv.AppendBool(now, me)
	now = append(now, `,"me_burst":`...)
	now = strconv.AppendBool(now, meBurst)
	now = append(now, `,"burst_colors":`...)
	now = append(append(now, colors...), '}')
	return rawjson.AppendMerged(dst, old, now)
}

// vote returns a poll's votes after one was cast or taken back, nil if that changes
// nothing.
//
// Source: https://discord.com/developers/docs/resources/poll#poll-results-object
func (s *Store) vote(c *Change, message, votes []byte) []byte {
	poll := rawjson.Get(message, dispatch.PollObject.Name())
	answer := c.fields.ID(dispatch.AnswerID)
	if !rawjson.IsObject(poll) || answer == nil {
		return nil
	}
	if votes == nil {
		votes = rawjson.Get(poll, "results")
	}
	counts := array(rawjson.Get(votes, "answer_counts"))
	by, own := int64(1), s.isOwn(c)
	if c.event.Cache.Do == dispatch.Lower {
		by = -1
	}
	is := func(count []byte) bool { return bytes.Equal(rawjson.ID(rawjson.Get(count, "id")), answer) }
	with := func(dst, old []byte) []byte {
		n, _ := rawjson.Int(rawjson.Get(old, "count"))
		voted := rawjson.IsTrue(rawjson.Get(old, "me_voted"))
		if own {
			voted = by > 0
		}
		var room [64]byte
		now := strconv.AppendInt(append(room[:0], `{"count":`...), max(n+by, 0), 10)
		now = strconv.AppendBool(append(now, `,"me_voted":`...), voted)
		return rawjson.AppendMerged(dst, old, append(now, '}'))
	}
	const before = `{"answer_counts":`
	dst := append(make([]byte, 0, len(before)+len(counts)+64), before...)
	changed := edit(dst, counts, is, with)
	if changed == nil && by > 0 {
		changed = appendMore(dst, counts, func(dst []byte) []byte {
			dst = append(append(dst, `{"id":`...), c.fields.Raw(dispatch.AnswerID)...)
			dst = strconv.AppendBool(append(dst, `,"count":1,"me_voted":`...), own)
			return append(dst, '}')
		})
	}
	if changed == nil {
		return nil
	}
	return append(changed, '}')
}

// voiceKinds are the kinds that have a voice status beside them.
var voiceKinds = [...]dispatch.Kind{dispatch.Channel, dispatch.Thread}

// lay lays what object says of a voice channel's status beside the channel. The
// state is the channel with what was known of it.
func (s *Store) lay(c *Change, object []byte, w Writer) error {
	id := rawjson.ID(rawjson.Get(object, "id"))
	if id == nil {
		return nil
	}
	says := voiceOf(object)
	for _, kind := range voiceKinds {
		col := s.children(kind, c.fields.ID(dispatch.GuildID))
		if col == nil {
			continue
		}
		entity, known := s.mem.lookup(col, id, c.received)
		value, also := s.mem.lookup(col, s.besideID(id, dispatch.Voice), c.received)
		if !known || !also {
			return ErrNotRead
		}
		if entity == nil {
			continue
		}
		if c.State == nil && c.event.Cache.Do == dispatch.Lay {
			c.State = entity
			if value != nil {
				c.State = rawjson.AppendMerged(make([]byte, 0, len(entity)+len(value)), entity, value)
			}
		}
		if says != nil {
			now := says
			if value != nil {
				now = rawjson.AppendMerged(make([]byte, 0, len(value)+len(says)), value, says)
			}
			s.put(col, s.besideID(id, dispatch.Voice), now, w)
		}
	}
	return nil
}

// voiceOf returns the members of object that say something of a voice channel, nil
// if there are none.
func voiceOf(object []byte) []byte {
	any := false
	says := rawjson.AppendWithout(nil, object, func(key, _ []byte) bool {
		keep := rawjson.KeyIs(key, "status") || rawjson.KeyIs(key, "voice_start_time")
		any = any || keep
		return !keep
	})
	if !any {
		return nil
	}
	return says
}

// layList is lay for each element of a list.
func (s *Store) layList(c *Change, w Writer) error {
	var a rawjson.Array
	for a.Reset(c.fields.Raw(c.event.Cache.Object)); a.Next(); {
		if err := s.lay(c, a.Value, w); err != nil {
			return err
		}
	}
	return nil
}
