package cache_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/cache"
)

const (
	view       int64 = discordgo.PermissionViewChannel
	send       int64 = discordgo.PermissionSendMessages
	tts        int64 = discordgo.PermissionSendTTSMessages
	embed      int64 = discordgo.PermissionEmbedLinks
	attach     int64 = discordgo.PermissionAttachFiles
	mention    int64 = discordgo.PermissionMentionEveryone
	history    int64 = discordgo.PermissionReadMessageHistory
	react      int64 = discordgo.PermissionAddReactions
	moderate   int64 = discordgo.PermissionManageMessages
	connect    int64 = discordgo.PermissionVoiceConnect
	speak      int64 = discordgo.PermissionVoiceSpeak
	channels   int64 = discordgo.PermissionManageChannels
	threads    int64 = discordgo.PermissionManageThreads
	inThreads  int64 = discordgo.PermissionSendMessagesInThreads
	kick       int64 = discordgo.PermissionKickMembers
	admin      int64 = discordgo.PermissionAdministrator
	pin        int64 = 1 << 51
	everything       = send | tts | embed | attach | mention
	all              = cache.AllPermissions
)

// Ids of what the cases are about.
const (
	owner, user, other     = "1", "2", "3"
	roleA, roleB, roleGone = "21", "22", "29"
	text, voice, stage     = "30", "31", "32"
	forum, category        = "33", "34"
	public, private, news  = "40", "41", "42"
)

// over is an overwrite of a role, or of a member.
func over(kind int, id string, deny, allow int64) string {
	return fmt.Sprintf(`{"id":"%s","type":%d,"deny":"%d","allow":"%d"}`, id, kind, deny, allow)
}

func ofRole(id string, deny, allow int64) string   { return over(0, id, deny, allow) }
func ofMember(id string, deny, allow int64) string { return over(1, id, deny, allow) }

// A permissionCase is a member in a channel, and what Discord lets them do. What
// it does not say is empty, or there and of no consequence.
type permissionCase struct {
	name string
	rule string // Discord's, in short

	everyone, a, b int64    // what the roles allow; roles A and B are position 1 and 2
	bits           string   // what @everyone allows, in place of everyone
	who            string   // default: user
	roles          []string // of the user
	overwrites     []string // of the channel, of a thread's parent
	raw            string   // the channel's permission_overwrites, in place of overwrites
	in             string   // default: text; guild: of the guild
	member         string   // more members of the user's member object
	joined         []string // cached members of the thread
	count          string   // members of the thread, in place of 1
	drop           string   // hash and field that are not cached

	want    int64
	missing string // names what is not cached

	discordgo string // why discordgo's State says otherwise; empty: it agrees
}

const (
	listAll    = "its PermissionAll has only the older permissions"
	noImplied  = "it denies nothing by implication"
	noTimeout  = "it knows no timeouts"
	noParent   = "it looks for a thread's overwrites in the thread, and reads SEND_MESSAGES there"
	anyBits    = "it lets overwrites change what does not apply to channels"
	noGuild    = "it has no permissions without a channel"
	notDecoded = "it can't decode the role"
	guildWide  = "guild"
)

// fifty are the ids of some who are in a thread.
var fifty = func() (ids []string) {
	for i := range 50 {
		ids = append(ids, fmt.Sprint(1000+i))
	}
	return ids
}()

func ago(d time.Duration) string {
	return `,"communication_disabled_until":"` + time.Now().Add(-d).UTC().Format(time.RFC3339Nano) + `"`
}

