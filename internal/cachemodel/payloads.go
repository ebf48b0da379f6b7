package cachemodel

import (
	"fmt"
	"strings"
)

// made says how often each type is made up, and from what.
var made = []struct {
	name    string
	weight  int
	payload func(s *Source) string
}{
	{"APPLICATION_COMMAND_PERMISSIONS_UPDATE", 1, (*Source).any},
	{"AUTO_MODERATION_ACTION_EXECUTION", 1, (*Source).any},
	{"AUTO_MODERATION_RULE_CREATE", 3, (*Source).small},
	{"AUTO_MODERATION_RULE_DELETE", 2, (*Source).small},
	{"AUTO_MODERATION_RULE_UPDATE", 3, (*Source).small},
	{"CHANNEL_CREATE", 6, (*Source).channel},
	{"CHANNEL_DELETE", 7, (*Source).channel},
	{"CHANNEL_INFO", 3, (*Source).channelInfo},
	{"CHANNEL_PINS_UPDATE", 1, (*Source).any},
	{"CHANNEL_UPDATE", 8, (*Source).channel},
	{"ENTITLEMENT_CREATE", 3, (*Source).account},
	{"ENTITLEMENT_DELETE", 2, (*Source).account},
	{"ENTITLEMENT_UPDATE", 3, (*Source).account},
	{"GUILD_AUDIT_LOG_ENTRY_CREATE", 1, (*Source).any},
	{"GUILD_BAN_ADD", 4, (*Source).ofUser},
	{"GUILD_BAN_REMOVE", 3, (*Source).ofUser},
	{"GUILD_CREATE", 8, (*Source).guildCreate},
	{"GUILD_DELETE", 5, (*Source).guildDelete},
	{"GUILD_EMOJIS_UPDATE", 3, func(s *Source) string { return s.whole("emojis") }},
	{"GUILD_INTEGRATIONS_UPDATE", 1, (*Source).any},
	{"GUILD_MEMBERS_CHUNK", 5, (*Source).chunk},
	{"GUILD_MEMBER_ADD", 8, (*Source).ofUser},
	{"GUILD_MEMBER_REMOVE", 6, (*Source).ofUser},
	{"GUILD_MEMBER_UPDATE", 12, (*Source).ofUser},
	{"GUILD_ROLE_CREATE", 4, (*Source).role},
	{"GUILD_ROLE_DELETE", 3, func(s *Source) string { return s.of(quote("role_id", s.thing())) }},
	{"GUILD_ROLE_UPDATE", 5, (*Source).role},
	{"GUILD_SCHEDULED_EVENT_CREATE", 3, (*Source).small},
	{"GUILD_SCHEDULED_EVENT_DELETE", 2, (*Source).small},
	{"GUILD_SCHEDULED_EVENT_UPDATE", 3, (*Source).small},
	{"GUILD_SCHEDULED_EVENT_USER_ADD", 1, (*Source).any},
	{"GUILD_SCHEDULED_EVENT_USER_REMOVE", 1, (*Source).any},
	{"GUILD_SOUNDBOARD_SOUNDS_UPDATE", 2, (*Source).sounds},
	{"GUILD_SOUNDBOARD_SOUND_CREATE", 3, (*Source).sound},
	{"GUILD_SOUNDBOARD_SOUND_DELETE", 2, (*Source).sound},
	{"GUILD_SOUNDBOARD_SOUND_UPDATE", 3, (*Source).sound},
	{"GUILD_STICKERS_UPDATE", 3, func(s *Source) string { return s.whole("stickers") }},
	{"GUILD_UPDATE", 6, (*Source).guildUpdate},
	{"INTEGRATION_CREATE", 3, (*Source).small},
	{"INTEGRATION_DELETE", 2, (*Source).small},
	{"INTEGRATION_UPDATE", 3, (*Source).small},
	{"INTERACTION_CREATE", 1, (*Source).any},
	{"INVITE_CREATE", 4, (*Source).invite},
	{"INVITE_DELETE", 3, (*Source).invite},
	{"MESSAGE_CREATE", 30, (*Source).messageCreate},
	{"MESSAGE_DELETE", 8, (*Source).messageDelete},
	{"MESSAGE_DELETE_BULK", 4, (*Source).messageDeleteBulk},
	{"MESSAGE_POLL_VOTE_ADD", 8, (*Source).vote},
	{"MESSAGE_POLL_VOTE_REMOVE", 5, (*Source).vote},
	{"MESSAGE_REACTION_ADD", 20, (*Source).reaction},
	{"MESSAGE_REACTION_REMOVE", 10, (*Source).reaction},
	{"MESSAGE_REACTION_REMOVE_ALL", 4, (*Source).reaction},
	{"MESSAGE_REACTION_REMOVE_EMOJI", 4, (*Source).reaction},
	{"MESSAGE_UPDATE", 12, (*Source).messageUpdate},
	{"PRESENCE_UPDATE", 12, (*Source).ofUser},
	{"RATE_LIMITED", 1, (*Source).any},
	{"RESUMED", 1, func(*Source) string { return `{"_trace":[]}` }},
	{"SOUNDBOARD_SOUNDS", 2, (*Source).sounds},
	{"STAGE_INSTANCE_CREATE", 3, (*Source).stage},
	{"STAGE_INSTANCE_DELETE", 2, (*Source).stage},
	{"STAGE_INSTANCE_UPDATE", 3, (*Source).stage},
	{"SUBSCRIPTION_CREATE", 3, (*Source).account},
	{"SUBSCRIPTION_DELETE", 2, (*Source).account},
	{"SUBSCRIPTION_UPDATE", 3, (*Source).account},
	{"THREAD_CREATE", 12, (*Source).thread},
	{"THREAD_DELETE", 4, (*Source).thread},
	{"THREAD_LIST_SYNC", 6, (*Source).threadListSync},
	{"THREAD_MEMBERS_UPDATE", 10, (*Source).threadMembersUpdate},
	{"THREAD_MEMBER_UPDATE", 5, (*Source).threadMemberUpdate},
	{"THREAD_UPDATE", 6, (*Source).thread},
	{"TYPING_START", 1, (*Source).any},
	{"USER_UPDATE", 1, func(s *Source) string { return "{" + quote("id", Bot) + s.said() + "}" }},
	{"VOICE_CHANNEL_EFFECT_SEND", 1, (*Source).any},
	{"VOICE_CHANNEL_START_TIME_UPDATE", 4, (*Source).voiceChannel},
	{"VOICE_CHANNEL_STATUS_UPDATE", 4, (*Source).voiceChannel},
	{"VOICE_SERVER_UPDATE", 1, (*Source).any},
	{"VOICE_STATE_UPDATE", 12, (*Source).voiceState},
	{"WEBHOOKS_UPDATE", 1, (*Source).any},
}

