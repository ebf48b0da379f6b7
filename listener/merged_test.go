package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/discord"
	"github.com/sluicehq/sluice/listener/event"
)

func TestMerged(t *testing.T) {
	t.Parallel()
	const guild = `{"id":"5","name":"old","member_count":3,"roles":null}`
	var noGuild *discordgo.Guild
	tests := []struct {
		name, eventType, payload, previous string
		want                               any
		err                                error
	}{
		{"what is sent wins, null too", "CHANNEL_UPDATE", `{"id":"1","name":"new","topic":null}`, `{"id":"1","name":"old","topic":"t","position":3}`,
			&discordgo.Channel{ID: "1", GuildID: "5", Name: "new", Position: 3}, nil},
		{"an object in the payload", "GUILD_ROLE_UPDATE", `{"guild_id":"5","role":{"id":"1","name":"new"}}`, `{"id":"1","name":"old","color":7}`,
			&discordgo.Role{ID: "1", Name: "new", Color: 7}, nil},
		{"no object in the payload", "GUILD_ROLE_UPDATE", `{"guild_id":"5"}`, `{"id":"1","name":"old"}`, &discordgo.Role{ID: "1", Name: "old"}, nil},
		{"a list is the one sent", "GUILD_EMOJIS_UPDATE", `{"guild_id":"5","emojis":[{"id":"2"}]}`, `[{"id":"1"}]`, []*discordgo.Emoji{{ID: "2"}}, nil},
		{"a list without one before", "GUILD_STICKERS_UPDATE", `{"guild_id":"5","stickers":[{"id":"2"}]}`, ``, []*discordgo.Sticker{{ID: "2", GuildID: "5"}}, nil},
		{"a list that is left out", "GUILD_EMOJIS_UPDATE", `{"guild_id":"5"}`, `[{"id":"1"}]`, []*discordgo.Emoji(nil), listener.ErrNotKnown},
		{"a guild without what it nests", "GUILD_UPDATE", `{"id":"5","name":"new","roles":[{"id":"1"}],"emojis":[{"id":"1"}]}`, guild,
			&discordgo.Guild{ID: "5", Name: "new", MemberCount: 3}, nil},
		{"a guild that was not known", "GUILD_UPDATE", `{"id":"5","name":"new"}`, ``, noGuild, listener.ErrNotKnown},
		{"an outage", "GUILD_DELETE", `{"id":"5","unavailable":true}`, guild, &discordgo.Guild{ID: "5", Name: "old", MemberCount: 3}, nil},
		{"an outage of a guild that was not known", "GUILD_DELETE", `{"id":"5","unavailable":true}`, ``, noGuild, listener.ErrNotKnown},
		{"a guild that was left", "GUILD_DELETE", `{"id":"5"}`, guild, noGuild, listener.ErrRemoved},
		{"a voice move", "VOICE_STATE_UPDATE", `{"guild_id":"5","user_id":"1","channel_id":"3"}`, `{"user_id":"1","channel_id":"2","session_id":"s"}`,
			&discordgo.VoiceState{GuildID: "5", UserID: "1", ChannelID: "3", SessionID: "s"}, nil},
		{"leaving voice", "VOICE_STATE_UPDATE", `{"guild_id":"5","user_id":"1","channel_id":null}`, `{"user_id":"1","channel_id":"2"}`, (*discordgo.VoiceState)(nil), listener.ErrRemoved},
		{"a removed message", "MESSAGE_DELETE", `{"id":"1"}`, `{"id":"1"}`, (*discordgo.Message)(nil), listener.ErrRemoved},
		{"removed messages", "MESSAGE_DELETE_BULK", `{"ids":["1"]}`, `[{"id":"1"}]`, []*discordgo.Message(nil), listener.ErrRemoved},
		{"a removed role", "GUILD_ROLE_DELETE", `{"role_id":"1"}`, `{"id":"1"}`, (*discordgo.Role)(nil), listener.ErrRemoved},
		{"a removed sound", "GUILD_SOUNDBOARD_SOUND_DELETE", `{"sound_id":"1"}`, ``, (*discord.SoundboardSound)(nil), listener.ErrRemoved},
		{"a part of a message", "MESSAGE_UPDATE", `{"id":"1","embeds":[]}`, ``, (*discordgo.Message)(nil), listener.ErrNotKnown},
		{"a part of a member", "GUILD_MEMBER_UPDATE", `{"user":{"id":"1"},"roles":[],"deaf":false,"mute":false,"joined_at":null}`, ``, (*discordgo.Member)(nil), listener.ErrNotKnown},
		{"a state that is no JSON", "MESSAGE_UPDATE", `{"id":"1","embeds":[]}`, `{"id":"1",`, (*discordgo.Message)(nil), listener.ErrNotKnown},
		{"null for a state", "MESSAGE_UPDATE", `{"id":"1","embeds":[]}`, `null`, (*discordgo.Message)(nil), listener.ErrNotKnown},
		{"a kind without", "MESSAGE_CREATE", `{"id":"1"}`, ``, listener.None{}, listener.ErrNoEntity},
		{"a new member", "GUILD_MEMBER_ADD", `{"guild_id":"5","user":{"id":"1"},"roles":[]}`, `{"user":{"id":"1"},"nick":"was here"}`,
			&discordgo.Member{GuildID: "5", User: &discordgo.User{ID: "1"}, Roles: []string{}}, nil},
		{"a voice channel's status", "VOICE_CHANNEL_STATUS_UPDATE", `{"guild_id":"5","id":"1","status":"new"}`, `{"id":"1","name":"deck","status":"old","voice_start_time":7}`,
			&discord.VoiceChannel{Channel: &discordgo.Channel{ID: "1", GuildID: "5", Name: "deck"}, Status: "new", VoiceStartTime: 7}, nil},
		{"a voice channel that was not known", "VOICE_CHANNEL_START_TIME_UPDATE", `{"guild_id":"5","id":"1","voice_start_time":7}`, ``, (*discord.VoiceChannel)(nil), listener.ErrNotKnown},
		{"removed reactions", "MESSAGE_REACTION_REMOVE_ALL", `{"message_id":"1"}`, `[{"count":2}]`, []*discordgo.MessageReactions(nil), listener.ErrRemoved},
		{"removed thread members", "THREAD_MEMBERS_UPDATE", `{"id":"1","removed_member_ids":["2"]}`, `[{"id":"1","user_id":"2"}]`, []*discordgo.ThreadMember(nil), listener.ErrRemoved},
		{"an integration", "INTEGRATION_UPDATE", `{"id":"1","enabled":false}`, `{"id":"1","name":"tide","enabled":true}`, &discordgo.Integration{ID: "1", Name: "tide"}, nil},
		{"unknown components", "MESSAGE_UPDATE", `{"id":"3","content":"new"}`, unknown,
			&discordgo.Message{ID: "3", ChannelID: "2", GuildID: "5", Content: "new", Components: []discordgo.MessageComponent{}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := see(t, listener.Delivery{Type: test.eventType, GuildID: "5", Payload: json.RawMessage(test.payload), Previous: json.RawMessage(test.previous)})
			if err != nil {
				t.Fatal(err)
			}
			entity, err := got.merged()
			if err != test.err {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, entity); diff != "" {
				t.Errorf("merged (-want +got):\n%s", diff)
			}
			if test.err != nil || reflect.ValueOf(entity).IsNil() {
				return
			}
			again, _ := got.merged()
			if reflect.ValueOf(again).Pointer() == reflect.ValueOf(entity).Pointer() {
				t.Error("two calls share a value")
			}
		})
	}
}

