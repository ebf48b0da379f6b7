// Package dispatch holds what Sluice knows of each dispatch type, in one table:
// its Go types, what it is ordered by, and what the cache reads and writes for
// it. Everything that differs from type to type is decided here and nowhere
// else; the listener kinds are generated from it.
//
// Source: https://discord.com/developers/docs/events/gateway-events#receive-events
package dispatch

import "github.com/sluicehq/sluice/internal/rawjson"

//go:generate go run ./gen -root ../..

// A Type is one line of the table.
type Type struct {
	Name     string // as Discord names it: MESSAGE_UPDATE
	Payload  string // Go type of the payload, as a listener file would write it
	Previous string // Go type of the previous state; empty: it has none

	// Guild, Channel and User say where the ordering key is: the first of them
	// that the payload has. Their zero values stand for GuildID, ChannelID and
	// UserID (or User, if there is no user_id).
	Guild, Channel, User Field

	Express bool // goes to its lane's express stream

	Cache Rule
}

// A Rule says what the cache does for a type.
type Rule struct {
	Do     Action
	Kind   Kind   // of the entity
	ID     Field  // where its id is
	Object Field  // where the entity itself is; zero: the payload
	Beside Beside // the value beside an entity that the dispatch counts or lays in
	// Member is where a thread has the bot's own membership; zero: it has none.
	Member Field
	// Part: the payload is only a part of its entity. Where nothing was cached, what
	// is stored of it is known in part.
	Part bool
}

// A Kind is a kind of cached entity; its text is part of the cache's Redis keys.
type Kind string

// The kinds of cached entities.
const (
	AutoModRule     Kind = "automod_rule"
	Ban             Kind = "ban"
	Channel         Kind = "channel"
	Emojis          Kind = "emojis"
	Entitlement     Kind = "entitlement"
	Guild           Kind = "guild"
	Integration     Kind = "integration"
	Invite          Kind = "invite"
	Member          Kind = "member"
	Message         Kind = "message"
	Presence        Kind = "presence"
	Role            Kind = "role"
	ScheduledEvent  Kind = "scheduled_event"
	SoundboardSound Kind = "soundboard_sound"
	StageInstance   Kind = "stage_instance"
	Stickers        Kind = "stickers"
	Subscription    Kind = "subscription"
	Thread          Kind = "thread"
	ThreadMember    Kind = "thread_member"
	User            Kind = "user"
	VoiceState      Kind = "voice_state"
)

// Kinds lists the kinds by name. Read only.
var Kinds = [...]Kind{
	AutoModRule, Ban, Channel, Emojis, Entitlement, Guild, Integration, Invite, Member, Message, Presence, Role,
	ScheduledEvent, SoundboardSound, StageInstance, Stickers, Subscription, Thread, ThreadMember, User, VoiceState,
}

// A Beside is a value kept beside an entity: what other dispatches than its own
// say of it. Its text is part of the layout in Redis.
type Beside string

// The values beside entities.
const (
	Left        Beside = "left"         // a voice state: what it was when its member left the guild
	MemberCount Beside = "member_count" // a guild, a thread: number of members
	Poll        Beside = "poll"         // a message: {"answer_counts":[…]}
	Reactions   Beside = "reactions"    // a message: array of reactions
	Voice       Beside = "voice"        // a channel, a thread: {"status":…,"voice_start_time":…}
)

// Besides lists the values beside each kind of entity, and the member by which the
// entity's own dispatches say the same: where one has it, the value is dropped.
// Read only.
var Besides = [...]struct {
	Kind   Kind
	Beside Beside
	By     Field // zero: none does
}{
	{Channel, Voice, NoField},
	{Guild, MemberCount, CountOfMembers},
	{Message, Reactions, ReactionList},
	{Message, Poll, PollObject},
	{Thread, MemberCount, CountOfMembers},
	{Thread, Voice, NoField},
	{VoiceState, Left, NoField},
}

// An Action is what the cache does with a dispatch. "Lays over" means: members
// present in the payload overwrite the cached ones (null too), absent ones stay.
type Action uint8

// The actions.
const (
	Ignore        Action = iota // neither reads nor writes
	Put                         // stores the entity as it came
	Replace                     // Put; the previous state is what was there
	Merge                       // lays it over the cached one; the previous state is what was there
	MergeKnown                  // Merge, but an entity that is not cached stays so
	MergeVoice                  // Merge, or Remove if channel_id is null
	Remove                      // deletes it and what depends on it; the previous state is what was there
	RemoveMany                  // Remove for each of a list of ids; the previous state is an array
	PutList                     // stores a whole array; the previous state is the array before
	MergeList                   // Merge for each element of an array; no previous state
	ReplaceList                 // an array replaces all of the kind in the guild; no previous state
	SyncThreads                 // MergeList of active threads; the previous state is an array of those that are active no more
	ThreadMembers               // stores the members that a thread gets, removes those it loses; the previous state is an array of these
	MembersChunk                // Merge for a chunk's members and presences; no previous state
	GuildCreate                 // a snapshot replaces everything of the guild that it has
	GuildUpdate                 // Merge of the guild without its nested collections
	GuildDelete                 // outage: keeps all; else deletes everything of the guild
	Ready                       // stores the bot's own user
	Raise                       // one more in the value beside a cached entity; no previous state
	Lower                       // one less; no previous state
	Clear                       // empties the value beside a cached entity; the previous state is what was in it
	ClearOne                    // takes one out of it; the previous state is that
	Lay                         // lays members into the value beside a cached entity; the previous state is the entity with the value before
	LayList                     // Lay for each element of an array; no previous state
)

// Nested are the members of a guild that are entities (or lists) of their own
// and not part of the cached guild.
var Nested = [...]string{
	"roles", "emojis", "stickers", "channels", "threads", "members", "presences", "voice_states",
	"stage_instances", "guild_scheduled_events", "soundboard_sounds",
}

// IsNested reports whether key names one of Nested.
func IsNested(key []byte) bool {
	for _, name := range Nested {
		if rawjson.KeyIs(key, name) {
			return true
		}
	}
	return false
}

// Lookup returns the table's line for a type, nil if the type is unknown. It
// does not allocate. The line is shared: read only.
func Lookup[S ~string | ~[]byte](name S) *Type { return index[string(name)] }

var index = func() map[string]*Type {
	m := make(map[string]*Type, len(Types))
	for i := range Types {
		m[Types[i].Name] = &Types[i]
	}
	return m
}()
