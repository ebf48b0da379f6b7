package cachemodel_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/cachemodel"
)

// A step is one dispatch and the state it is to have; a leading space: in part.
type step struct{ name, payload, want string }

// TestRules goes through what the recorded sessions do not tell.
func TestRules(t *testing.T) {
	t.Parallel()
	const ready = `{"user":{"id":"9"},"guilds":[{"id":"1"}]}`
	const guild = `{"id":"1","member_count":3,"roles":[],"channels":[{"id":"20"}],"threads":[{"id":"30","parent_id":"20","member_count":4,"member":{"flags":1}}],"members":[{"user":{"id":"5"}}],"presences":[],"voice_states":[]}`
	message := `{"id":"50","channel_id":"20","guild_id":"1","reactions":[{"emoji":{"id":null,"name":"x"},"count":2,"count_details":{"burst":0,"normal":2},"me":false,"me_burst":false,"burst_colors":[]}],"poll":{"results":{"answer_counts":[{"id":1,"count":1,"me_voted":false}]}}}`
	reaction := func(emoji, more string) string {
		return `{"message_id":"50","channel_id":"20","guild_id":"1","emoji":{"id":null,"name":"` + emoji + `"},` + more + `}`
	}
	tests := []struct {
		name  string
		steps []step
		want  map[string]string // hash field → value, beyond what is not asked for
	}{
		{"a repeated add, and the count", []step{
			{"GUILD_CREATE", guild, ""},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"}}`, ""},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"},"nick":"n"}`, `{"guild_id":"1","user":{"id":"6"}}`},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"7"}}`, ""},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"5"}}`, `{"user":{"id":"5"}}`},
		}, map[string]string{"guild 1:member_count": "2", "member:1 6": `{"guild_id":"1","nick":"n","user":{"id":"6"}}`, "member:1 5": ""}},
		{"a snapshot drops the count; a short list of members stays short", []step{
			{"GUILD_CREATE", guild, ""},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"}}`, ""},
			{"GUILD_CREATE", guild, ""},
		}, map[string]string{"guild 1:member_count": "", "member:1 6": `{"guild_id":"1","user":{"id":"6"}}`, "member:1 5": `{"user":{"id":"5"}}`}},
		{"a whole list of members replaces", []step{
			{"GUILD_CREATE", guild, ""},
			{"GUILD_CREATE", `{"id":"1","member_count":1,"members":[{"user":{"id":"8"}}]}`, ""},
		}, map[string]string{"member:1 5": "", "member:1 8": `{"user":{"id":"8"}}`, "thread:1 30": `{"id":"30","member":{"flags":1},"member_count":4,"parent_id":"20"}`}},
		{"known in part until told whole", []step{
			{"GUILD_MEMBER_UPDATE", `{"guild_id":"1","user":{"id":"5"}}`, ""},
			{"GUILD_MEMBER_UPDATE", `{"guild_id":"1","user":{"id":"5"},"nick":"n"}`, ` {"guild_id":"1","user":{"id":"5"}}`},
			{"GUILD_MEMBERS_CHUNK", `{"guild_id":"1","members":[{"user":{"id":"5"},"deaf":true}]}`, ""},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"5"}}`, `{"deaf":true,"guild_id":"1","nick":"n","user":{"id":"5"}}`},
			{"GUILD_UPDATE", `{"id":"1","name":"a","roles":[{"id":"2"}]}`, ""},
			{"GUILD_UPDATE", `{"id":"1","name":"b"}`, ` {"id":"1","name":"a"}`},
		}, map[string]string{"guild 1": ` {"id":"1","name":"b"}`}},
		{"voice beside the channel", []step{
			{"GUILD_CREATE", guild, ""},
			{"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"20","guild_id":"1","status":"s"}`, `{"id":"20"}`},
			{"CHANNEL_INFO", `{"guild_id":"1","channels":[{"id":"20","status":"t","voice_start_time":7},{"id":"21","status":"u"}]}`, ""},
			{"VOICE_CHANNEL_START_TIME_UPDATE", `{"id":"20","guild_id":"1","voice_start_time":null}`, `{"id":"20","status":"t","voice_start_time":7}`},
			{"VOICE_CHANNEL_STATUS_UPDATE", `{"id":"21","guild_id":"1","status":"s"}`, ""},
		}, map[string]string{"channel:1 20:voice": `{"status":"t","voice_start_time":null}`, "channel:1 21:voice": ""}},
		{"thread members", []step{
			{"READY", ready, ""},
			{"GUILD_CREATE", guild, ""},
			{"THREAD_MEMBER_UPDATE", `{"id":"30","guild_id":"1","user_id":"9","flags":2}`, `{"flags":1}`},
			{"THREAD_MEMBERS_UPDATE", `{"id":"30","guild_id":"1","member_count":6,"added_members":[{"id":"30","user_id":"5"},{"id":"30","user_id":"6"}]}`, ""},
			{"THREAD_MEMBERS_UPDATE", `{"id":"30","guild_id":"1","member_count":5,"removed_member_ids":["6","7"]}`, ` [{"id":"30","user_id":"6"}]`},
			{"THREAD_MEMBERS_UPDATE", `{"id":"31","guild_id":"1","member_count":5,"added_members":[{"id":"31","user_id":"5"}]}`, ""},
		}, map[string]string{
			"thread_member:30 9": `{"flags":2,"guild_id":"1","id":"30","user_id":"9"}`, "thread_member:30 5": `{"id":"30","user_id":"5"}`,
			"thread_member:30 6": "", "thread_member:31 5": "", "thread:1 30:member_count": "5"}},
		{"a sync of threads drops those that are active no more", []step{
			{"READY", ready, ""},
			{"GUILD_CREATE", `{"id":"1","threads":[{"id":"30","parent_id":"20","member":{}},{"id":"31","parent_id":"20"},{"id":"32","parent_id":"21"},{"id":"33","parent_id":"20","thread_metadata":{"archived":true}}]}`, ""},
			{"MESSAGE_CREATE", `{"id":"50","channel_id":"30","guild_id":"1"}`, ""},
			{"THREAD_LIST_SYNC", `{"guild_id":"1","channel_ids":["20"],"threads":[{"id":"31"}],"members":[{"id":"31","user_id":"9"},{"id":"30","user_id":"9"}]}`, `[{"id":"30","parent_id":"20","member":{}}]`},
			{"THREAD_LIST_SYNC", `{"guild_id":"1","threads":[]}`, `[{"id":"31","parent_id":"20"},{"id":"32","parent_id":"21"}]`},
		}, map[string]string{"*": "guild thread:1 user"}},
		{"who leaves the guild has been in voice", []step{
			{"VOICE_STATE_UPDATE", `{"user_id":"5","channel_id":"20","guild_id":"1"}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"6","channel_id":"20","guild_id":"1"}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"7","channel_id":"20","guild_id":"1"}`, ""},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"5"}}`, ""},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"6"}}`, ""},
			{"GUILD_MEMBER_REMOVE", `{"guild_id":"1","user":{"id":"7"}}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"5","channel_id":null,"guild_id":"1"}`, `{"user_id":"5","channel_id":"20","guild_id":"1"}`},
			{"VOICE_STATE_UPDATE", `{"user_id":"5","channel_id":null,"guild_id":"1"}`, ""},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"}}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"6","channel_id":null,"guild_id":"1"}`, ""},
		}, map[string]string{"voice_state:1 7:left": `{"channel_id":"20","guild_id":"1","user_id":"7"}`}},
		{"reactions", []step{
			{"READY", ready, ""},
			{"MESSAGE_CREATE", message, ""},
			{"MESSAGE_REACTION_ADD", reaction("x", `"user_id":"9"`), ""},
			{"MESSAGE_REACTION_ADD", reaction("x", `"user_id":"9"`), ""},
			{"MESSAGE_REACTION_ADD", reaction("y", `"user_id":"5","burst":true,"burst_colors":["#1"]`), ""},
			{"MESSAGE_REACTION_REMOVE_EMOJI", reaction("x", `"a":1`), `{"burst_colors":[],"count":3,"count_details":{"burst":0,"normal":3},"emoji":{"id":null,"name":"x"},"me":true,"me_burst":false}`},
			{"MESSAGE_REACTION_REMOVE", reaction("z", `"user_id":"5"`), ""},
			{"MESSAGE_REACTION_REMOVE_ALL", reaction("", `"a":1`), `[{"burst_colors":["#1"],"count":1,"count_details":{"burst":1,"normal":0},"emoji":{"id":null,"name":"y"},"me":false,"me_burst":false}]`},
			{"MESSAGE_REACTION_REMOVE_ALL", reaction("", `"a":1`), `[]`},
			{"MESSAGE_DELETE", `{"id":"50","channel_id":"20","guild_id":"1"}`, message},
			{"MESSAGE_REACTION_REMOVE_ALL", reaction("", `"a":1`), ""},
		}, map[string]string{"message:20:0 50:reactions": ""}},
		{"an edit that tells reactions or the poll is right", []step{
			{"MESSAGE_CREATE", message, ""},
			{"MESSAGE_REACTION_REMOVE", reaction("x", `"user_id":"5"`), ""},
			{"MESSAGE_POLL_VOTE_ADD", `{"message_id":"50","channel_id":"20","guild_id":"1","user_id":"5","answer_id":2}`, ""},
			{"MESSAGE_POLL_VOTE_REMOVE", `{"message_id":"50","channel_id":"20","guild_id":"1","user_id":"5","answer_id":1}`, ""},
			{"MESSAGE_UPDATE", `{"id":"50","channel_id":"20","guild_id":"1","reactions":[]}`, message},
		}, map[string]string{"message:20:0 50:reactions": "", "message:20:0 50:poll": `{"answer_counts":[{"count":1,"id":2,"me_voted":false}]}`}},
		{"a channel takes along what it had", []step{
			{"READY", ready, ""},
			{"GUILD_CREATE", guild, ""},
			{"MESSAGE_CREATE", `{"id":"50","channel_id":"30","guild_id":"1"}`, ""},
			{"STAGE_INSTANCE_CREATE", `{"id":"60","channel_id":"20","guild_id":"1"}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"5","channel_id":"20","guild_id":"1"}`, ""},
			{"VOICE_STATE_UPDATE", `{"user_id":"6","channel_id":"200","guild_id":"1"}`, ""},
			{"CHANNEL_DELETE", `{"id":"20","guild_id":"1"}`, `{"id":"20"}`},
		}, map[string]string{"thread:1 30": "", "thread_member:30 9": "", "message:30:0 50": "", "stage_instance:1 60": "", "voice_state:1 5": "", "voice_state:1 6": `{"channel_id":"200","guild_id":"1","user_id":"6"}`}},
		{"a guild takes along everything but the neighbour's", []step{
			{"READY", ready, ""},
			{"GUILD_CREATE", guild, ""},
			{"GUILD_BAN_ADD", `{"guild_id":"1","user":{"id":"5"}}`, ""},
			{"GUILD_BAN_ADD", `{"guild_id":"10","user":{"id":"5"}}`, ""},
			{"MESSAGE_CREATE", `{"id":"50","channel_id":"20","guild_id":"1"}`, ""},
			{"ENTITLEMENT_CREATE", `{"id":"70","guild_id":"1"}`, ""},
			{"GUILD_MEMBER_ADD", `{"guild_id":"1","user":{"id":"6"}}`, ""},
			{"GUILD_DELETE", `{"id":"1","unavailable":true}`, `{"id":"1","member_count":3}`},
			{"GUILD_DELETE", `{"id":"1"}`, `{"id":"1","member_count":3}`},
			{"GUILD_BAN_REMOVE", `{"guild_id":"10","user":{"id":"5"}}`, `{"guild_id":"10","user":{"id":"5"}}`},
			{"ENTITLEMENT_UPDATE", `{"id":"70","ends_at":null}`, `{"guild_id":"1","id":"70"}`},
		}, map[string]string{"*": "entitlement user"}},
		{"invites outside guilds are not kept; bulk deletes tell what they had", []step{
			{"INVITE_CREATE", `{"code":"c"}`, ""},
			{"INVITE_CREATE", `{"code":"d","guild_id":"1"}`, ""},
			{"INVITE_DELETE", `{"code":"d","guild_id":"1"}`, `{"code":"d","guild_id":"1"}`},
			{"MESSAGE_CREATE", `{"id":"50","channel_id":"20","guild_id":"1"}`, ""},
			{"MESSAGE_DELETE_BULK", `{"ids":["49","50"],"channel_id":"20","guild_id":"1"}`, ` [{"channel_id":"20","guild_id":"1","id":"50"}]`},
			{"MESSAGE_DELETE_BULK", `{"ids":["49","50"],"channel_id":"20","guild_id":"1"}`, ""},
		}, map[string]string{"*": ""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := cachemodel.New()
			for _, s := range test.steps {
				state := m.Apply(s.name, []byte(s.payload))
				got := cachemodel.Canonical(string(state.Previous))
				if state.Partial {
					got = " " + got
				}
				if want := cachemodel.Canonical(s.want); got != want {
					t.Errorf("before %s %s:\n got %q\nwant %q", s.name, s.payload, got, want)
				}
			}
			content := m.Content().Normal()
			for place, want := range test.want {
				key, field, _ := strings.Cut(place, " ")
				got := content[key][field]
				if key == "*" {
					got = strings.Join(slices.Sorted(maps.Keys(content)), " ")
				}
				if got != want {
					t.Errorf("%s holds %q, want %q", place, got, want)
				}
			}
		})
	}
}