func TestMergedOfAWholePayload(t *testing.T) {
	t.Parallel()
	ran := 0
	for i := range dispatch.Types {
		d := &dispatch.Types[i]
		if d.Cache.Do != dispatch.Merge && d.Cache.Do != dispatch.MergeKnown && d.Cache.Do != dispatch.MergeVoice {
			continue
		}
		ran++
		got, err := see(t, listener.Delivery{Type: d.Name, Payload: payload(d.Name)})
		if err != nil {
			t.Fatal(err)
		}
		entity, err := got.merged()
		if err != nil || reflect.ValueOf(entity).IsNil() {
			t.Errorf("%s: Merged = %v, %v", d.Name, entity, err)
		}
		// The same over a state before that has none of it.
		got, err = see(t, listener.Delivery{Type: d.Name, Payload: payload(d.Name), Previous: json.RawMessage(`{"nobody_knows":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		over, err := got.merged()
		if diff := cmp.Diff(entity, over); diff != "" || err != nil {
			t.Errorf("%s: over an empty state (-alone +over): error %v\n%s", d.Name, err, diff)
		}
	}
	if ran < 12 {
		t.Errorf("%d types ran", ran)
	}
}

func TestMergedThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	got, err := see(t, listener.Delivery{Type: "CHANNEL_UPDATE", Payload: json.RawMessage(`{"id":"1"}`), Previous: json.RawMessage(`{"id":"1","position":"first"}`)})
	if err != nil {
		t.Fatal(err)
	}
	entity, err := got.merged()
	decode, ok := errors.AsType[*listener.DecodeError](err)
	if !ok || decode.Field != "position" || !reflect.ValueOf(entity).IsNil() {
		t.Errorf("Merged = %v, %v, want nil and a DecodeError for position", entity, err)
	}
	for _, e := range []event.ChannelUpdate{
		{},
		{Delivery: listener.Delivery{Type: "CHANNEL_UPDATE"}},
		{Delivery: listener.Delivery{Type: "orders.created", Payload: json.RawMessage(`{}`)}},
	} {
		if c, err := e.Merged(); c != nil || err == nil {
			t.Errorf("%q %s: Merged = %v, %v", e.Type, e.Payload, c, err)
		}
	}
}

// What Merged says after a dispatch is what the next one of the entity has as its
// state before.
func TestMergedIsTheNextOld(t *testing.T) {
	t.Parallel()
	type entity struct {
		kind      dispatch.Kind
		guild, id string
	}
	states := expectedStates()
	listeners := listener.New()
	var got seen
	for i := range probes {
		listeners.Add(probes[i].listen(probes[i].name, func(s seen) { got = s }))
	}
	now := map[entity]any{}
	compared := map[dispatch.Kind]int{}
	var fields dispatch.Fields
	for _, e := range sessionEnvelopes() {
		d := dispatch.Lookup(e.Type)
		if err := fields.Scan(e.Payload); err != nil {
			t.Fatal(err)
		}
		_, guild := d.Key(&fields)
		switch d.Cache.Do {
		case dispatch.Ignore:
			continue
		case dispatch.GuildCreate, dispatch.MembersChunk, dispatch.MergeList, dispatch.ReplaceList:
			// They change many, and say of none what it was.
			maps.DeleteFunc(now, func(at entity, _ any) bool {
				return at.guild == string(guild) && (d.Cache.Do == dispatch.GuildCreate || at.kind == d.Cache.Kind || at.kind == dispatch.Presence)
			})
			continue
		}
		at := entity{d.Cache.Kind, string(guild), string(fields.ID(d.Cache.ID))}
		if d.Previous == "" {
			delete(now, at)
			continue
		}
		run := listener.Delivery{Type: e.Type, GuildID: string(guild), Payload: e.Payload, Previous: states[stateKey{e.Seq(), e.Type}]}
		if err := runBound(t, listeners.Match(e.Type)[0], run, nil); err != nil {
			t.Fatal(err)
		}
		if was, ok := now[at]; ok && run.Previous != nil {
			compared[at.kind]++
			if diff := cmp.Diff(was, got.previous); diff != "" {
				t.Errorf("s=%d %s: Old is not what Merged said before (-said +old):\n%s", e.Seq(), e.Type, diff)
			}
		}
		delete(now, at)
		if merged, err := got.merged(); err == nil {
			now[at] = merged
		}
	}
	for _, kind := range []dispatch.Kind{dispatch.Member, dispatch.Message, dispatch.VoiceState, dispatch.Presence, dispatch.Channel, dispatch.Guild} {
		if compared[kind] == 0 {
			t.Errorf("no state of kind %s was compared: %v", kind, compared)
		}
	}
}

func BenchmarkMerged(b *testing.B) {
	b.ReportAllocs()
	var e *event.GuildMemberUpdate
	l := listener.GuildMemberUpdate.Handle("a", func(_ context.Context, got *event.GuildMemberUpdate) error { e = got; return nil })
	p := payload("GUILD_MEMBER_UPDATE")
	if err := run(b, l, listener.Delivery{Type: "GUILD_MEMBER_UPDATE", Payload: p, Previous: p}, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := e.Merged(); err != nil {
			b.Fatal(err)
		}
	}
}