// said is what a dispatch says of an entity beyond its ids: some members that
// come and go, with values that do not come again.
func (s *Source) said() string {
	text := `,"a":` + s.next()
	if s.one(2) {
		text += `,"b":` + s.pick("null", `"`+s.next()+`"`, `{"id":"1","x":[1,2]}`, "1.50", "9007199254740993", `"\u0000\"<é"`)
	}
	return text
}

// of returns an object of a guild.
func (s *Source) of(more string) string {
	return "{" + quote("guild_id", s.guild()) + "," + more + s.said() + "}"
}

// thing returns the id of a role, an event, a rule, ….
func (s *Source) thing() string { return s.pick("6", "60", "600", "61") }

func (s *Source) any() string {
	_, channel := s.place(channels)
	return s.of(quote("channel_id", channel) + "," + quote("user_id", s.user()) + "," + quote("id", s.thing()))
}

func (s *Source) small() string { return s.of(quote("id", s.thing())) }

func (s *Source) account() string {
	return "{" + quote("id", s.thing()) + s.unless(2, ","+quote("guild_id", s.guild())) + s.said() + "}"
}

func (s *Source) ofUser() string { return s.of(`"user":{` + quote("id", s.user()) + `}`) }

func (s *Source) role() string { return s.of(`"role":{` + quote("id", s.thing()) + s.said() + `}`) }

