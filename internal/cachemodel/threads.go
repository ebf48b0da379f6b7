package cachemodel

import (
	"encoding/json"
	"slices"
)

// members returns the hash with a thread's members. A thread that is not cached
// has none: nothing would ever find it again.
func (m *Model) members(guild, thread string) string {
	if _, known := m.get(m.child("thread", guild), thread); !known || m.off["thread_member"] {
		return ""
	}
	return "thread_member:" + thread
}

// threadTold drops the count kept beside a thread if the thread itself says one.
func (m *Model) threadTold(guild, thread, d string) {
	if member(d, "member_count") != "" {
		m.remove(m.child("thread", guild), thread+":member_count")
	}
}

// threadGone takes along what a thread had.
func (m *Model) threadGone(guild, thread string) {
	if thread != "" {
		m.drop("thread_member:" + thread)
		m.dropMessages(thread)
	}
}

// ownThreadMember stores the bot's own membership that comes inside a thread.
func (m *Model) ownThreadMember(guild, thread string) {
	if own := member(thread, "member"); isObject(own) {
		m.set(m.members(guild, id(thread, "id")), m.userOf(own), own)
	}
}

// userOf returns the user of a thread member; where it does not say, it is the bot.
func (m *Model) userOf(threadMember string) string {
	if user := id(threadMember, "user_id"); user != "" {
		return user
	}
	return m.me
}

// threadListSync takes the list of all active threads of some channels (of all, if
// it names none) and returns those that were thought to be active and are not.
func (m *Model) threadListSync(d string) (before State) {
	guild := id(d, "guild_id")
	key := m.child("thread", guild)
	if isArray(member(d, "threads")) {
		listed := make(map[string]bool)
		for _, x := range elements(member(d, "threads")) {
			listed[id(x, "id")] = true
		}
		var gone []json.RawMessage
		for _, thread := range slices.Sorted(slices.Values(m.ids(key))) {
			value, _ := m.get(key, thread)
			if !listed[thread] && concerns(member(d, "channel_ids"), id(value, "parent_id")) && member(member(value, "thread_metadata"), "archived") != "true" {
				gone = append(gone, json.RawMessage(value))
				m.remove(key, thread)
				m.threadGone(guild, thread)
			}
		}
		if gone != nil {
			before.Previous = []byte(encode(gone))
		}
	}
	for _, x := range elements(member(d, "threads")) {
		m.layOver(m.child("thread", guild), id(x, "id"), x, whole)
		m.threadTold(guild, id(x, "id"), x)
	}
	for _, x := range elements(member(d, "members")) {
		m.set(m.members(guild, id(x, "id")), m.userOf(x), x)
	}
	return before
}

// concerns reports whether a list of channel ids has a channel, as one that is not
// there has all.
func concerns(list, channel string) bool {
	if !isArray(list) {
		return true
	}
	return slices.ContainsFunc(elements(list), func(x string) bool { return idOf(x) == channel })
}

// idOf returns the identifier that a raw value is.
func idOf(raw string) string { return id(`{"id":`+raw+`}`, "id") }

func (m *Model) threadMemberUpdate(d string) State {
	return m.layOver(m.members(id(d, "guild_id"), id(d, "id")), m.userOf(d), d, whole)
}

func (m *Model) threadMembersUpdate(d string) State {
	guild, thread := id(d, "guild_id"), id(d, "id")
	key := m.members(guild, thread)
	before := m.takeList(elements(member(d, "removed_member_ids")), func(user string) string {
		value, _ := m.get(key, user)
		m.remove(key, user)
		return value
	})
	for _, x := range elements(member(d, "added_members")) {
		m.set(key, id(x, "user_id"), x)
	}
	if _, ok := number(d, "member_count"); ok {
		if _, known := m.get(m.child("thread", guild), thread); known {
			m.set(m.child("thread", guild), thread+":member_count", member(d, "member_count"))
		}
	}
	return before
}

// takeList returns what take finds for each of a list of raw ids, as one array.
// It is partial if it found some and not all.
func (m *Model) takeList(ids []string, take func(id string) (value string)) State {
	var found []json.RawMessage
	missing := false
	for _, x := range ids {
		name := idOf(x)
		if name == "" {
			continue
		}
		if value := take(name); value != "" {
			found = append(found, json.RawMessage(value))
		} else {
			missing = true
		}
	}
	if len(found) == 0 {
		return State{}
	}
	return State{Previous: []byte(encode(found)), Partial: missing}
}
