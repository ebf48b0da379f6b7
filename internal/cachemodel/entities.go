package cachemodel

import (
	"cmp"
	"strings"
)

// A verb is what a dispatch does to its one entity.
type verb int

const (
	put     verb = iota // stored as it came; nothing is told of what was there
	putOver             // the same, but what was there is told
	lay                 // laid over what is there
	remove              // taken out
)

// Whether a dispatch tells the whole of an entity, for one not known before.
const (
	whole   = false
	partial = true
)

// An entity says what a dispatch does to its one entity.
type entity struct {
	do      verb
	kind    string
	id      string // path of the entity's id in the payload
	at      string // member that is the entity; empty: the payload is
	partial bool   // the dispatch tells a part of it
}

var entities = map[string]entity{
	"AUTO_MODERATION_RULE_CREATE":   {do: put, kind: "automod_rule", id: "id"},
	"AUTO_MODERATION_RULE_UPDATE":   {do: lay, kind: "automod_rule", id: "id"},
	"AUTO_MODERATION_RULE_DELETE":   {do: remove, kind: "automod_rule", id: "id"},
	"CHANNEL_CREATE":                {do: put, kind: "channel", id: "id"},
	"CHANNEL_UPDATE":                {do: lay, kind: "channel", id: "id"},
	"CHANNEL_DELETE":                {do: remove, kind: "channel", id: "id"},
	"ENTITLEMENT_CREATE":            {do: put, kind: "entitlement", id: "id"},
	"ENTITLEMENT_UPDATE":            {do: lay, kind: "entitlement", id: "id"},
	"ENTITLEMENT_DELETE":            {do: remove, kind: "entitlement", id: "id"},
	"GUILD_BAN_ADD":                 {do: put, kind: "ban", id: "user.id"},
	"GUILD_BAN_REMOVE":              {do: remove, kind: "ban", id: "user.id"},
	"GUILD_MEMBER_ADD":              {do: putOver, kind: "member", id: "user.id"},
	"GUILD_MEMBER_UPDATE":           {do: lay, kind: "member", id: "user.id", partial: partial},
	"GUILD_MEMBER_REMOVE":           {do: remove, kind: "member", id: "user.id"},
	"GUILD_ROLE_CREATE":             {do: put, kind: "role", id: "role.id", at: "role"},
	"GUILD_ROLE_UPDATE":             {do: lay, kind: "role", id: "role.id", at: "role"},
	"GUILD_ROLE_DELETE":             {do: remove, kind: "role", id: "role_id"},
	"GUILD_SCHEDULED_EVENT_CREATE":  {do: put, kind: "scheduled_event", id: "id"},
	"GUILD_SCHEDULED_EVENT_UPDATE":  {do: lay, kind: "scheduled_event", id: "id"},
	"GUILD_SCHEDULED_EVENT_DELETE":  {do: remove, kind: "scheduled_event", id: "id"},
	"GUILD_SOUNDBOARD_SOUND_CREATE": {do: put, kind: "soundboard_sound", id: "sound_id"},
	"GUILD_SOUNDBOARD_SOUND_UPDATE": {do: lay, kind: "soundboard_sound", id: "sound_id"},
	"GUILD_SOUNDBOARD_SOUND_DELETE": {do: remove, kind: "soundboard_sound", id: "sound_id"},
	"INTEGRATION_CREATE":            {do: put, kind: "integration", id: "id"},
	"INTEGRATION_UPDATE":            {do: lay, kind: "integration", id: "id"},
	"INTEGRATION_DELETE":            {do: remove, kind: "integration", id: "id"},
	"INVITE_CREATE":                 {do: put, kind: "invite", id: "code"},
	"INVITE_DELETE":                 {do: remove, kind: "invite", id: "code"},
	"PRESENCE_UPDATE":               {do: lay, kind: "presence", id: "user.id"},
	"STAGE_INSTANCE_CREATE":         {do: put, kind: "stage_instance", id: "id"},
	"STAGE_INSTANCE_UPDATE":         {do: lay, kind: "stage_instance", id: "id"},
	"STAGE_INSTANCE_DELETE":         {do: remove, kind: "stage_instance", id: "id"},
	"SUBSCRIPTION_CREATE":           {do: put, kind: "subscription", id: "id"},
	"SUBSCRIPTION_UPDATE":           {do: lay, kind: "subscription", id: "id"},
	"SUBSCRIPTION_DELETE":           {do: remove, kind: "subscription", id: "id"},
	"THREAD_CREATE":                 {do: put, kind: "thread", id: "id"},
	"THREAD_UPDATE":                 {do: lay, kind: "thread", id: "id"},
	"THREAD_DELETE":                 {do: remove, kind: "thread", id: "id"},
	"USER_UPDATE":                   {do: lay, kind: "user", id: "id"},
	"VOICE_STATE_UPDATE":            {do: lay, kind: "voice_state", id: "user_id"},
}

