package cachemodel

import (
	"encoding/json"
	"slices"
	"strconv"
)

// lists are the collections in a GUILD_CREATE that are entities of their own.
var lists = []struct{ name, kind, id string }{
	{"roles", "role", "id"},
	{"channels", "channel", "id"},
	{"threads", "thread", "id"},
	{"members", "member", "user.id"},
	{"presences", "presence", "user.id"},
	{"voice_states", "voice_state", "user_id"},
	{"stage_instances", "stage_instance", "id"},
	{"guild_scheduled_events", "scheduled_event", "id"},
	{"soundboard_sounds", "soundboard_sound", "sound_id"},
}

// guildCreate takes a snapshot: what it lists is all there is. It reports whether
// the guild was to be expected.
func (m *Model) guildCreate(d string) (sync bool) {
	guild := id(d, "id")
	if guild == "" {
		return false
	}
	if member(d, "unavailable") == "true" {
		m.set("unavailable", guild, "")
		return true
	}
	_, sync = m.get("unavailable", guild)
	m.remove("unavailable", guild)

	if isArray(member(d, "threads")) {
		for _, thread := range m.ids(m.child("thread", guild)) {
			m.drop("thread_member:" + thread)
		}
	}
	m.remove(m.account("guild"), guild)
	m.set(m.account("guild"), guild, withoutLists(d))
	m.wholeList("emojis", guild, member(d, "emojis"))
	m.wholeList("stickers", guild, member(d, "stickers"))
	for _, list := range lists {
		array := member(d, list.name)
		if !isArray(array) {
			continue
		}
		all := elements(array)
		if total, known := number(d, "member_count"); list.kind == "member" && known && len(all) < total {
			m.putAll(list.kind, list.id, guild, all)
			continue
		}
		m.replace(list.kind, list.id, guild, all)
	}
	for _, thread := range elements(member(d, "threads")) {
		m.ownThreadMember(guild, thread)
	}
	return sync
}

// replace stores a list in place of all that a guild has of a kind.
func (m *Model) replace(kind, path, guild string, all []string) {
	m.drop(m.child(kind, guild))
	m.putAll(kind, path, guild, all)
}

func (m *Model) putAll(kind, path, guild string, all []string) {
	for _, x := range all {
		m.set(m.child(kind, guild), id(x, path), x)
	}
}

// wholeList stores one of a guild's arrays and returns the one before.
func (m *Model) wholeList(kind, guild, array string) State {
	old, _ := m.get(m.account(kind), guild)
	if isArray(array) {
		m.set(m.account(kind), guild, array)
	}
	return State{Previous: []byte(old)}
}

func (m *Model) guildUpdate(d string) State {
	guild := id(d, "id")
	if member(d, "member_count") != "" {
		m.remove(m.account("guild"), guild+":member_count")
	}
	return m.layOver(m.account("guild"), guild, withoutLists(d), partial)
}

// withoutLists returns a guild without what is kept apart from it.
func withoutLists(d string) string {
	apart := []string{"emojis", "stickers"}
	for _, list := range lists {
		apart = append(apart, list.name)
	}
	var guild map[string]json.RawMessage
	if json.Unmarshal([]byte(d), &guild) != nil {
		panic("cachemodel: a guild that is no object")
	}
	for name := range guild {
		if slices.Contains(apart, name) {
			delete(guild, name)
		}
	}
	return encode(guild)
}

// guildDelete removes everything of a guild, or marks it in an outage.
func (m *Model) guildDelete(d string) State {
	guild := id(d, "id")
	old, _ := m.get(m.account("guild"), guild)
	if guild == "" {
		return State{}
	}
	if member(d, "unavailable") == "true" {
		m.set("unavailable", guild, "")
		return taken(old)
	}
	m.remove("unavailable", guild)
	for _, thread := range m.ids(m.child("thread", guild)) {
		m.drop("thread_member:" + thread)
	}
	for _, kind := range []string{"guild", "emojis", "stickers"} {
		m.remove(m.account(kind), guild)
	}
	for _, kind := range []string{"automod_rule", "ban", "integration", "invite"} {
		m.drop(m.child(kind, guild))
	}
	for _, list := range lists {
		m.drop(m.child(list.kind, guild))
	}
	for channel, scope := range m.scopes {
		if scope == guild {
			m.dropMessages(channel)
		}
	}
	return taken(old)
}

// countMember keeps the number of members beside a guild that said one.
func (m *Model) countMember(guild string, by int) {
	key := m.account("guild")
	value, _ := m.get(key, guild)
	n, known := number(value, "member_count")
	if kept, ok := m.get(key, guild+":member_count"); ok {
		n, _ = strconv.Atoi(kept)
	}
	if known {
		m.set(key, guild+":member_count", strconv.Itoa(max(n+by, 0)))
	}
}