var permissionCases = []permissionCase{
	// What roles allow in the guild.
	{name: "everyone", rule: "base permissions given to @everyone are applied at a guild level",
		everyone: view | send, want: view | send},
	{name: "a role adds", rule: "permissions allowed to a user by their roles are applied at a guild level",
		everyone: view, a: send, roles: []string{roleA}, want: view | send},
	{name: "roles unite", rule: "for each of the member's roles: permissions |= role.permissions",
		everyone: view, a: send, b: react | pin, roles: []string{roleA, roleB}, want: view | send | react | pin},
	{name: "a role of others", rule: "only the member's roles count",
		everyone: view, a: send, want: view},
	{name: "a deleted role", rule: "a role that there is no more has no permissions",
		everyone: view, roles: []string{roleGone}, want: view},
	{name: "the owner", rule: "if guild.is_owner(member): return ALL",
		everyone: view, who: owner, want: all, discordgo: listAll},
	{name: "the owner, not a cached member", rule: "the owner has ALL, whatever their roles",
		who: owner, drop: "member:9 1", want: all, discordgo: "it wants the member"},
	{name: "the owner, denied by overwrites", rule: "the owner has ALL, before any overwrite",
		who: owner, overwrites: []string{ofRole("9", view|send, 0), ofMember(owner, view, 0)}, want: all, discordgo: listAll},
	{name: "an administrator", rule: "ADMINISTRATOR allows all permissions",
		a: admin, roles: []string{roleA}, want: all, discordgo: listAll},
	{name: "everyone is administrator", rule: "ADMINISTRATOR allows all permissions, by @everyone too",
		everyone: admin, want: all, discordgo: listAll},
	{name: "an administrator, denied by overwrites", rule: "ADMINISTRATOR bypasses channel permission overwrites",
		a: admin, roles: []string{roleA}, overwrites: []string{ofRole("9", view|send, 0), ofRole(roleA, discordgo.PermissionManageWebhooks, 0), ofMember(user, history, 0)},
		want: all, discordgo: "it takes from administrators what overwrites deny, and gives back only the older permissions"},

	// Overwrites.
	{name: "a channel without overwrites", rule: "no overwrites: the base permissions",
		everyone: view | send | history, want: view | send | history},
	{name: "overwrites are absent", rule: "permission_overwrites?: may be absent",
		everyone: view | send, raw: "-", want: view | send},
	{name: "everyone denied", rule: "overwrites that deny permissions for @everyone",
		everyone: view | send | history, overwrites: []string{ofRole("9", history, 0)}, want: view | send},
	{name: "everyone allowed", rule: "overwrites that allow permissions for @everyone",
		everyone: view, overwrites: []string{ofRole("9", 0, send|pin)}, want: view | send | pin},
	{name: "everyone denied and allowed", rule: "denied first, then allowed",
		everyone: view, overwrites: []string{ofRole("9", send, send)}, want: view | send},
	{name: "everyone's denial takes what a role allows", rule: "@everyone's overwrite applies to permissions of roles too",
		everyone: view, a: react, roles: []string{roleA}, overwrites: []string{ofRole("9", react, 0)}, want: view},
	{name: "a role denied, everyone allowed", rule: "overwrites for roles come after those for @everyone",
		everyone: view | send, roles: []string{roleA}, overwrites: []string{ofRole(roleA, react, 0), ofRole("9", 0, react)}, want: view | send},
	{name: "a role allowed, everyone denied", rule: "overwrites for roles come after those for @everyone",
		everyone: view | send, roles: []string{roleA}, overwrites: []string{ofRole(roleA, 0, send), ofRole("9", send, 0)}, want: view | send},
	{name: "one role denied, another allowed", rule: "denials of all roles first, then what any of them allows",
		everyone: view, roles: []string{roleA, roleB}, overwrites: []string{ofRole(roleA, 0, send), ofRole(roleB, send, 0)}, want: view | send},
	{name: "the higher role denied", rule: "permissions do not obey the role hierarchy: A denies, B allows, the user can view",
		everyone: view | send, roles: []string{roleA, roleB}, overwrites: []string{ofRole(roleB, view, 0), ofRole(roleA, 0, view)}, want: view | send},
	{name: "a role of others denied", rule: "only overwrites of the member's roles apply",
		everyone: view | send, roles: []string{roleA}, overwrites: []string{ofRole(roleB, send, 0)}, want: view | send},
	{name: "a deleted role's overwrite", rule: "a role that there is no more has no overwrite",
		everyone: view | send, roles: []string{roleGone}, overwrites: []string{ofRole(roleGone, send, react)},
		want: view | send, discordgo: "it applies overwrites of roles that the member names and the guild does not have"},
	{name: "the member denied, a role allowed", rule: "member-specific overwrites come last",
		everyone: view, roles: []string{roleA}, overwrites: []string{ofMember(user, react, 0), ofRole(roleA, 0, react|send)}, want: view | send},
	{name: "the member allowed, roles denied", rule: "member-specific overwrites come last",
		everyone: view | react, roles: []string{roleA}, overwrites: []string{ofMember(user, 0, react), ofRole(roleA, react, 0), ofRole("9", react, 0)}, want: view | react},
	{name: "the member denied and allowed", rule: "denied first, then allowed",
		everyone: view, overwrites: []string{ofMember(user, react, react)}, want: view | react},
	{name: "another member's overwrite", rule: "overwrites.get(member.user_id)",
		everyone: view, overwrites: []string{ofMember(other, view, send)}, want: view},
	{name: "a role's overwrite with the member's id", rule: "type 0 is a role, 1 a member",
		everyone: view, overwrites: []string{ofRole(user, view, send)}, want: view},
	{name: "a member's overwrite with a role's id", rule: "type 0 is a role, 1 a member",
		everyone: view, roles: []string{roleA}, overwrites: []string{ofMember(roleA, view, send)}, want: view},
	{name: "an overwrite allows ADMINISTRATOR", rule: "applicable in overwrites is what has a channel type; ADMINISTRATOR has none",
		everyone: view, overwrites: []string{ofMember(user, 0, admin)}, want: view, discordgo: anyBits},
	{name: "an overwrite denies KICK_MEMBERS", rule: "applicable in overwrites is what has a channel type; KICK_MEMBERS has none",
		everyone: view | kick, overwrites: []string{ofRole("9", kick, 0)}, want: view | kick, discordgo: anyBits},
	{name: "the category denies", rule: "rather than inheritance, permissions are synced: a channel has its own overwrites",
		everyone: view | send, want: view | send},
	{name: "in a category", rule: "categories have overwrites as channels do",
		everyone: view | send, in: category, overwrites: []string{ofRole("9", send, 0)}, want: view},

	// What is denied by implication.
	{name: "not to see", rule: "denying VIEW_CHANNEL implicitly denies other permissions on the channel",
		everyone: send | history | react, want: 0, discordgo: noImplied},
	{name: "denied to see, allowed to send", rule: "SEND_MESSAGES is ignored because the user cannot read messages",
		everyone: view | send, overwrites: []string{ofRole("9", view, send|pin)}, want: 0, discordgo: noImplied},
	{name: "not to see, but to kick", rule: "what is denied are permissions on the channel; KICK_MEMBERS is the guild's",
		everyone: kick | send, want: kick, discordgo: noImplied},
	{name: "not to send", rule: "denying SEND_MESSAGES implicitly denies MENTION_EVERYONE, SEND_TTS_MESSAGES, ATTACH_FILES and EMBED_LINKS",
		everyone: view | history | react | tts | embed | attach | mention, want: view | history | react, discordgo: noImplied},
	{name: "denied to send", rule: "denying SEND_MESSAGES, by an overwrite as well",
		everyone: view | history | everything, overwrites: []string{ofMember(user, send, 0)}, want: view | history, discordgo: noImplied},
	{name: "not to send, in a forum", rule: "SEND_MESSAGES is creating threads in a forum",
		everyone: view | attach | inThreads, in: forum, want: view | inThreads, discordgo: noImplied},
	{name: "to connect", rule: "with CONNECT a voice channel has all that is allowed",
		everyone: view | send | connect | speak | channels, in: voice, want: view | send | connect | speak | channels},
	{name: "not to connect", rule: "for voice channels, denying CONNECT also implicitly denies other permissions such as MANAGE_CHANNEL",
		everyone: view | send | history | speak | channels | kick, in: voice, want: view | kick, discordgo: noImplied},
	{name: "denied to connect to a stage", rule: "for stage channels, denying CONNECT also implicitly denies other permissions",
		everyone: view | connect | speak, in: stage, overwrites: []string{ofRole("9", connect, 0)}, want: view, discordgo: noImplied},
	{name: "not to connect, in a text channel", rule: "CONNECT is for voice and stage channels",
		everyone: view | send | channels, want: view | send | channels},

	// Threads.
	{name: "a thread inherits", rule: "threads inherit permissions from the parent channel",
		everyone: view | inThreads, in: public, overwrites: []string{ofRole("9", 0, react|attach)}, want: view | inThreads | react | attach, discordgo: noParent},
	{name: "SEND_MESSAGES in a thread", rule: "the SEND_MESSAGES permission is not inherited",
		everyone: view | history | everything, in: public, want: view | history, discordgo: noParent},
	{name: "SEND_MESSAGES_IN_THREADS", rule: "users must have SEND_MESSAGES_IN_THREADS to send a message in a thread",
		everyone: view | inThreads | everything, in: public, overwrites: []string{ofRole("9", send, 0)}, want: view | inThreads | everything&^send, discordgo: noParent},
	{name: "a thread of an announcement channel", rule: "which allows for users to participate in threads in places like announcement channels",
		everyone: view | inThreads | history, in: news, want: view | inThreads | history},
	{name: "a thread whose channel is hidden", rule: "users must have VIEW_CHANNEL to view any threads in the channel, even if they are added to the thread",
		everyone: view | inThreads, in: public, overwrites: []string{ofRole("9", view, 0)}, joined: []string{user}, want: 0, discordgo: noParent},
	{name: "the owner in a thread", rule: "the owner has ALL", who: owner, in: private, want: all, discordgo: listAll},
	{name: "an administrator in a thread", rule: "ADMINISTRATOR allows all permissions",
		a: admin, roles: []string{roleA}, in: private, want: all, discordgo: listAll},
	{name: "a member of a private thread", rule: "you must be invited to the thread to be able to view or participate in it",
		everyone: view | inThreads, in: private, joined: []string{user}, want: view | inThreads},
	{name: "not in a private thread", rule: "you must be invited to the thread to be able to view or participate in it",
		everyone: view | inThreads | kick, in: private, joined: []string{other}, want: kick, discordgo: "it lets everybody into private threads"},
	{name: "a moderator of private threads", rule: "or be a moderator (MANAGE_THREADS permission)",
		everyone: view | inThreads, a: threads, roles: []string{roleA}, in: private, joined: []string{other}, want: view | inThreads | threads},
	{name: "perhaps in a private thread", rule: "of 2 members 1 is known: whether the user is the other can't be told",
		everyone: view, in: private, joined: []string{other}, count: "2", missing: "thread member 2 of private thread 41"},
	{name: "perhaps in a large private thread", rule: "member_count stops counting at 50",
		everyone: view, in: private, joined: fifty, count: "50", missing: "thread member 2 of private thread 41"},
	{name: "a private thread that nobody counted", rule: "member_count? may be absent",
		everyone: view, in: private, count: "null", missing: "thread member 2 of private thread 41"},

	// Timeouts.
	{name: "timed out", rule: "timed out members lose all permissions except VIEW_CHANNEL and READ_MESSAGE_HISTORY",
		everyone: view | history | everything | kick, member: ago(-time.Hour), want: view | history, discordgo: noTimeout},
	{name: "timed out, without history", rule: "except: what they do not have, they do not get",
		everyone: view | send, member: ago(-time.Hour), want: view, discordgo: noTimeout},
	{name: "timed out, in a voice channel", rule: "except VIEW_CHANNEL and READ_MESSAGE_HISTORY, in each channel",
		everyone: view | history | connect | speak, in: voice, member: ago(-time.Hour), want: view | history, discordgo: noTimeout},
	{name: "a timeout that is over", rule: "temporarily: until communication_disabled_until",
		everyone: view | send, member: ago(time.Hour), want: view | send},
	{name: "no timeout", rule: "communication_disabled_until is null if the user is not timed out",
		everyone: view | send, member: `,"communication_disabled_until":null`, want: view | send},
	{name: "an administrator timed out", rule: "admin users with ADMINISTRATOR permissions are exempt",
		a: admin, roles: []string{roleA}, member: ago(-time.Hour), want: all, discordgo: listAll},
	{name: "the owner timed out", rule: "owners are exempt", who: owner, member: ago(-time.Hour), want: all, discordgo: listAll},
	{name: "a moderator timed out, in a private thread", rule: "all permissions: MANAGE_THREADS too",
		everyone: view | history | threads, in: private, joined: []string{other}, member: ago(-time.Hour), want: 0, discordgo: noTimeout},

	// In the guild.
	{name: "in the guild", rule: "base permissions; nothing is implied where there is no channel",
		everyone: attach | kick, b: connect, roles: []string{roleB}, in: guildWide, want: attach | kick | connect, discordgo: noGuild},
	{name: "an administrator in the guild", rule: "ADMINISTRATOR allows all permissions",
		a: admin, roles: []string{roleA}, in: guildWide, want: all, discordgo: noGuild},
	{name: "the owner in the guild", rule: "the owner has ALL", who: owner, in: guildWide, want: all, discordgo: noGuild},
	{name: "timed out in the guild", rule: "timed out members lose all permissions except two",
		everyone: view | kick, in: guildWide, member: ago(-time.Hour), want: view, discordgo: noGuild},

	// Numbers.
	{name: "permissions yet to come", rule: "permissions are a variable-length integer: bits that Discord does not use yet are kept",
		bits: fmt.Sprintf(`"%d"`, view|1<<60), want: view | 1<<60},
	{name: "bit 63", rule: "beyond what an int64 holds, bits are left out",
		bits: fmt.Sprintf(`"%d"`, uint64(view)|1<<63), want: view, discordgo: notDecoded},
	{name: "bit 80", rule: "beyond what an int64 holds, bits are left out",
		bits: `"1208925819614629174707200"`, want: view, discordgo: notDecoded}, // 1<<80 | view

	// What is not known.
	{name: "no guild", rule: "an answer wants all it rests on", drop: "guild 9", missing: "guild 9"},
	{name: "no channel", rule: "an answer wants all it rests on", everyone: view, drop: "channel:9 30", missing: "channel 30"},
	{name: "no channel, the owner", rule: "nobody has permissions in what there is not", who: owner, drop: "channel:9 30", missing: "channel 30"},
	{name: "no member", rule: "an answer wants all it rests on", everyone: view, drop: "member:9 2", missing: "member 2"},
	{name: "no roles", rule: "an answer wants all it rests on", drop: "role:9 9", missing: "role 9 (@everyone)"},
	{name: "a thread without its channel", rule: "an answer wants all it rests on", everyone: view, in: public, drop: "channel:9 30", missing: "channel 30 of thread 40"},
}

