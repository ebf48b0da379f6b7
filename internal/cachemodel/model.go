// Package cachemodel is the cache written down once more, for being right and
// for nothing else: plain maps, no memory that could forget, no regard for speed.
// Tests hold the real cache against it, dispatch by dispatch; [Read] gives them
// what Redis has.
//
// It shares no code with package cache and does not read the table of package
// dispatch, so that a fault of theirs is not its own. It knows no time: messages
// never expire by age, and are bounded by count only where [Model.Trim] is called.
package cachemodel

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// A Content is what the cache holds: hash, field, raw JSON. Hashes are named as
// their keys in Redis, without the shard's tag and "cache:"; the set of
// unavailable guilds is a hash whose values are empty.
type Content map[string]map[string]string

// A State is what was known before a dispatch.
type State struct {
	Previous []byte // raw JSON; empty: nothing was known
	Partial  bool   // it was known in part only
	Sync     bool   // a GUILD_CREATE that is no join
}

// A Model is the cache of one shard.
type Model struct {
	content Content
	off     map[string]bool
	scopes  map[string]string // channel → guild its messages are of, else itself
	me      string            // the bot's id; empty: not known
}

// New returns an empty model. off names kinds that are not cached.
func New(off ...string) *Model {
	m := &Model{content: make(Content), off: make(map[string]bool), scopes: make(map[string]string)}
	for _, kind := range off {
		m.off[kind] = true
	}
	return m
}

// Clone returns a copy that lives on by itself.
func (m *Model) Clone() *Model {
	return &Model{content: m.Content(), off: m.off, scopes: maps.Clone(m.scopes), me: m.me}
}

// Takeover forgets what only the process knew that has kept the cache.
func (m *Model) Takeover() {
	user, _ := m.get("user", "@me")
	m.me = id(user, "id")
}

// Content returns a copy of what the cache holds now.
func (m *Model) Content() Content {
	c := make(Content, len(m.content))
	for key, fields := range m.content {
		if len(fields) > 0 {
			c[key] = maps.Clone(fields)
		}
	}
	return c
}

// Apply takes one dispatch and returns what was known before it.
func (m *Model) Apply(name string, payload []byte) State {
	if !json.Valid(payload) || !rawjson.IsObject(payload) {
		return State{}
	}
	d := string(payload)
	if e, ok := entities[name]; ok {
		return m.entity(name, e, d)
	}
	switch name {
	case "READY":
		m.ready(d)
	case "GUILD_CREATE":
		return State{Sync: m.guildCreate(d)}
	case "GUILD_UPDATE":
		return m.guildUpdate(d)
	case "GUILD_DELETE":
		return m.guildDelete(d)
	case "GUILD_EMOJIS_UPDATE":
		return m.wholeList("emojis", id(d, "guild_id"), member(d, "emojis"))
	case "GUILD_STICKERS_UPDATE":
		return m.wholeList("stickers", id(d, "guild_id"), member(d, "stickers"))
	case "GUILD_MEMBERS_CHUNK":
		for _, x := range elements(member(d, "members")) {
			m.layOver(m.child("member", id(d, "guild_id")), id(x, "user.id"), x, whole)
		}
		for _, x := range elements(member(d, "presences")) {
			m.layOver(m.child("presence", id(d, "guild_id")), id(x, "user.id"), x, whole)
		}
	case "GUILD_SOUNDBOARD_SOUNDS_UPDATE":
		for _, x := range elements(member(d, "soundboard_sounds")) {
			m.layOver(m.child("soundboard_sound", id(d, "guild_id")), id(x, "sound_id"), x, whole)
		}
	case "SOUNDBOARD_SOUNDS":
		m.replace("soundboard_sound", "sound_id", id(d, "guild_id"), elements(member(d, "soundboard_sounds")))
	case "THREAD_LIST_SYNC":
		return m.threadListSync(d)
	case "THREAD_MEMBER_UPDATE":
		return m.threadMemberUpdate(d)
	case "THREAD_MEMBERS_UPDATE":
		return m.threadMembersUpdate(d)
	case "VOICE_CHANNEL_STATUS_UPDATE", "VOICE_CHANNEL_START_TIME_UPDATE":
		return m.voice(id(d, "guild_id"), d)
	case "CHANNEL_INFO":
		for _, x := range elements(member(d, "channels")) {
			m.voice(id(d, "guild_id"), x)
		}
	default:
		return m.message(name, d)
	}
	return State{}
}