func (s *Source) sound() string { return s.of(quote("sound_id", s.thing())) }

func (s *Source) sounds() string {
	return s.of(`"soundboard_sounds":` + s.list(4, func(int) string { return "{" + quote("sound_id", s.thing()) + s.said() + "}" }))
}

func (s *Source) whole(name string) string {
	return s.of(fmt.Sprintf("%q:%s", name, s.list(3, func(int) string { return "{" + quote("id", s.thing()) + s.said() + "}" })))
}

func (s *Source) invite() string {
	code := quote("code", s.pick("c", "cd", "cde"))
	if s.one(5) {
		return "{" + code + s.said() + "}"
	}
	return s.of(code)
}

func (s *Source) channel() string {
	if s.one(15) { // outside guilds
		return "{" + quote("id", s.direct()) + s.said() + "}"
	}
	guild, channel := s.place(channels)
	return s.channelOf(guild, channel)
}

func (s *Source) channelOf(guild, channel string) string {
	return "{" + quote("id", channel) + "," + quote("guild_id", guild) + s.said() + "}"
}

func (s *Source) thread() string {
	g, i := s.IntN(s.size.Guilds), s.IntN(s.size.Channels)
	return s.threadOf(g, i)
}

// threadOf returns the i-th thread of the g-th guild; the bot may be in it.
func (s *Source) threadOf(g, i int) string {
	text := "{" + quote("id", s.in(threads, g, i)) + "," + quote("guild_id", guildID(g)) + "," + quote("parent_id", s.in(channels, g, s.IntN(s.size.Channels)))
	if s.one(3) {
		text += `,"member_count":` + s.pick("1", "4", "50")
	}
	if s.one(3) {
		text += `,"thread_metadata":{"archived":` + s.pick("true", "false") + `}`
	}
	if s.one(2) {
		text += `,"member":{` + s.unless(2, quote("user_id", Bot)+",") + `"flags":` + s.next() + `}`
	}
	return text + s.said() + "}"
}

func (s *Source) threadListSync() string {
	g := s.IntN(s.size.Guilds)
	text := "{" + quote("guild_id", guildID(g))
	if s.one(2) {
		text += `,"channel_ids":` + s.list(s.size.Channels, func(i int) string { return `"` + s.in(channels, g, i) + `"` })
	}
	text += s.unless(8, `,"threads":`+s.list(s.size.Channels, func(i int) string { return s.threadOf(g, i) }))
	return text + `,"members":` + s.list(s.size.Channels, func(i int) string {
		return "{" + quote("id", s.in(threads, g, i)) + "," + quote("user_id", s.user()) + s.said() + "}"
	}) + "}"
}

func (s *Source) threadMembersUpdate() string {
	guild, thread := s.place(threads)
	text := "{" + quote("id", thread) + "," + quote("guild_id", guild) + s.unless(10, `,"member_count":`+s.pick("1", "3", "49"))
	which := s.IntN(3)
	gone := func(i int) bool { return (i+which)%3 == 0 } // nobody comes and goes at once
	var added, removed []string
	for _, i := range s.some(s.size.Users) {
		if gone(i) {
			removed = append(removed, `"`+userID(i)+`"`)
		} else if len(added) < 10 {
			added = append(added, "{"+quote("id", thread)+","+quote("user_id", userID(i))+s.said()+"}")
		}
	}
	s.Shuffle(len(removed), func(i, j int) { removed[i], removed[j] = removed[j], removed[i] })
	if len(added) > 0 {
		text += `,"added_members":[` + strings.Join(added, ",") + "]"
	}
	if len(removed) > 0 {
		text += `,"removed_member_ids":[` + strings.Join(removed[:min(10, len(removed))], ",") + "]"
	}
	return text + "}"
}