// put writes the case into a cache.
func (c *permissionCase) put(l *layout) {
	bits := fmt.Sprintf(`"%d"`, c.everyone)
	if c.bits != "" {
		bits = c.bits
	}
	l.put("9", "guild", "9", `{"id":"9","owner_id":"1"}`)
	l.put("9", "role:9",
		"9", `{"id":"9","name":"@everyone","permissions":`+bits+`}`,
		roleA, fmt.Sprintf(`{"id":"%s","position":1,"permissions":"%d"}`, roleA, c.a),
		roleB, fmt.Sprintf(`{"id":"%s","position":2,"permissions":"%d"}`, roleB, c.b))
	roles, _ := json.Marshal(c.roles)
	l.put("9", "member:9", owner, `{"user":{"id":"1"},"roles":[]`+c.member+`}`, user, ` {"user":{"id":"2"},"roles":`+string(roles)+c.member+`}`)
	overwrites := `,"permission_overwrites":[` + strings.Join(c.overwrites, ",") + `]`
	if c.raw == "-" {
		overwrites = ""
	}
	for id, kind := range map[string]int{text: 0, voice: 2, stage: 13, forum: 15} {
		l.put("9", "channel:9", id, fmt.Sprintf(`{"id":"%s","type":%d,"parent_id":"%s"%s}`, id, kind, category, overwrites))
	}
	if c.in != category {
		overwrites = `,"permission_overwrites":[` + ofRole("9", view|send, 0) + `]`
	}
	l.put("9", "channel:9", category, `{"id":"34","type":4`+overwrites+`}`)
	for id, kind := range map[string]int{public: 11, private: 12, news: 10} {
		l.put("9", "thread:9", id, fmt.Sprintf(`{"id":"%s","type":%d,"parent_id":"%s","member_count":7}`, id, kind, text), id+":member_count", "1")
		if c.count == "null" {
			l.put("9", "thread:9", id, fmt.Sprintf(`{"id":"%s","type":%d,"parent_id":"%s"}`, id, kind, text))
			l.rdb.HDel(l.t.Context(), l.key("9", "thread:9"), id+":member_count")
		} else if c.count != "" {
			l.put("9", "thread:9", id+":member_count", c.count)
		}
		for _, who := range c.joined {
			l.put("9", "thread_member:"+id, who, `{"user_id":"`+who+`"}`)
		}
	}
	if hash, field, drop := strings.Cut(c.drop, " "); drop {
		l.rdb.HDel(l.t.Context(), l.key("9", hash), field)
	}
}