// entity does what a dispatch says of its one entity, and then what follows from
// it for others.
func (m *Model) entity(name string, e entity, d string) (before State) {
	guild, field := id(d, "guild_id"), id(d, e.id)
	key := m.child(e.kind, guild)
	switch e.kind {
	case "user":
		key, field = m.account(e.kind), "@me"
	case "entitlement", "subscription":
		key = m.account(e.kind)
	}
	value := d
	if e.at != "" {
		value = member(d, e.at)
	}
	old, known := m.get(key, field)
	do := e.do
	if left, ok := m.get(key, field+":left"); ok && name == "VOICE_STATE_UPDATE" && !known {
		defer func() { before = taken(left) }()
	}
	if name == "VOICE_STATE_UPDATE" && member(d, "channel_id") == "null" {
		do = remove
	}
	switch do {
	case put:
		m.set(key, field, value)
	case putOver:
		before = taken(old)
		m.set(key, field, value)
	case lay:
		before = m.layOver(key, field, value, e.partial)
	case remove:
		before = taken(old)
		m.remove(key, field)
	}

	switch name {
	case "CHANNEL_DELETE":
		m.channelGone(guild, field)
	case "THREAD_CREATE", "THREAD_UPDATE":
		m.threadTold(guild, field, d)
		if name == "THREAD_CREATE" {
			m.ownThreadMember(guild, d)
		}
	case "THREAD_DELETE":
		m.threadGone(guild, field)
	case "VOICE_STATE_UPDATE":
		m.remove(key, field+":left")
	case "USER_UPDATE":
		m.me = cmp.Or(id(d, "id"), m.me)
	case "GUILD_MEMBER_ADD":
		m.remove(m.child("voice_state", guild), field+":left")
		if !known && field != "" {
			m.countMember(guild, +1)
		}
	case "GUILD_MEMBER_REMOVE":
		m.remove(m.child("presence", guild), field)
		m.leaveVoice(m.child("voice_state", guild), field)
		if field != "" {
			m.countMember(guild, -1)
		}
	}
	return before
}

// layOver lays an update over what is there and returns what was.
func (m *Model) layOver(key, field, update string, inPart bool) State {
	old, known := m.get(key, field)
	if key == "" || field == "" || !isObject(update) {
		return taken(old)
	}
	value := update
	if known {
		value = overlay(old, update)
	}
	// The bulk dispatches tell whole entities; an update never completes one.
	if inPart && (!known || strings.HasPrefix(old, part)) {
		value = part + value
	}
	m.set(key, field, value)
	return taken(old)
}

// leaveVoice moves the voice state of a member who has left aside: Discord tells
// of the leaving of the voice channel later.
func (m *Model) leaveVoice(key, user string) {
	if state, known := m.get(key, user); known {
		m.remove(key, user)
		m.set(key, user+":left", state)
	}
}

// channelGone takes along what a channel had.
func (m *Model) channelGone(guild, channel string) {
	if channel == "" {
		return
	}
	for _, thread := range m.of("thread", guild, "parent_id", channel) {
		m.remove(m.child("thread", guild), thread)
		m.threadGone(guild, thread)
	}
	for _, stage := range m.of("stage_instance", guild, "channel_id", channel) {
		m.remove(m.child("stage_instance", guild), stage)
	}
	voices := m.child("voice_state", guild)
	for field, state := range m.content[voices] { // those aside too
		if id(state, "channel_id") == channel {
			delete(m.content[voices], field)
		}
	}
	m.dropMessages(channel)
}

// of returns the ids of a guild's entities that have an id in a member.
func (m *Model) of(kind, guild, name, want string) (ids []string) {
	key := m.child(kind, guild)
	for _, field := range m.ids(key) {
		if value, _ := m.get(key, field); id(value, name) == want {
			ids = append(ids, field)
		}
	}
	return ids
}

// voice keeps beside a cached channel what a dispatch says of the voice chat in
// it, and returns the channel with what was kept before laid over.
func (m *Model) voice(guild, d string) (before State) {
	channel := id(d, "id")
	for _, kind := range []string{"thread", "channel"} {
		key := m.child(kind, guild)
		value, known := m.get(key, channel)
		if !known {
			continue
		}
		kept, ok := m.get(key, channel+":voice")
		if !ok {
			kept = "{}"
		}
		before = taken(overlay(value, kept))
		for _, name := range []string{"status", "voice_start_time"} {
			if said := member(d, name); said != "" {
				kept = overlay(kept, `{"`+name+`":`+said+`}`)
			}
		}
		m.set(key, channel+":voice", kept)
	}
	return before
}
