package dispatch

import (
	"unicode/utf8"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// A Field is a top-level member of a payload that Sluice looks at.
type Field uint8

// The fields. User and Role are objects whose id counts where an id is asked for.
const (
	NoField Field = iota
	ID
	GuildID
	ChannelID
	UserID
	RoleID
	SoundID
	UserObject
	RoleObject
	IDs
	Unavailable
	EmojiList
	StickerList
	ThreadList
	MemberList
	PresenceList
	SoundList
	GuildList
	SessionID
	ResumeURL
	Code
	MessageID
	ChannelIDs
	ChannelList
	AddedList
	RemovedIDs
	MemberObject
	EmojiObject
	AnswerID
	CountOfMembers
	ReactionList
	PollObject
	numFields
)

// Fields are the raw values of a payload's fields. They alias the payload. The zero
// value is ready to use; it is small, because there is one for each dispatch in hand.
type Fields struct {
	payload []byte
	values  [numFields]span
	// Object reports whether the payload is a JSON object at all.
	Object bool
}

// A span is where in the payload a value is. No value begins at its start.
type span struct{ from, to uint32 }

// Scan finds the fields of payload in one pass. A payload that is no object, or
// that breaks off, has the fields found so far; the error then says where.
func (f *Fields) Scan(payload []byte) error {
	*f = Fields{payload: payload}
	if !rawjson.IsObject(payload) {
		return nil
	}
	var o rawjson.Object
	o.Reset(payload)
	for o.Next() {
		if field := fieldOf(o.Key); field != NoField {
			from := cap(payload) - cap(o.Value)
			f.values[field] = span{uint32(from), uint32(from + len(o.Value))}
		}
	}
	f.Object = o.Err() == nil
	return o.Err()
}

// Raw returns a field's raw value, nil if the payload does not have it.
func (f *Fields) Raw(field Field) []byte {
	at := f.values[field]
	if at.to == 0 {
		return nil
	}
	return f.payload[at.from:at.to]
}

// Name returns the name of the member that the field is.
func (field Field) Name() string { return names[field] }

// ID returns the identifier in a field, or in the object it holds; nil if there
// is none (absent, null, empty or of another type).
func (f *Fields) ID(field Field) []byte {
	value := f.Raw(field)
	if field == UserObject || field == RoleObject {
		value = rawjson.Get(value, "id")
	}
	return rawjson.ID(value)
}

// names has each field's member name, for fieldOf.
var names = [numFields]string{
	ID: "id", GuildID: "guild_id", ChannelID: "channel_id", UserID: "user_id", RoleID: "role_id",
	SoundID: "sound_id", UserObject: "user", RoleObject: "role", IDs: "ids", Unavailable: "unavailable",
	EmojiList: "emojis", StickerList: "stickers", ThreadList: "threads", MemberList: "members",
	PresenceList: "presences", SoundList: "soundboard_sounds", GuildList: "guilds",
	SessionID: "session_id", ResumeURL: "resume_gateway_url", Code: "code", MessageID: "message_id",
	ChannelIDs: "channel_ids", ChannelList: "channels", AddedList: "added_members", RemovedIDs: "removed_member_ids",
	MemberObject: "member", EmojiObject: "emoji", AnswerID: "answer_id", CountOfMembers: "member_count",
	ReactionList: "reactions", PollObject: "poll",
}

// fieldOf returns the field that a member is, NoField for most. The switch is the
// names over again: it costs a fifth of a map's look-up, and every member of every
// payload comes by.
func fieldOf(key []byte) Field {
	switch string(key) {
	case "id":
		return ID
	case "guild_id":
		return GuildID
	case "channel_id":
		return ChannelID
	case "user_id":
		return UserID
	case "role_id":
		return RoleID
	case "sound_id":
		return SoundID
	case "user":
		return UserObject
	case "role":
		return RoleObject
	case "ids":
		return IDs
	case "unavailable":
		return Unavailable
	case "emojis":
		return EmojiList
	case "stickers":
		return StickerList
	case "threads":
		return ThreadList
	case "members":
		return MemberList
	case "presences":
		return PresenceList
	case "soundboard_sounds":
		return SoundList
	case "guilds":
		return GuildList
	case "session_id":
		return SessionID
	case "resume_gateway_url":
		return ResumeURL
	case "code":
		return Code
	case "message_id":
		return MessageID
	case "channel_ids":
		return ChannelIDs
	case "channels":
		return ChannelList
	case "added_members":
		return AddedList
	case "removed_member_ids":
		return RemovedIDs
	case "member":
		return MemberObject
	case "emoji":
		return EmojiObject
	case "answer_id":
		return AnswerID
	case "member_count":
		return CountOfMembers
	case "reactions":
		return ReactionList
	case "poll":
		return PollObject
	}
	for _, c := range key {
		if (c >= 'A' && c <= 'Z') || c == '\\' || c >= utf8.RuneSelf { // seldom: Discord writes none
			for field, name := range names {
				if name != "" && rawjson.KeyIs(key, name) {
					return Field(field)
				}
			}
			return NoField
		}
	}
	return NoField
}

// Key returns the identifier a payload is ordered by, and the guild's id if it
// is that: its guild, else its channel, else its user; nil if it has none of
// them. t is nil for an unknown type.
func (t *Type) Key(f *Fields) (key, guild []byte) {
	var g, c, u Field
	if t != nil {
		g, c, u = t.Guild, t.Channel, t.User
	}
	if key := f.ID(or(g, GuildID)); key != nil {
		return key, key
	}
	if key := f.ID(or(c, ChannelID)); key != nil {
		return key, nil
	}
	if u != NoField {
		return f.ID(u), nil
	}
	if key := f.ID(UserID); key != nil {
		return key, nil
	}
	return f.ID(UserObject), nil
}

func or(field, fallback Field) Field {
	if field == NoField {
		return fallback
	}
	return field
}