// TestPermissions has Discord's answer in each case, in one round trip.
func TestPermissions(t *testing.T) {
	t.Parallel()
	if len(permissionCases) < 40 {
		t.Errorf("%d cases", len(permissionCases))
	}
	for _, c := range permissionCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, r := newLayout(t, 1)
			c.put(l)
			where, who := c.where()
			l.inTrips("it", 1, func() {
				got, err := r.Permissions(t.Context(), "9", where, who)
				switch {
				case c.missing != "":
					if !errors.Is(err, cache.ErrNotCached) || !strings.Contains(err.Error(), "cache: "+c.missing+": ") {
						t.Errorf("%b, %v, want an error that names %q", got, err, c.missing)
					}
				case err != nil || got != c.want:
					t.Errorf("%b, %v, want %b: %s", got, err, c.want, c.rule)
				}
			})
		})
	}
}

func (c *permissionCase) where() (channelID, userID string) {
	where, who := c.in, c.who
	switch where {
	case "":
		where = text
	case guildWide:
		where = ""
	}
	if who == "" {
		who = user
	}
	return where, who
}

// TestPermissionsAgainstDiscordgo asks discordgo's State the same: it agrees, but
// where a case says why it does not.
func TestPermissionsAgainstDiscordgo(t *testing.T) {
	t.Parallel()
	agreed := 0
	for _, c := range permissionCases {
		if c.missing != "" {
			continue
		}
		l, _ := newLayout(t, 1)
		c.put(l)
		where, who := c.where()
		got, err := stateOf(l).UserChannelPermissions(who, where)
		if differs := err != nil || got != c.want; differs != (c.discordgo != "") {
			t.Errorf("%s: discordgo says %b, %v, and Discord %b; the case says it is because %q", c.name, got, err, c.want, c.discordgo)
		}
		if c.discordgo == "" {
			agreed++
		}
	}
	if agreed < 25 {
		t.Errorf("agreed in %d cases: the comparison proves little", agreed)
	}
}

