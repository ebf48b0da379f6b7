package cache_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/dispatch"
)

// A step is a dispatch.
type step struct{ eventType, payload string }

// hashes is what some keys of the cache hold, by key without the tag and by field.
// An empty one does not exist.
type hashes map[string]map[string]string

// A trial is a dispatch, what came before it, and what is to come of it.
type trial struct {
	name    string
	before  []step
	payload string
	state   string // JSON; empty: none
	partial bool
	after   hashes
}

const (
	guild     = `{"id":"1","name":"g","member_count":2}`
	member    = `{"guild_id":"1","user":{"id":"5"},"nick":"a","roles":["7"]}`
	message   = `{"id":"3","channel_id":"2","guild_id":"1","content":"hi"}`
	reacted   = `{"id":"3","channel_id":"2","guild_id":"1","reactions":[{"emoji":{"id":null,"name":"x"},"count":2,"me":true}]}`
	thread    = `{"id":"20","guild_id":"1","parent_id":"2","name":"t","member_count":1}`
	voiceRoom = `{"id":"8","guild_id":"1","type":2,"name":"deck"}`
	self      = `{"user":{"id":"99","username":"bot"},"guilds":[]}`
	x         = `"message_id":"3","channel_id":"2","guild_id":"1","emoji":{"id":null,"name":"x"}`
	y         = `"message_id":"3","channel_id":"2","guild_id":"1","emoji":{"id":"44","name":"y"}`
	poll      = `{"id":"3","channel_id":"2","guild_id":"1","poll":{"results":{"answer_counts":[{"id":1,"count":1,"me_voted":false}]}}}`
)

// trials has for each dispatch type what the cache makes of it.
var trials = join(guildTrials, messageTrials, plainTrials())