func (s *Source) threadMemberUpdate() string {
	guild, thread := s.place(threads)
	return "{" + quote("id", thread) + "," + quote("guild_id", guild) + s.unless(5, ","+quote("user_id", Bot)) + s.said() + "}"
}

func (s *Source) stage() string {
	g := s.IntN(s.size.Guilds)
	return s.stageOf(g)
}

func (s *Source) stageOf(g int) string {
	return "{" + quote("id", s.thing()) + "," + quote("guild_id", guildID(g)) + "," + quote("channel_id", s.in(channels, g, s.IntN(s.size.Channels))) + s.said() + "}"
}

func (s *Source) voiceState() string {
	g := s.IntN(s.size.Guilds)
	text := s.voiceOf(g, s.user())
	if s.one(3) {
		return strings.Replace(text, `"channel_id":"`, `"channel_id":null,"was":"`, 1)
	}
	return text
}

func (s *Source) voiceOf(g int, user string) string {
	return "{" + quote("user_id", user) + "," + quote("guild_id", guildID(g)) + "," + quote("channel_id", s.in(channels, g, s.IntN(s.size.Channels))) + s.said() + "}"
}

func (s *Source) voiceChannel() string {
	guild, channel := s.place(s.pickBase())
	return "{" + quote("id", channel) + "," + quote("guild_id", guild) + "," + s.voice() + "}"
}

func (s *Source) voice() string {
	return `"status":` + s.pick("null", `"`+s.next()+`"`) + s.unless(2, `,"voice_start_time":`+s.pick("null", s.next()))
}

func (s *Source) channelInfo() string {
	g := s.IntN(s.size.Guilds)
	return "{" + quote("guild_id", guildID(g)) + `,"channels":` + s.list(s.size.Channels, func(i int) string {
		return "{" + quote("id", s.in(channels, g, i)) + "," + s.voice() + "}"
	}) + "}"
}

func (s *Source) chunk() string {
	user := func(i int) string { return `{"user":{` + quote("id", userID(i)) + "}" + s.said() + "}" }
	return s.of(`"members":` + s.list(min(s.size.Users, 20), user) + s.unless(2, `,"presences":`+s.list(min(s.size.Users, 20), user)))
}

func (s *Source) ready() string {
	return `{"user":{` + quote("id", Bot) + s.said() + `},"guilds":` + s.list(s.size.Guilds, func(i int) string {
		return "{" + quote("id", guildID(i)) + `,"unavailable":true}`
	}) + "}"
}

func (s *Source) guildUpdate() string {
	return "{" + quote("id", s.guild()) + s.unless(4, `,"roles":[{"id":"6"}],"emojis":[]`) + s.unless(3, `,"member_count":`+s.pick("3", "7")) + s.said() + "}"
}

func (s *Source) guildDelete() string {
	return "{" + quote("id", s.guild()) + s.pick("", "", `,"unavailable":false`, `,"unavailable":true`, `,"unavailable":true`) + "}"
}

// guildCreate returns a snapshot that has most lists, and members that may be
// fewer than it says there are.
func (s *Source) guildCreate() string {
	g := s.IntN(s.size.Guilds)
	if s.one(10) {
		return "{" + quote("id", guildID(g)) + `,"unavailable":true}`
	}
	user := func(i int) string { return `{"user":{` + quote("id", userID(i)) + "}" + s.said() + "}" }
	thing := func(int) string { return "{" + quote("id", s.thing()) + s.said() + "}" }
	many := min(s.size.Users, 20)
	members := s.list(many, user)
	count := strings.Count(members, `"user"`)
	parts := []string{
		quote("id", guildID(g)),
		s.pick("", fmt.Sprintf(`"member_count":%d`, count), fmt.Sprintf(`"member_count":%d`, count+1+s.IntN(3))),
		`"members":` + members,
		`"presences":` + s.list(many, user),
		`"roles":` + s.list(4, thing),
		`"emojis":` + s.list(2, thing),
		`"stickers":` + s.list(2, thing),
		`"channels":` + s.list(s.size.Channels, func(i int) string { return "{" + quote("id", s.in(channels, g, i)) + s.said() + "}" }),
		`"threads":` + s.list(s.size.Channels, func(i int) string { return s.threadOf(g, i) }),
		`"voice_states":` + s.list(many, func(i int) string { return s.voiceOf(g, userID(i)) }),
		`"stage_instances":` + s.list(2, func(int) string { return s.stageOf(g) }),
		`"guild_scheduled_events":` + s.list(3, thing),
		`"soundboard_sounds":` + s.list(3, func(int) string { return "{" + quote("sound_id", s.thing()) + s.said() + "}" }),
	}
	text := parts[0]
	for _, part := range parts[1:] {
		if part != "" && !s.one(15) {
			text += "," + part
		}
	}
	return "{" + text + s.said() + "}"
}