// stateOf gives discordgo's State what is in the cache of guild 9.
func stateOf(l *layout) *discordgo.State {
	state := discordgo.NewState()
	guild := &discordgo.Guild{ID: "9", OwnerID: owner}
	each := func(name string, v func(id string) any) {
		for id, text := range l.rdb.HGetAll(l.t.Context(), l.key("9", name)).Val() {
			if !strings.Contains(id, ":") {
				_ = json.Unmarshal([]byte(text), v(id)) // as far as it goes
			}
		}
	}
	each("role:9", func(id string) any {
		guild.Roles = append(guild.Roles, &discordgo.Role{ID: id})
		return guild.Roles[len(guild.Roles)-1]
	})
	each("channel:9", func(string) any {
		guild.Channels = append(guild.Channels, &discordgo.Channel{GuildID: "9"})
		return guild.Channels[len(guild.Channels)-1]
	})
	each("thread:9", func(string) any {
		guild.Threads = append(guild.Threads, &discordgo.Channel{GuildID: "9"})
		return guild.Threads[len(guild.Threads)-1]
	})
	each("member:9", func(string) any {
		guild.Members = append(guild.Members, &discordgo.Member{GuildID: "9"})
		return guild.Members[len(guild.Members)-1]
	})
	if err := state.GuildAdd(guild); err != nil {
		l.t.Fatal(err)
	}
	return state
}

