package listener_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener"
)

func TestEveryDispatchIsDecodedAsDiscordgoWould(t *testing.T) {
	t.Parallel()
	dispatches := corpus.Dispatches()
	if len(dispatches) != len(probes) {
		t.Errorf("%d dispatches, %d kinds", len(dispatches), len(probes))
	}
	for _, e := range dispatches {
		t.Run(e.Type, func(t *testing.T) {
			t.Parallel()
			got, err := see(t, listener.Delivery{Type: e.Type, Payload: e.Payload})
			if err != nil {
				t.Fatal(err)
			}
			typ := reflect.TypeOf(got.payload)
			want := reflect.New(typ.Elem())
			if err := json.Unmarshal(e.Payload, want.Interface()); err != nil {
				t.Fatal(err)
			}
			nameGuilds(want.Interface())
			if diff := cmp.Diff(want.Interface(), got.payload); diff != "" {
				t.Errorf("decoded otherwise than by discordgo (-want +got):\n%s", diff)
			}
			if want.Elem().IsZero() {
				t.Errorf("%v takes nothing from the payload", typ)
			}
			if p := got.previous; p != (listener.None{}) && !reflect.ValueOf(p).IsNil() {
				t.Errorf("Old = %v without a previous state", p)
			}
			if got.Partial {
				t.Error("Partial without a previous state")
			}
		})
	}
}

// nameGuilds does what discordgo's Session does before it calls handlers.
func nameGuilds(event any) {
	guild := func(g *discordgo.Guild) {
		for _, c := range g.Channels {
			c.GuildID = g.ID
		}
		for _, c := range g.Threads {
			c.GuildID = g.ID
		}
		for _, m := range g.Members {
			m.GuildID = g.ID
		}
		for _, s := range g.VoiceStates {
			s.GuildID = g.ID
		}
	}
	switch e := event.(type) {
	case *discordgo.Ready:
		for _, g := range e.Guilds {
			guild(g)
		}
	case *discordgo.GuildCreate:
		guild(e.Guild)
	case *discordgo.GuildUpdate:
		guild(e.Guild)
	case *discordgo.GuildMembersChunk:
		for _, m := range e.Members {
			m.GuildID = e.GuildID
		}
	case *discordgo.ThreadListSync:
		for _, c := range e.Threads {
			c.GuildID = e.GuildID
			for _, m := range e.Members {
				if m.ID == c.ID {
					c.Member = m
				}
			}
		}
	}
}