var emojis = []string{`{"id":null,"name":"x"}`, `{"id":null,"name":"y"}`, `{"id":"77","name":"x"}`, `{"id":"78","name":"z","animated":true}`}

func (s *Source) reactionOf(emoji string) string {
	n, burst := 1+s.IntN(3), s.IntN(2)
	return fmt.Sprintf(`{"emoji":%s,"count":%d,"count_details":{"burst":%d,"normal":%d},"me":%v,"me_burst":false,"burst_colors":[]}`, emoji, n+burst, burst, n, s.one(3))
}

// told returns what a message says of its reactions and its poll.
func (s *Source) told(id string, often int) (text string) {
	if s.one(often) {
		text += `,"reactions":` + s.list(2, func(i int) string { return s.reactionOf(emojis[i]) })
	}
	if polled(id) && s.one(often) {
		text += s.poll()
	}
	return text
}

func (s *Source) poll() string {
	if s.one(3) {
		return `,"poll":{"question":{}}`
	}
	return `,"poll":{"results":{"answer_counts":` + s.list(2, func(i int) string {
		return fmt.Sprintf(`{"id":%d,"count":%d,"me_voted":%v}`, i+1, s.IntN(3), s.one(3))
	}) + `}}`
}

func (s *Source) messageCreate() string {
	place, id := s.message(true)
	text := "{" + quote("id", id) + "," + place + s.told(id, 4)
	if polled(id) && !strings.Contains(text, `"poll"`) {
		text += s.poll()
	}
	return text + `,"author":{` + quote("id", s.user()) + "}" + s.said() + "}"
}

func (s *Source) messageUpdate() string {
	place, id := s.message(false)
	return "{" + quote("id", id) + "," + place + s.told(id, 6) + s.said() + "}"
}

func (s *Source) messageDelete() string {
	place, id := s.message(false)
	return "{" + quote("id", id) + "," + place + "}"
}

func (s *Source) messageDeleteBulk() string {
	place, id := s.message(false)
	if s.size.Messages == 0 {
		return `{"ids":["` + id + `"],` + place + "}"
	}
	all := s.some(min(s.size.Messages, 30))
	s.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var ids []string
	for _, i := range all {
		ids = append(ids, `"`+messageID(i)+`"`)
	}
	return `{"ids":[` + strings.Join(ids, ",") + "]," + place + "}"
}

func (s *Source) reaction() string {
	place, id := s.message(false)
	text := "{" + quote("message_id", id) + "," + place + "," + quote("user_id", s.user()) + `,"emoji":` + s.pick(emojis...)
	switch s.IntN(4) {
	case 0:
		text += `,"burst":true,"burst_colors":` + s.pick("[]", `["#ff0000"]`)
	case 1:
		text += `,"burst":false,"type":0,"burst_colors":[]`
	case 2:
		text += `,"type":` + s.pick("0", "1")
	}
	return text + "}"
}

func (s *Source) vote() string {
	place, id := s.message(false)
	return "{" + quote("message_id", id) + "," + place + "," + quote("user_id", s.user()) + `,"answer_id":` + s.pick("1", "2", "3") + "}"
}