var guildTrials = map[string][]trial{
	"READY": {{payload: self, after: hashes{"user": {"@me": `{"id":"99","username":"bot"}`}}}},
	"USER_UPDATE": {{before: []step{{"READY", self}}, payload: `{"id":"99","email":null}`, state: `{"id":"99","username":"bot"}`,
		after: hashes{"user": {"@me": `{"id":"99","username":"bot","email":null}`}}}},

	"GUILD_CREATE": {
		{name: "a snapshot", before: []step{
			{"GUILD_CREATE", `{"id":"1","name":"old","member_count":1,"roles":[{"id":"7"}],"channels":[{"id":"8"}],"threads":[{"id":"20","member":{"user_id":"99"}},{"id":"21","member":{"user_id":"99"}}],"members":[{"user":{"id":"5"}}],"voice_states":[{"user_id":"5","channel_id":"8"}],"emojis":[{"id":"44"}],"stickers":[]}`},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"}}`}, {"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"8","guild_id":"1","status":"s"}`},
			{"GUILD_BAN_ADD", `{"guild_id":"1","user":{"id":"4"}}`}},
			payload: `{"id":"1","name":"new","member_count":1,"roles":[],"channels":[{"id":"8"}],"threads":[{"id":"21"}],"members":[{"user":{"id":"5"},"nick":"b"}],"voice_states":[],"emojis":[],"stickers":[]}`,
			after: hashes{"guild": {"1": `{"id":"1","name":"new","member_count":1}`}, "role:1": nil, "channel:1": {"8": `{"id":"8"}`}, "thread:1": {"21": `{"id":"21"}`},
				"thread_member:20": nil, "thread_member:21": nil, "member:1": {"5": `{"user":{"id":"5"},"nick":"b"}`}, "voice_state:1": nil,
				"emojis": {"1": `[]`}, "stickers": {"1": `[]`}, "ban:1": {"4": `{"guild_id":"1","user":{"id":"4"}}`}}},
		{name: "some members", before: []step{{"GUILD_CREATE", `{"id":"1","member_count":1,"members":[{"user":{"id":"5"}}]}`}, {"GUILD_MEMBER_UPDATE", `{"guild_id":"1","user":{"id":"6"},"nick":"part"}`}},
			payload: `{"id":"1","member_count":3,"members":[{"user":{"id":"6"}}]}`,
			after:   hashes{"member:1": {"5": `{"user":{"id":"5"}}`, "6": `{"user":{"id":"6"}}`}}},
		{name: "the bot's own thread members", before: []step{{"READY", self}},
			payload: `{"id":"1","threads":[{"id":"20","member":{"user_id":"98","flags":1}},{"id":"21","member":{"flags":2}},{"id":"22"}]}`,
			after:   hashes{"thread_member:20": {"98": `{"user_id":"98","flags":1}`}, "thread_member:21": {"99": `{"flags":2}`}, "thread_member:22": nil}},
		{name: "an outage", before: []step{{"GUILD_CREATE", guild}}, payload: `{"id":"1","unavailable":true}`, after: hashes{"guild": {"1": guild}}},
		{name: "without lists", before: []step{{"GUILD_CREATE", `{"id":"1","threads":[{"id":"20","member":{"user_id":"99"}}]}`}}, payload: guild,
			after: hashes{"guild": {"1": guild}, "thread:1": {"20": `{"id":"20","member":{"user_id":"99"}}`}, "thread_member:20": {"99": `{"user_id":"99"}`}}},
	},
	"GUILD_UPDATE": {
		{before: []step{{"GUILD_CREATE", guild}}, payload: `{"id":"1","name":"h","roles":[{"id":"7"}]}`, state: guild, after: hashes{"guild": {"1": `{"id":"1","name":"h","member_count":2}`}, "role:1": nil}},
		{name: "not known", payload: `{"id":"1","name":"h"}`, after: hashes{"guild": {"1": ` {"id":"1","name":"h"}`}}},
		{name: "known in part", before: []step{{"GUILD_UPDATE", `{"id":"1","name":"h"}`}}, payload: `{"id":"1","icon":null}`, state: `{"id":"1","name":"h"}`, partial: true,
			after: hashes{"guild": {"1": ` {"id":"1","name":"h","icon":null}`}}},
		{name: "a count of its own", before: []step{{"GUILD_CREATE", guild}, {"GUILD_MEMBER_ADD", member}}, payload: `{"id":"1","member_count":7}`, state: guild, after: hashes{"guild": {"1": `{"id":"1","name":"g","member_count":7}`}}},
		{name: "no count", before: []step{{"GUILD_CREATE", guild}, {"GUILD_MEMBER_ADD", member}}, payload: `{"id":"1"}`, state: guild, after: hashes{"guild": {"1": guild, "1:member_count": `3`}}},
	},
	"GUILD_DELETE": {
		{name: "an outage", before: []step{{"GUILD_CREATE", guild}}, payload: `{"id":"1","unavailable":true}`, state: guild, after: hashes{"guild": {"1": guild}}},
		{name: "everything of it and of no neighbour", before: []step{
			{"GUILD_CREATE", `{"id":"1","member_count":1,"channels":[{"id":"8"}],"threads":[{"id":"20","member":{"user_id":"99"}}],"emojis":[{"id":"44"}],"stickers":[{"id":"45"}]}`},
			{"GUILD_CREATE", `{"id":"12","threads":[{"id":"201","member":{"user_id":"99"}}]}`},
			{"GUILD_MEMBER_ADD", member}, {"GUILD_BAN_ADD", `{"guild_id":"1","user":{"id":"4"}}`}, {"INVITE_CREATE", `{"guild_id":"1","code":"c"}`},
			{"INTEGRATION_CREATE", `{"id":"9","guild_id":"1"}`}, {"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}, {"ENTITLEMENT_CREATE", `{"id":"50","guild_id":"1"}`}},
			payload: `{"id":"1"}`, state: `{"id":"1","member_count":1}`,
			after: hashes{"guild": {"12": `{"id":"12"}`}, "emojis": nil, "stickers": nil, "channel:1": nil, "thread:1": nil, "thread_member:20": nil, "thread_member:201": {"99": `{"user_id":"99"}`},
				"member:1": nil, "ban:1": nil, "invite:1": nil, "integration:1": nil, "message:2:0": nil, "entitlement": {"50": `{"id":"50","guild_id":"1"}`}}},
	},
	"GUILD_EMOJIS_UPDATE": {{before: []step{{"GUILD_EMOJIS_UPDATE", `{"guild_id":"1","emojis":[{"id":"44"}]}`}}, payload: `{"guild_id":"1","emojis":[]}`, state: `[{"id":"44"}]`, after: hashes{"emojis": {"1": `[]`}}}},
	"GUILD_STICKERS_UPDATE": {{before: []step{{"GUILD_STICKERS_UPDATE", `{"guild_id":"1","stickers":[]}`}}, payload: `{"guild_id":"1","stickers":[{"id":"45"}]}`, state: `[]`,
		after: hashes{"stickers": {"1": `[{"id":"45"}]`}}}},

	"GUILD_MEMBER_ADD": {
		{before: []step{{"GUILD_CREATE", guild}}, payload: member, after: hashes{"member:1": {"5": member}, "guild": {"1": guild, "1:member_count": `3`}}},
		{name: "once more", before: []step{{"GUILD_CREATE", guild}, {"GUILD_MEMBER_ADD", member}}, payload: `{"guild_id":"1","user":{"id":"5"}}`, state: member,
			after: hashes{"member:1": {"5": `{"guild_id":"1","user":{"id":"5"}}`}, "guild": {"1": guild, "1:member_count": `3`}}},
		{name: "in a guild without a count", before: []step{{"GUILD_CREATE", `{"id":"1","member_count":null}`}}, payload: member, after: hashes{"guild": {"1": `{"id":"1","member_count":null}`}}},
		{name: "in a guild that is not known", payload: member, after: hashes{"guild": nil, "member:1": {"5": member}}},
		{name: "without a user", before: []step{{"GUILD_CREATE", guild}}, payload: `{"guild_id":"1","user":{}}`, after: hashes{"guild": {"1": guild}, "member:1": nil}},
		{name: "back from voice", before: []step{{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`}, {"GUILD_MEMBER_REMOVE", member}}, payload: member, after: hashes{"voice_state:1": nil}},
	},
	"GUILD_MEMBER_UPDATE": {
		{before: []step{{"GUILD_MEMBER_ADD", member}}, payload: `{"guild_id":"1","user":{"id":"5"},"roles":[]}`, state: member, after: hashes{"member:1": {"5": `{"guild_id":"1","user":{"id":"5"},"nick":"a","roles":[]}`}}},
		{name: "not known", payload: member, after: hashes{"member:1": {"5": " " + member}}},
		{name: "known in part", before: []step{{"GUILD_MEMBER_UPDATE", member}}, payload: `{"guild_id":"1","user":{"id":"5"},"nick":null}`, state: member, partial: true,
			after: hashes{"member:1": {"5": ` {"guild_id":"1","user":{"id":"5"},"nick":null,"roles":["7"]}`}}},
		{name: "known in part, then listed", before: []step{{"GUILD_MEMBER_UPDATE", member}, {"GUILD_MEMBERS_CHUNK", `{"guild_id":"1","members":[{"user":{"id":"5"},"deaf":false}]}`}}, payload: `{"guild_id":"1","user":{"id":"5"}}`,
			state: `{"guild_id":"1","user":{"id":"5"},"nick":"a","roles":["7"],"deaf":false}`, after: hashes{"member:1": {"5": `{"guild_id":"1","user":{"id":"5"},"nick":"a","roles":["7"],"deaf":false}`}}},
	},
	"GUILD_MEMBER_REMOVE": {
		{before: []step{{"GUILD_CREATE", guild}, {"GUILD_MEMBER_ADD", member}, {"PRESENCE_UPDATE", `{"guild_id":"1","user":{"id":"5"}}`}, {"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`}},
			payload: `{"guild_id":"1","user":{"id":"5"}}`, state: member,
			after: hashes{"member:1": nil, "presence:1": nil, "voice_state:1": {"5:left": `{"guild_id":"1","user_id":"5","channel_id":"8"}`}, "guild": {"1": guild, "1:member_count": `2`}}},
		{name: "known in part", before: []step{{"GUILD_MEMBER_UPDATE", member}}, payload: `{"guild_id":"1","user":{"id":"5"}}`, state: member, partial: true, after: hashes{"member:1": nil}},
		{name: "the last", before: []step{{"GUILD_CREATE", `{"id":"1","member_count":0}`}}, payload: member, after: hashes{"guild": {"1": `{"id":"1","member_count":0}`, "1:member_count": `0`}}},
	},
	"GUILD_MEMBERS_CHUNK": {{before: []step{{"GUILD_MEMBER_ADD", member}}, payload: `{"guild_id":"1","members":[{"user":{"id":"5"},"deaf":false},{"user":{"id":"6"}}],"presences":[{"user":{"id":"6"},"status":"idle"}]}`,
		after: hashes{"member:1": {"5": `{"guild_id":"1","user":{"id":"5"},"nick":"a","roles":["7"],"deaf":false}`, "6": `{"user":{"id":"6"}}`}, "presence:1": {"6": `{"user":{"id":"6"},"status":"idle"}`}}}},
	"PRESENCE_UPDATE": {{before: []step{{"PRESENCE_UPDATE", `{"guild_id":"1","user":{"id":"5"},"status":"idle"}`}, {"GUILD_MEMBER_ADD", member}}, payload: `{"guild_id":"1","user":{"id":"5"},"status":"dnd"}`,
		state: `{"guild_id":"1","user":{"id":"5"},"status":"idle"}`, after: hashes{"presence:1": {"5": `{"guild_id":"1","user":{"id":"5"},"status":"dnd"}`}, "member:1": {"5": member}}}},
	"GUILD_BAN_ADD": {{payload: `{"guild_id":"1","user":{"id":"5"}}`, after: hashes{"ban:1": {"5": `{"guild_id":"1","user":{"id":"5"}}`}}}},
	"GUILD_BAN_REMOVE": {
		{before: []step{{"GUILD_BAN_ADD", `{"guild_id":"1","user":{"id":"5","username":"was"}}`}}, payload: `{"guild_id":"1","user":{"id":"5"}}`, state: `{"guild_id":"1","user":{"id":"5","username":"was"}}`, after: hashes{"ban:1": nil}},
		{name: "not known", payload: `{"guild_id":"1","user":{"id":"5"}}`},
	},

	"GUILD_ROLE_CREATE": {{payload: `{"guild_id":"1","role":{"id":"7"}}`, after: hashes{"role:1": {"7": `{"id":"7"}`}}}},
	"GUILD_ROLE_UPDATE": {{before: []step{{"GUILD_ROLE_CREATE", `{"guild_id":"1","role":{"id":"7","color":1}}`}}, payload: `{"guild_id":"1","role":{"id":"7","color":2}}`, state: `{"id":"7","color":1}`,
		after: hashes{"role:1": {"7": `{"id":"7","color":2}`}}}},
	"GUILD_ROLE_DELETE": {{before: []step{{"GUILD_ROLE_CREATE", `{"guild_id":"1","role":{"id":"7"}}`}, {"GUILD_MEMBER_ADD", member}}, payload: `{"guild_id":"1","role_id":"7"}`, state: `{"id":"7"}`,
		after: hashes{"role:1": nil, "member:1": {"5": member}}}},

	"CHANNEL_CREATE": {{payload: voiceRoom, after: hashes{"channel:1": {"8": voiceRoom}}}},
	"CHANNEL_UPDATE": {{before: []step{{"CHANNEL_CREATE", voiceRoom}, {"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"8","guild_id":"1","status":"s"}`}}, payload: `{"id":"8","guild_id":"1","name":"n"}`, state: voiceRoom,
		after: hashes{"channel:1": {"8": `{"id":"8","guild_id":"1","type":2,"name":"n"}`, "8:voice": `{"status":"s"}`}}}},
	"CHANNEL_DELETE": {{before: []step{
		{"CHANNEL_CREATE", voiceRoom}, {"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"8","guild_id":"1","status":"s"}`}, {"STAGE_INSTANCE_CREATE", `{"id":"30","guild_id":"1","channel_id":"8"}`},
		{"STAGE_INSTANCE_CREATE", `{"id":"31","guild_id":"1","channel_id":"9"}`}, {"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`}, {"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"6","channel_id":"9"}`},
		{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"7","channel_id":"8"}`}, {"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"7"}}`},
		{"THREAD_CREATE", `{"id":"20","guild_id":"1","parent_id":"8","member":{"user_id":"99"}}`}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4}`}, {"THREAD_CREATE", `{"id":"21","guild_id":"1","parent_id":"9"}`},
		{"MESSAGE_CREATE", `{"id":"3","channel_id":"8","guild_id":"1"}`}, {"MESSAGE_CREATE", `{"id":"3","channel_id":"20","guild_id":"1"}`}, {"MESSAGE_CREATE", `{"id":"3","channel_id":"9","guild_id":"1"}`}},
		payload: `{"id":"8","guild_id":"1"}`, state: voiceRoom,
		after: hashes{"channel:1": nil, "stage_instance:1": {"31": `{"id":"31","guild_id":"1","channel_id":"9"}`}, "voice_state:1": {"6": `{"guild_id":"1","user_id":"6","channel_id":"9"}`},
			"thread:1": {"21": `{"id":"21","guild_id":"1","parent_id":"9"}`}, "thread_member:20": nil, "message:8:0": nil, "message:20:0": nil, "message:9:0": {"3": `{"id":"3","channel_id":"9","guild_id":"1"}`}}}},
	"CHANNEL_INFO": {{before: []step{{"CHANNEL_CREATE", voiceRoom}}, payload: `{"guild_id":"1","channels":[{"id":"8","status":null,"voice_start_time":5},{"id":"9","status":"s"}]}`,
		after: hashes{"channel:1": {"8": voiceRoom, "8:voice": `{"status":null,"voice_start_time":5}`}}}},
	"VOICE_CHANNEL_STATUS_UPDATE": {
		{before: []step{{"CHANNEL_CREATE", voiceRoom}}, payload: `{"id":"8","guild_id":"1","status":"s"}`, state: voiceRoom, after: hashes{"channel:1": {"8": voiceRoom, "8:voice": `{"status":"s"}`}}},
		{name: "once more", before: []step{{"CHANNEL_CREATE", voiceRoom}, {"CHANNEL_INFO", `{"guild_id":"1","channels":[{"id":"8","status":"a","voice_start_time":5}]}`}}, payload: `{"id":"8","guild_id":"1","status":"b"}`,
			state: `{"id":"8","guild_id":"1","type":2,"name":"deck","status":"a","voice_start_time":5}`, after: hashes{"channel:1": {"8": voiceRoom, "8:voice": `{"status":"b","voice_start_time":5}`}}},
		{name: "of a thread", before: []step{{"THREAD_CREATE", thread}}, payload: `{"id":"20","guild_id":"1","status":"b"}`, state: thread, after: hashes{"thread:1": {"20": thread, "20:voice": `{"status":"b"}`}}},
		{name: "not known", payload: `{"id":"8","guild_id":"1","status":"s"}`, after: hashes{"channel:1": nil, "thread:1": nil}},
	},
	"VOICE_CHANNEL_START_TIME_UPDATE": {{before: []step{{"CHANNEL_CREATE", voiceRoom}, {"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"8","guild_id":"1","status":"s"}`}}, payload: `{"id":"8","guild_id":"1","voice_start_time":null}`,
		state: `{"id":"8","guild_id":"1","type":2,"name":"deck","status":"s"}`, after: hashes{"channel:1": {"8": voiceRoom, "8:voice": `{"status":"s","voice_start_time":null}`}}}},
	"VOICE_STATE_UPDATE": {
		{before: []step{{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8","deaf":true}`}}, payload: `{"guild_id":"1","user_id":"5","channel_id":"9"}`,
			state: `{"guild_id":"1","user_id":"5","channel_id":"8","deaf":true}`, after: hashes{"voice_state:1": {"5": `{"guild_id":"1","user_id":"5","channel_id":"9","deaf":true}`}}},
		{name: "leaving", before: []step{{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`}}, payload: `{"guild_id":"1","user_id":"5","channel_id":null}`,
			state: `{"guild_id":"1","user_id":"5","channel_id":"8"}`, after: hashes{"voice_state:1": nil}},
		{name: "leaving once more", before: []step{{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8"}`}, {"GUILD_MEMBER_REMOVE", member}, {"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":null}`}},
			payload: `{"guild_id":"1","user_id":"5","channel_id":null}`, after: hashes{"voice_state:1": nil}},
		{name: "after leaving the guild, into a channel", before: []step{{"VOICE_STATE_UPDATE", `{"guild_id":"1","user_id":"5","channel_id":"8","deaf":true}`}, {"GUILD_MEMBER_REMOVE", member}}, payload: `{"guild_id":"1","user_id":"5","channel_id":"9"}`,
			state: `{"guild_id":"1","user_id":"5","channel_id":"8","deaf":true}`, after: hashes{"voice_state:1": {"5": `{"guild_id":"1","user_id":"5","channel_id":"9"}`}}},
		{name: "outside guilds", payload: `{"user_id":"5","channel_id":"9"}`},
	},

	"THREAD_CREATE": {
		{payload: `{"id":"20","guild_id":"1","member":{"id":"20","user_id":"99"}}`, after: hashes{"thread:1": {"20": `{"id":"20","guild_id":"1","member":{"id":"20","user_id":"99"}}`}, "thread_member:20": {"99": `{"id":"20","user_id":"99"}`}}},
		{name: "the bot's own without its id", before: []step{{"READY", self}}, payload: `{"id":"20","guild_id":"1","member":{"flags":0}}`, after: hashes{"thread_member:20": {"99": `{"flags":0}`}}},
		{name: "a count of its own", before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4}`}}, payload: thread, after: hashes{"thread:1": {"20": thread}}},
	},
	"THREAD_UPDATE": {
		{before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4}`}}, payload: `{"id":"20","guild_id":"1","name":"u"}`, state: thread,
			after: hashes{"thread:1": {"20": `{"id":"20","guild_id":"1","parent_id":"2","name":"u","member_count":1}`, "20:member_count": `4`}}},
		{name: "a count of its own", before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4}`}}, payload: `{"id":"20","guild_id":"1","member_count":5}`, state: thread,
			after: hashes{"thread:1": {"20": `{"id":"20","guild_id":"1","parent_id":"2","name":"t","member_count":5}`}}},
	},
	"THREAD_DELETE": {{before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4,"added_members":[{"id":"20","user_id":"5"}]}`}, {"MESSAGE_CREATE", `{"id":"3","channel_id":"20","guild_id":"1"}`}},
		payload: `{"id":"20","guild_id":"1","parent_id":"2","type":11}`, state: thread, after: hashes{"thread:1": nil, "thread_member:20": nil, "message:20:0": nil}}},
	"THREAD_LIST_SYNC": {
		{name: "of some channels", before: []step{{"GUILD_CREATE", `{"id":"1","threads":[{"id":"20","parent_id":"2","name":"a"},{"id":"21","parent_id":"2"},{"id":"22","parent_id":"9"},{"id":"23","parent_id":"2","thread_metadata":{"archived":true}},{"id":"24","parent_id":"2"}]}`},
			{"MESSAGE_CREATE", `{"id":"3","channel_id":"21","guild_id":"1"}`}, {"THREAD_MEMBERS_UPDATE", `{"id":"21","guild_id":"1","member_count":4,"added_members":[{"user_id":"5"}]}`}},
			payload: `{"guild_id":"1","channel_ids":["2"],"threads":[{"id":"20","parent_id":"2","flags":1},{"id":"25","parent_id":"2"}],"members":[{"id":"20","user_id":"99"},{"id":"77","user_id":"99"}]}`,
			state:   `[{"id":"21","parent_id":"2"},{"id":"24","parent_id":"2"}]`,
			after: hashes{"thread:1": {"20": `{"id":"20","parent_id":"2","name":"a","flags":1}`, "22": `{"id":"22","parent_id":"9"}`, "23": `{"id":"23","parent_id":"2","thread_metadata":{"archived":true}}`, "25": `{"id":"25","parent_id":"2"}`},
				"thread_member:20": {"99": `{"id":"20","user_id":"99"}`}, "thread_member:21": nil, "thread_member:77": nil, "message:21:0": nil}},
		{name: "of the guild", before: []step{{"THREAD_CREATE", thread}}, payload: `{"guild_id":"1","threads":[],"members":[]}`, state: `[` + thread + `]`, after: hashes{"thread:1": nil}},
		{name: "nothing gone", before: []step{{"THREAD_CREATE", thread}}, payload: `{"guild_id":"1","channel_ids":["9"],"threads":[],"members":[]}`, after: hashes{"thread:1": {"20": thread}}},
		{name: "without threads", before: []step{{"THREAD_CREATE", thread}}, payload: `{"guild_id":"1"}`, after: hashes{"thread:1": {"20": thread}}},
		{name: "a count of its own", before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","member_count":4}`}}, payload: `{"guild_id":"1","threads":[{"id":"20","member_count":2}]}`,
			after: hashes{"thread:1": {"20": `{"id":"20","guild_id":"1","parent_id":"2","name":"t","member_count":2}`}}},
	},
	"THREAD_MEMBERS_UPDATE": {
		{before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","added_members":[{"user_id":"5","flags":0},{"user_id":"6"}]}`}},
			payload: `{"id":"20","guild_id":"1","member_count":4,"added_members":[{"user_id":"7","member":{"nick":"n"}}],"removed_member_ids":["6","5"]}`, state: `[{"user_id":"6"},{"user_id":"5","flags":0}]`,
			after: hashes{"thread:1": {"20": thread, "20:member_count": `4`}, "thread_member:20": {"7": `{"user_id":"7","member":{"nick":"n"}}`}}},
		{name: "some not known", before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBERS_UPDATE", `{"id":"20","guild_id":"1","added_members":[{"user_id":"5"}]}`}},
			payload: `{"id":"20","guild_id":"1","removed_member_ids":["5","6"]}`, state: `[{"user_id":"5"}]`, partial: true, after: hashes{"thread_member:20": nil}},
		{name: "none known", before: []step{{"THREAD_CREATE", thread}}, payload: `{"id":"20","guild_id":"1","removed_member_ids":["5"]}`},
		{name: "a thread that is not known", payload: `{"id":"20","guild_id":"1","member_count":4,"added_members":[{"user_id":"5"}]}`, after: hashes{"thread:1": nil, "thread_member:20": nil}},
	},
	"THREAD_MEMBER_UPDATE": {
		{before: []step{{"THREAD_CREATE", thread}, {"THREAD_MEMBER_UPDATE", `{"id":"20","guild_id":"1","user_id":"99","flags":1}`}}, payload: `{"id":"20","guild_id":"1","user_id":"99","muted":true}`,
			state: `{"id":"20","guild_id":"1","user_id":"99","flags":1}`, after: hashes{"thread_member:20": {"99": `{"id":"20","guild_id":"1","user_id":"99","flags":1,"muted":true}`}}},
		{name: "the bot's own without its id", before: []step{{"READY", self}, {"THREAD_CREATE", thread}}, payload: `{"id":"20","guild_id":"1","flags":1}`, after: hashes{"thread_member:20": {"99": `{"id":"20","guild_id":"1","flags":1}`}}},
		{name: "the bot's own after a USER_UPDATE", before: []step{{"USER_UPDATE", `{"id":"98"}`}, {"THREAD_CREATE", thread}}, payload: `{"id":"20","guild_id":"1"}`, after: hashes{"thread_member:20": {"98": `{"id":"20","guild_id":"1"}`}}},
		{name: "a thread that is not known", payload: `{"id":"20","guild_id":"1","user_id":"99"}`, after: hashes{"thread_member:20": nil}},
	},
}

