package cachemodel

import "encoding/json"

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
	return m.self()
}

func (m *Model) threadListSync(d string) {
	guild := id(d, "guild_id")
	for _, x := range elements(member(d, "threads")) {
		m.layOver(m.child("thread", guild), id(x, "id"), x, whole)
		m.threadTold(guild, id(x, "id"), x)
	}
	for _, x := range elements(member(d, "members")) {
		m.set(m.members(guild, id(x, "id")), m.userOf(x), x)
	}
}

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
		var name struct{ ID string }
		if name.ID = id(`{"id":`+x+`}`, "id"); name.ID == "" {
			continue
		}
		if value := take(name.ID); value != "" {
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