func TestWhatAGuildNestsKnowsItsGuild(t *testing.T) {
	t.Parallel()
	got, err := see(t, listener.Delivery{Type: "GUILD_CREATE", Payload: json.RawMessage(`{"id":"7",
		"channels":[{"id":"1"},null],"threads":[{"id":"2"}],"members":[{"user":{"id":"3"}}],"voice_states":[{"user_id":"3"}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	g := got.payload.(*discordgo.GuildCreate)
	if g.Channels[0].GuildID != "7" || g.Threads[0].GuildID != "7" || g.Members[0].GuildID != "7" || g.VoiceStates[0].GuildID != "7" {
		t.Errorf("guild ids: channel %q, thread %q, member %q, voice state %q, want 7",
			g.Channels[0].GuildID, g.Threads[0].GuildID, g.Members[0].GuildID, g.VoiceStates[0].GuildID)
	}
	got, err = see(t, listener.Delivery{Type: "GUILD_MEMBERS_CHUNK", Payload: json.RawMessage(`{"guild_id":"7","members":[{"user":{"id":"3"}}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if id := got.payload.(*discordgo.GuildMembersChunk).Members[0].GuildID; id != "7" {
		t.Errorf("chunk member: guild %q, want 7", id)
	}
}

func TestSessionIsDecodedWithItsPreviousStates(t *testing.T) {
	t.Parallel()
	previous := expectedStates()
	listeners := listener.New()
	var got seen
	for i := range probes {
		listeners.Add(probes[i].listen(probes[i].name, func(s seen) { got = s }))
	}
	var fields dispatch.Fields
	for _, e := range sessionEnvelopes() {
		state := previous[stateKey{e.Seq(), e.Type}]
		if err := fields.Scan(e.Payload); err != nil {
			t.Fatal(err)
		}
		_, guild := dispatch.Lookup(e.Type).Key(&fields)
		matched := listeners.Match(e.Type)
		if len(matched) != 1 {
			t.Fatalf("%s: %d listeners", e.Type, len(matched))
		}
		d := listener.Delivery{Type: e.Type, GuildID: string(guild), Payload: e.Payload, Previous: state}
		if err := runBound(t, matched[0], d, nil); err != nil {
			t.Fatalf("s=%d: %v", e.Seq(), err)
		}
		if state == nil {
			continue
		}
		if got.Partial || reflect.ValueOf(got.previous).IsNil() {
			t.Errorf("s=%d %s: Partial %v, Old %v", e.Seq(), e.Type, got.Partial, got.previous)
		}
		if id := guildOf(got.previous); id != nil && *id != string(guild) {
			t.Errorf("s=%d %s: Old is of guild %q, want %q", e.Seq(), e.Type, *id, guild)
		}
		if before := beforeOf(got.payload); before != nil && before != got.previous {
			t.Errorf("s=%d %s: discordgo's field for the state before is not Old", e.Seq(), e.Type)
		}
	}
}

type stateKey struct {
	S int64
	T string
}

// expectedStates returns what was known before the recorded session's dispatches.
var expectedStates = sync.OnceValue(func() map[stateKey]json.RawMessage {
	states := map[stateKey]json.RawMessage{}
	r := corpus.Expected()
	defer r.Close()
	for d := json.NewDecoder(r); ; {
		var e struct {
			stateKey
			Previous json.RawMessage
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) && len(states) > 0 {
			return states
		} else if err != nil {
			panic(err)
		}
		states[e.stateKey] = e.Previous
	}
})

// sessionEnvelopes returns the recorded session.
var sessionEnvelopes = sync.OnceValue(corpus.SessionEnvelopes)

func guildOf(previous any) *string {
	switch p := previous.(type) {
	case *discordgo.Channel:
		return &p.GuildID
	case *discordgo.Member:
		return &p.GuildID
	case *discordgo.Message:
		return &p.GuildID
	case *discordgo.VoiceState:
		return &p.GuildID
	case *discordgo.StageInstance:
		return &p.GuildID
	case *discordgo.GuildScheduledEvent:
		return &p.GuildID
	}
	return nil
}

func beforeOf(payload any) any {
	switch p := payload.(type) {
	case *discordgo.ChannelUpdate:
		return p.BeforeUpdate
	case *discordgo.ThreadUpdate:
		return p.BeforeUpdate
	case *discordgo.GuildDelete:
		return p.BeforeDelete
	case *discordgo.GuildMemberUpdate:
		return p.BeforeUpdate
	case *discordgo.MessageUpdate:
		return p.BeforeUpdate
	case *discordgo.MessageDelete:
		return p.BeforeDelete
	case *discordgo.VoiceStateUpdate:
		return p.BeforeUpdate
	}
	return nil
}

func TestScenariosDecode(t *testing.T) {
	t.Parallel()
	// What discordgo's types can't hold, and which member that is.
	bad := map[string]string{
		"125/1": "available_tags[0].id",
		"125/2": "applied_tags[0]",
		"127/2": "activities[0].timestamps.start",
	}
	ran := 0
	for _, s := range corpus.Scenarios() {
		for i, e := range s.Envelopes {
			if e.Op != 0 || probeFor(e.Type) == nil {
				continue
			}
			ran++
			at := fmt.Sprintf("%s/%d", s.Number(), i+1)
			got, err := see(t, listener.Delivery{Type: e.Type, Payload: e.Payload})
			field, wantBad := bad[at]
			delete(bad, at)
			if !wantBad {
				if err != nil {
					t.Errorf("%s: %v", at, err)
				} else if reflect.ValueOf(got.payload).IsNil() {
					t.Errorf("%s: New is nil", at)
				}
				continue
			}
			decode, ok := errors.AsType[*listener.DecodeError](err)
			if !ok || decode.Type != e.Type || decode.Field != field {
				t.Errorf("%s: error %v, want a DecodeError for %s of %s", at, err, field, e.Type)
			}
			if !listener.Discarded(err) {
				t.Errorf("%s: Discarded(%v) = false", at, err)
			}
		}
	}
	if ran < 130 || len(bad) != 0 {
		t.Errorf("%d envelopes ran, expected failures not met: %v", ran, bad)
	}
}

func TestDuplicateKeysAreReadAsTheGatewayReadsThem(t *testing.T) {
	t.Parallel()
	for _, s := range corpus.Scenarios() {
		if s.Number() != "143" {
			continue
		}
		e := s.Envelopes[0]
		var f dispatch.Fields
		if err := f.Scan(e.Payload); err != nil {
			t.Fatal(err)
		}
		got, err := see(t, listener.Delivery{Type: e.Type, Payload: e.Payload})
		if err != nil {
			t.Fatal(err)
		}
		m := got.payload.(*discordgo.MessageDelete)
		if m.ID != string(f.ID(dispatch.ID)) || m.GuildID != string(f.ID(dispatch.GuildID)) {
			t.Errorf("decoded id %q guild %q, scanned id %q guild %q", m.ID, m.GuildID, f.ID(dispatch.ID), f.ID(dispatch.GuildID))
		}
	}
}