func join(all ...map[string][]trial) map[string][]trial {
	joined := make(map[string][]trial)
	for _, some := range all {
		maps.Copy(joined, some)
	}
	return joined
}

// plainTrials are those of the types that only store, merge and remove an entity.
func plainTrials() map[string][]trial {
	trials := make(map[string][]trial)
	for _, of := range []struct {
		stem, payload, key, field string
	}{
		{"AUTO_MODERATION_RULE", `{"id":"9","guild_id":"1"`, "automod_rule:1", "9"},
		{"GUILD_SCHEDULED_EVENT", `{"id":"9","guild_id":"1"`, "scheduled_event:1", "9"},
		{"STAGE_INSTANCE", `{"id":"9","guild_id":"1"`, "stage_instance:1", "9"},
		{"GUILD_SOUNDBOARD_SOUND", `{"sound_id":"9","guild_id":"1"`, "soundboard_sound:1", "9"},
		{"INTEGRATION", `{"id":"9","guild_id":"1"`, "integration:1", "9"},
		{"ENTITLEMENT", `{"id":"9","user_id":"5"`, "entitlement", "9"},
		{"SUBSCRIPTION", `{"id":"9","user_id":"5"`, "subscription", "9"},
	} {
		create := of.payload + `,"name":"n"}`
		trials[of.stem+"_CREATE"] = []trial{
			{payload: create, after: hashes{of.key: {of.field: create}}},
			{name: "once more", before: []step{{of.stem + "_CREATE", create}}, payload: of.payload + `}`, after: hashes{of.key: {of.field: of.payload + `}`}}},
		}
		trials[of.stem+"_UPDATE"] = []trial{
			{before: []step{{of.stem + "_CREATE", create}}, payload: of.payload + `,"x":null}`, state: create, after: hashes{of.key: {of.field: of.payload + `,"name":"n","x":null}`}}},
			{name: "not known", payload: create, after: hashes{of.key: {of.field: create}}},
		}
		trials[of.stem+"_DELETE"] = []trial{
			{before: []step{{of.stem + "_CREATE", create}}, payload: of.payload + `}`, state: create, after: hashes{of.key: nil}},
			{name: "not known", payload: create, after: hashes{of.key: nil}},
		}
	}
	return trials
}