// ready stores the bot's own user and the guilds that are yet to come.
func (m *Model) ready(d string) {
	if user := member(d, "user"); isObject(user) {
		m.set(m.account("user"), "@me", user)
		m.me = cmp.Or(id(user, "id"), m.me)
	}
	m.drop("unavailable")
	for _, g := range elements(member(d, "guilds")) {
		m.set("unavailable", id(g, "id"), "")
	}
}

// account returns the name of a kind's hash that the whole shard shares, empty
// if the kind is off.
func (m *Model) account(kind string) string {
	if m.off[kind] {
		return ""
	}
	return kind
}

// child returns the name of a guild's hash of a kind, empty if the kind is off or
// there is no guild.
func (m *Model) child(kind, guild string) string {
	if m.off[kind] || guild == "" {
		return ""
	}
	return kind + ":" + guild
}

// get, set, remove and drop are the four things done to a hash. The empty hash
// and the empty field have nothing and take nothing.

func (m *Model) get(key, field string) (value string, ok bool) {
	value, ok = m.content[key][field]
	return value, ok
}

func (m *Model) set(key, field, value string) {
	if key == "" || field == "" {
		return
	}
	if m.content[key] == nil {
		m.content[key] = make(map[string]string)
	}
	m.content[key][field] = value
}

// remove deletes an entity and what is kept beside it.
func (m *Model) remove(key, field string) {
	maps.DeleteFunc(m.content[key], func(name, _ string) bool {
		return name == field || strings.HasPrefix(name, field+":")
	})
}

func (m *Model) drop(key string) { delete(m.content, key) }

// ids returns the ids of the entities in a hash.
func (m *Model) ids(key string) (ids []string) {
	for field := range m.content[key] {
		if !strings.Contains(field, ":") {
			ids = append(ids, field)
		}
	}
	return ids
}

// What is stored of an entity that was told in part begins with a space.
const part = " "

// taken returns a stored value as a state.
func taken(value string) State {
	whole, partial := strings.CutPrefix(value, part)
	return State{Previous: []byte(whole), Partial: partial}
}

// overlay returns update laid over old: its members overwrite, others stay.
func overlay(old, update string) string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal([]byte(old), &a) != nil || json.Unmarshal([]byte(update), &b) != nil {
		panic("cachemodel: laying over what is no object")
	}
	maps.Copy(a, b)
	return encode(a)
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("cachemodel: " + err.Error())
	}
	return string(text)
}

// member returns the raw value of a member, empty if there is none.
func member(object, name string) string { return string(rawjson.Get([]byte(object), name)) }

// id returns the identifier at a path (user.id), empty if there is none.
func id(object, path string) string {
	for {
		name, rest, deeper := strings.Cut(path, ".")
		value := member(object, name)
		if !deeper {
			return string(rawjson.ID([]byte(value)))
		}
		object, path = value, rest
	}
}

// number returns the value of an integer member.
func number(object, name string) (n int, ok bool) {
	n, err := strconv.Atoi(member(object, name))
	return n, err == nil
}

func isObject(value string) bool { return rawjson.IsObject([]byte(value)) }

func isArray(value string) bool { return strings.HasPrefix(value, "[") }

// elements returns the elements of an array, none of anything else.
func elements(array string) (all []string) {
	if !isArray(array) {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(array), &list); err != nil {
		panic("cachemodel: " + err.Error())
	}
	for _, x := range list {
		all = append(all, string(x))
	}
	return all
}