// TestPermissionsRefuses names what can't be asked, and what can't be understood.
func TestPermissionsRefuses(t *testing.T) {
	t.Parallel()
	l, r := newLayout(t, 1)
	c := permissionCase{everyone: view, overwrites: []string{`{"id":"9","type":0,"deny":"x","allow":"0"}`}}
	c.put(l)
	for name, ask := range map[string]struct{ guildID, channelID, userID, want string }{
		"outside guilds":           {"", text, user, "guild"},
		"no guild's id":            {"nine", text, user, `"nine"`},
		"an overwrite":             {"9", text, user, `overwrite of 9: deny is "x"`},
		"a role":                   {"8", "", user, `role 8: permissions is [1]`},
		"a timeout":                {"7", "", user, "communication_disabled_until"},
		"a guild without an owner": {"6", "", user, "owner of guild 6"},
	} {
		for _, id := range []string{"8", "7", "6"} {
			l.put(id, "guild", id, `{"id":"`+id+`","owner_id":"1"}`)
			l.put(id, "role:"+id, id, `{"id":"`+id+`","permissions":"1"}`)
			l.put(id, "member:"+id, user, `{"roles":[],"communication_disabled_until":"soon"}`)
		}
		l.put("8", "role:8", "8", `{"id":"8","permissions":[1]}`)
		l.put("6", "guild", "6", `{"id":"6"}`)
		if p, err := r.Permissions(t.Context(), ask.guildID, ask.channelID, ask.userID); err == nil || !strings.Contains(err.Error(), ask.want) {
			t.Errorf("%s: %b, %v, want an error with %q", name, p, err, ask.want)
		}
	}
}