var messageTrials = map[string][]trial{
	"INVITE_CREATE": {
		{payload: `{"guild_id":"1","code":"c","uses":0}`, after: hashes{"invite:1": {"c": `{"guild_id":"1","code":"c","uses":0}`}}},
		{name: "outside guilds", payload: `{"channel_id":"2","code":"c"}`},
	},
	"INVITE_DELETE": {
		{before: []step{{"INVITE_CREATE", `{"guild_id":"1","code":"c","uses":0}`}}, payload: `{"guild_id":"1","code":"c"}`, state: `{"guild_id":"1","code":"c","uses":0}`, after: hashes{"invite:1": nil}},
		{name: "outside guilds", before: []step{{"INVITE_CREATE", `{"channel_id":"2","code":"c"}`}}, payload: `{"channel_id":"2","code":"c"}`},
	},
	"GUILD_SOUNDBOARD_SOUNDS_UPDATE": {{before: []step{{"GUILD_SOUNDBOARD_SOUND_CREATE", `{"guild_id":"1","sound_id":"9","volume":1}`}}, payload: `{"guild_id":"1","soundboard_sounds":[{"sound_id":"9","name":"n"},{"sound_id":"10"}]}`,
		after: hashes{"soundboard_sound:1": {"9": `{"guild_id":"1","sound_id":"9","volume":1,"name":"n"}`, "10": `{"sound_id":"10"}`}}}},
	"SOUNDBOARD_SOUNDS": {{before: []step{{"GUILD_SOUNDBOARD_SOUND_CREATE", `{"guild_id":"1","sound_id":"9"}`}}, payload: `{"guild_id":"1","soundboard_sounds":[{"sound_id":"10"}]}`,
		after: hashes{"soundboard_sound:1": {"10": `{"sound_id":"10"}`}}}},

	"MESSAGE_CREATE": {
		{payload: message, after: hashes{"message:2:0": {"3": message}}},
		{name: "outside guilds", payload: `{"id":"3","channel_id":"2"}`, after: hashes{"message:2:0": {"3": `{"id":"3","channel_id":"2"}`}}},
		{name: "by a webhook", payload: `{"id":"3","channel_id":"2","guild_id":"1","webhook_id":"6","author":{"id":"6"},"member":{"nick":"n"}}`, after: hashes{"member:1": nil, "user": nil}},
	},
	"MESSAGE_UPDATE": {
		{before: []step{{"MESSAGE_CREATE", message}}, payload: `{"id":"3","channel_id":"2","guild_id":"1","content":null,"embeds":[]}`, state: message,
			after: hashes{"message:2:0": {"3": `{"id":"3","channel_id":"2","guild_id":"1","content":null,"embeds":[]}`}}},
		{name: "not known", payload: message, after: hashes{"message:2:0": nil}},
		{name: "reactions and poll of its own", before: []step{{"MESSAGE_CREATE", poll}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}, {"MESSAGE_POLL_VOTE_ADD", `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":1}`}},
			payload: `{"id":"3","channel_id":"2","guild_id":"1","reactions":[],"poll":null}`, state: poll, after: hashes{"message:2:0": {"3": `{"id":"3","channel_id":"2","guild_id":"1","poll":null,"reactions":[]}`}}},
		{name: "reactions stay", before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_REMOVE_ALL", `{"message_id":"3","channel_id":"2","guild_id":"1"}`}}, payload: `{"id":"3","channel_id":"2","guild_id":"1","flags":4}`, state: message,
			after: hashes{"message:2:0": {"3": `{"id":"3","channel_id":"2","guild_id":"1","content":"hi","flags":4}`, "3:reactions": `[]`}}},
	},
	"MESSAGE_DELETE": {{before: []step{{"MESSAGE_CREATE", reacted}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}}, payload: `{"id":"3","channel_id":"2","guild_id":"1"}`, state: reacted, after: hashes{"message:2:0": nil}}},
	"MESSAGE_DELETE_BULK": {
		{before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_CREATE", `{"id":"4","channel_id":"2","guild_id":"1"}`}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}},
			payload: `{"ids":["4","3"],"channel_id":"2","guild_id":"1"}`, state: `[{"id":"4","channel_id":"2","guild_id":"1"},` + message + `]`, after: hashes{"message:2:0": nil}},
		{name: "some not known", before: []step{{"MESSAGE_CREATE", message}}, payload: `{"ids":["4","3"],"channel_id":"2","guild_id":"1"}`, state: `[` + message + `]`, partial: true},
		{name: "none known", payload: `{"ids":["4","3"],"channel_id":"2","guild_id":"1"}`},
	},
	"MESSAGE_REACTION_ADD": {
		{name: "the first", before: []step{{"MESSAGE_CREATE", message}}, payload: `{"user_id":"5",` + x + `,"burst":false,"type":0}`,
			after: hashes{"message:2:0": {"3": message, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":1,"count_details":{"burst":0,"normal":1},"me":false,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "one more", before: []step{{"MESSAGE_CREATE", reacted}}, payload: `{"user_id":"5",` + x + `}`,
			after: hashes{"message:2:0": {"3": reacted, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":3,"count_details":{"burst":0,"normal":3},"me":true,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "another emoji, burst", before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}}, payload: `{"user_id":"5",` + y + `,"burst":true,"burst_colors":["#fff"]}`,
			after: hashes{"message:2:0": {"3": message, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":1,"count_details":{"burst":0,"normal":1},"me":false,"me_burst":false,"burst_colors":[]},
				{"emoji":{"id":"44","name":"y"},"count":1,"count_details":{"burst":1,"normal":0},"me":false,"me_burst":false,"burst_colors":["#fff"]}]`}}},
		{name: "an emoji by its id", before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + y + `}`}}, payload: `{"user_id":"6","message_id":"3","channel_id":"2","guild_id":"1","emoji":{"id":"44","name":"renamed"},"type":1}`,
			after: hashes{"message:2:0": {"3": message, "3:reactions": `[{"emoji":{"id":"44","name":"y"},"count":2,"count_details":{"burst":1,"normal":1},"me":false,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "the bot's own", before: []step{{"READY", self}, {"MESSAGE_CREATE", message}}, payload: `{"user_id":"99",` + x + `}`,
			after: hashes{"message:2:0": {"3": message, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":1,"count_details":{"burst":0,"normal":1},"me":true,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "the bot's own, counted already", before: []step{{"READY", self}, {"MESSAGE_CREATE", reacted}}, payload: `{"user_id":"99",` + x + `}`, after: hashes{"message:2:0": {"3": reacted}}},
		{name: "the bot's own, burst", before: []step{{"READY", self}, {"MESSAGE_CREATE", reacted}}, payload: `{"user_id":"99",` + x + `,"type":1}`,
			after: hashes{"message:2:0": {"3": reacted, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":3,"count_details":{"burst":1,"normal":2},"me":true,"me_burst":true,"burst_colors":[]}]`}}},
		{name: "not known", payload: `{"user_id":"5",` + x + `}`, after: hashes{"message:2:0": nil}},
	},
	"MESSAGE_REACTION_REMOVE": {
		{before: []step{{"READY", self}, {"MESSAGE_CREATE", reacted}}, payload: `{"user_id":"99",` + x + `}`,
			after: hashes{"message:2:0": {"3": reacted, "3:reactions": `[{"emoji":{"id":null,"name":"x"},"count":1,"count_details":{"burst":0,"normal":1},"me":false,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "the last", before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + y + `}`}}, payload: `{"user_id":"5",` + x + `}`,
			after: hashes{"message:2:0": {"3": message, "3:reactions": `[{"emoji":{"id":"44","name":"y"},"count":1,"count_details":{"burst":0,"normal":1},"me":false,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "the only one", before: []step{{"MESSAGE_CREATE", message}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + x + `}`}}, payload: `{"user_id":"5",` + x + `}`, after: hashes{"message:2:0": {"3": message, "3:reactions": `[]`}}},
		{name: "of another emoji", before: []step{{"MESSAGE_CREATE", reacted}}, payload: `{"user_id":"5",` + y + `}`, after: hashes{"message:2:0": {"3": reacted}}},
	},
	"MESSAGE_REACTION_REMOVE_ALL": {
		{before: []step{{"MESSAGE_CREATE", reacted}}, payload: `{"message_id":"3","channel_id":"2","guild_id":"1"}`, state: `[{"emoji":{"id":null,"name":"x"},"count":2,"me":true}]`, after: hashes{"message:2:0": {"3": reacted, "3:reactions": `[]`}}},
		{name: "none", before: []step{{"MESSAGE_CREATE", message}}, payload: `{"message_id":"3","channel_id":"2","guild_id":"1"}`, state: `[]`},
		{name: "twice", before: []step{{"MESSAGE_CREATE", reacted}, {"MESSAGE_REACTION_REMOVE_ALL", `{"message_id":"3","channel_id":"2","guild_id":"1"}`}}, payload: `{"message_id":"3","channel_id":"2","guild_id":"1"}`, state: `[]`},
		{name: "not known", payload: `{"message_id":"3","channel_id":"2","guild_id":"1"}`, after: hashes{"message:2:0": nil}},
	},
	"MESSAGE_REACTION_REMOVE_EMOJI": {
		{before: []step{{"MESSAGE_CREATE", reacted}, {"MESSAGE_REACTION_ADD", `{"user_id":"5",` + y + `}`}}, payload: `{` + x + `}`, state: `{"emoji":{"id":null,"name":"x"},"count":2,"me":true}`,
			after: hashes{"message:2:0": {"3": reacted, "3:reactions": `[{"emoji":{"id":"44","name":"y"},"count":1,"count_details":{"burst":0,"normal":1},"me":false,"me_burst":false,"burst_colors":[]}]`}}},
		{name: "of another emoji", before: []step{{"MESSAGE_CREATE", reacted}}, payload: `{` + y + `}`, after: hashes{"message:2:0": {"3": reacted}}},
		{name: "of one that is there twice", before: []step{{"MESSAGE_CREATE", `{"id":"3","channel_id":"2","guild_id":"1","reactions":[{"emoji":{"name":"x"},"count":1},{"emoji":{"name":"x"},"count":2}]}`}}, payload: `{` + x + `}`,
			state: `{"emoji":{"name":"x"},"count":1}`, after: hashes{"message:2:0": {"3": `{"id":"3","channel_id":"2","guild_id":"1","reactions":[{"emoji":{"name":"x"},"count":1},{"emoji":{"name":"x"},"count":2}]}`, "3:reactions": `[{"emoji":{"name":"x"},"count":2}]`}}},
	},
	"MESSAGE_POLL_VOTE_ADD": {
		{before: []step{{"READY", self}, {"MESSAGE_CREATE", poll}}, payload: `{"user_id":"99","message_id":"3","channel_id":"2","guild_id":"1","answer_id":1}`,
			after: hashes{"message:2:0": {"3": poll, "3:poll": `{"answer_counts":[{"id":1,"count":2,"me_voted":true}]}`}}},
		{name: "for another answer", before: []step{{"MESSAGE_CREATE", poll}}, payload: `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":2}`,
			after: hashes{"message:2:0": {"3": poll, "3:poll": `{"answer_counts":[{"id":1,"count":1,"me_voted":false},{"id":2,"count":1,"me_voted":false}]}`}}},
		{name: "no poll", before: []step{{"MESSAGE_CREATE", message}}, payload: `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":2}`, after: hashes{"message:2:0": {"3": message}}},
	},
	"MESSAGE_POLL_VOTE_REMOVE": {
		{before: []step{{"MESSAGE_CREATE", poll}, {"MESSAGE_POLL_VOTE_REMOVE", `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":1}`}}, payload: `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":1}`,
			after: hashes{"message:2:0": {"3": poll, "3:poll": `{"answer_counts":[{"id":1,"count":0,"me_voted":false}]}`}}},
		{name: "for another answer", before: []step{{"MESSAGE_CREATE", poll}}, payload: `{"user_id":"5","message_id":"3","channel_id":"2","guild_id":"1","answer_id":2}`, after: hashes{"message:2:0": {"3": poll}}},
	},
}

// TestDispatches runs the trials of every type: with what came before in memory, in
// Redis only, not yet confirmed, and in the same batch.
func TestDispatches(t *testing.T) {
	t.Parallel()
	for i := range dispatch.Types {
		d := &dispatch.Types[i]
		if (len(trials[d.Name]) == 0) != (d.Cache.Do == dispatch.Ignore) {
			t.Errorf("%s has %d trials", d.Name, len(trials[d.Name]))
		}
		stated := slices.ContainsFunc(trials[d.Name], func(c trial) bool { return c.state != "" })
		if stated != (d.Previous != "") {
			t.Errorf("%s has a trial with a state: %v, its type in the table is %q", d.Name, stated, d.Previous)
		}
	}
	for _, eventType := range slices.Sorted(maps.Keys(trials)) {
		for _, c := range trials[eventType] {
			for mode, run := range modes {
				t.Run(strings.TrimSuffix(eventType+"/"+c.name, "/")+"/"+mode, func(t *testing.T) {
					t.Parallel()
					b := newBench(t, cache.Config{})
					got := run(b, append(slices.Clone(c.before), step{eventType, c.payload}))
					if diff := cmp.Diff(value(t, c.state), value(t, string(got.State))); diff != "" {
						t.Errorf("state (-want +got):\n%s", diff)
					}
					if got.Partial != c.partial {
						t.Errorf("Partial = %v, want %v", got.Partial, c.partial)
					}
					b.holds(c.after)
				})
			}
		}
	}
}

// modes are the ways to come to a dispatch. Each returns its change, everything
// committed.
var modes = map[string]func(b *bench, steps []step) *cache.Change{
	"warm": func(b *bench, steps []step) (c *cache.Change) {
		for _, s := range steps {
			c = b.build(s.eventType, s.payload)
			b.commit()
		}
		return c
	},
	"cold": func(b *bench, steps []step) (c *cache.Change) {
		for _, s := range steps {
			b.forget()
			c = b.build(s.eventType, s.payload)
			b.commit()
		}
		return c
	},
	"unconfirmed": func(b *bench, steps []step) (c *cache.Change) {
		for _, s := range steps {
			c = b.build(s.eventType, s.payload)
		}
		b.commit()
		return c
	},
	"one batch": func(b *bench, steps []step) *cache.Change {
		changes := b.batch(steps)
		b.commit()
		return changes[len(changes)-1]
	},
	"one batch over a cold one": func(b *bench, steps []step) *cache.Change {
		b.batch(steps[:len(steps)/2])
		b.commit()
		b.forget()
		changes := b.batch(steps[len(steps)/2:])
		b.commit()
		return changes[len(changes)-1]
	},
}

// batch applies changes that are looked up together.
func (b *bench) batch(steps []step) (changes []*cache.Change) {
	b.t.Helper()
	b.number++
	b.store.Begin(b.number)
	for _, s := range steps {
		c := new(cache.Change)
		if err := c.Set(s.eventType, []byte(s.payload), b.now); err != nil {
			b.t.Fatal(err)
		}
		changes = append(changes, c)
	}
	if _, err := b.store.Prefetch(b.t.Context(), b.rdb, changes); err != nil {
		b.t.Fatal(err)
	}
	for i, c := range changes {
		if err := b.store.Apply(c, &b.out); err != nil {
			b.t.Fatalf("Apply(%s %s): %v", steps[i].eventType, steps[i].payload, err)
		}
	}
	return changes
}

// holds compares keys of the cache with what they are to hold.
func (b *bench) holds(want hashes) {
	b.t.Helper()
	for key, fields := range want {
		got := make(map[string]any)
		for field, text := range b.rdb.HGetAll(b.t.Context(), b.keys.Cache(key)).Val() {
			got[field] = stored(b.t, text)
		}
		wanted := make(map[string]any)
		for field, text := range fields {
			wanted[field] = stored(b.t, text)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			b.t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// stored is a value and whether it has the mark of what is known in part.
func stored(t testing.TB, text string) any {
	t.Helper()
	return fmt.Sprintf("%v %v", strings.HasPrefix(text, " "), value(t, text))
}

// value is what JSON says, nil for none.
func value(t testing.TB, text string) (v any) {
	t.Helper()
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}
