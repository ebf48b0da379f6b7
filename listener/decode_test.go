package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/listener/discord"
)

// Two messages: one whose component discordgo knows, one with a type it does not.
const (
	known   = `{"id":"1","channel_id":"2","content":"known","components":[{"type":1,"components":[{"type":2,"custom_id":"b","label":"B","style":1}]}]}`
	unknown = `{"id":"3","channel_id":"2","content":"unknown","components":[{"type":1,"components":[]},{"type":99,"x":{"type":[1]}}]}`
)

func TestMessageWithUnknownComponentsIsDecodedWithoutThem(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		unknown,
		strings.Replace(unknown, `"components"`, `"Components"`, 1),
		strings.Replace(unknown, `"components"`, `"\u0063omponents"`, 1),
		" " + unknown,
		`{"id":"3","channel_id":"2","content":"unknown","components":{}}`,
		`{"id":"3","channel_id":"2","content":"unknown","components":7}`,
		`{"id":"3","channel_id":"2","content":"unknown","components":[{"type":"button"}]}`,
		`{"id":"3","channel_id":"2","content":"unknown","components":[{"type":1,"components":[{"type":42}]}]}`,
		`{"id":"3","channel_id":"2","content":"unknown","components":[null]}`,
	} {
		got, err := see(t, listener.Delivery{Type: "MESSAGE_CREATE", Payload: json.RawMessage(text)})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		m := got.payload.(*discordgo.MessageCreate)
		if m.ID != "3" || m.Content != "unknown" || len(m.Components) != 0 {
			t.Errorf("%s: decoded as %+v", text, m.Message)
		}
		if string(got.Payload) != text {
			t.Errorf("the payload was changed: %s", got.Payload)
		}
	}
}

func TestOnlyTheMessageAtFaultLosesItsComponents(t *testing.T) {
	t.Parallel()
	reply := strings.TrimSuffix(known, "}") + `,"referenced_message":` + unknown + "}"
	got, err := see(t, listener.Delivery{Type: "MESSAGE_UPDATE", Payload: json.RawMessage(reply)})
	if err != nil {
		t.Fatal(err)
	}
	m := got.payload.(*discordgo.MessageUpdate)
	if len(m.Components) != 1 || m.ReferencedMessage.Content != "unknown" || len(m.ReferencedMessage.Components) != 0 {
		t.Errorf("message has %d components, the one it refers to is %+v", len(m.Components), m.ReferencedMessage)
	}

	pressed := `{"id":"9","type":3,"data":{"custom_id":"b","component_type":2},"message":` + unknown + `}`
	got, err = see(t, listener.Delivery{Type: "INTERACTION_CREATE", Payload: json.RawMessage(pressed)})
	if err != nil {
		t.Fatal(err)
	}
	i := got.payload.(*discordgo.InteractionCreate)
	if i.Message == nil || i.Message.Content != "unknown" || i.MessageComponentData().CustomID != "b" {
		t.Errorf("interaction decoded as %+v with message %+v", i.Interaction, i.Message)
	}

	resolved := `{"id":"9","type":2,"data":{"id":"4","name":"quote","type":3,"resolved":{"messages":{"3":` + unknown + `}}}}`
	got, err = see(t, listener.Delivery{Type: "INTERACTION_CREATE", Payload: json.RawMessage(resolved)})
	if err != nil {
		t.Fatal(err)
	}
	if m := got.payload.(*discordgo.InteractionCreate).ApplicationCommandData().Resolved.Messages["3"]; m == nil || m.Content != "unknown" {
		t.Errorf("resolved message decoded as %+v", m)
	}
}

func TestMessagesAreLookedForToABoundedDepth(t *testing.T) {
	t.Parallel()
	nest := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"id":"1","referenced_message":`, n) + unknown + strings.Repeat(`}`, n))
	}
	if _, err := see(t, listener.Delivery{Type: "MESSAGE_CREATE", Payload: nest(10)}); err != nil {
		t.Errorf("10 levels: %v", err)
	}
	_, err := see(t, listener.Delivery{Type: "MESSAGE_CREATE", Payload: nest(50)})
	if _, ok := errors.AsType[*listener.DecodeError](err); !ok {
		t.Errorf("50 levels: error %v, want a DecodeError", err)
	}
}

func TestNothingStaysOfADecodingThatFailed(t *testing.T) {
	t.Parallel()
	type note struct {
		Components []int              `json:"components"`
		Message    *discordgo.Message `json:"message"`
	}
	const kind listener.Kind[*note, listener.None] = "MESSAGE_CREATE"
	var got *note
	l := kind.Handle("a", func(_ context.Context, e *listener.Event[*note, listener.None]) error {
		got = e.New
		return nil
	})
	// The text that decodes has neither list of components any more.
	if err := run(t, l, listener.Delivery{Type: "MESSAGE_CREATE", Payload: json.RawMessage(`{"components":[1,2],"message":` + unknown + `}`)}, nil); err != nil {
		t.Fatal(err)
	}
	if got.Components != nil || got.Message.Content != "unknown" {
		t.Errorf("decoded as %+v", got)
	}
}

func TestComponentsOfOtherEventsAreMembersLikeAny(t *testing.T) {
	t.Parallel()
	type machine struct {
		Components []struct{ Type int }
		Count      int
	}
	for _, eventType := range []string{"machines.built", "MACHINE_BUILT", "CHANNEL_UPDATE"} {
		l := listener.Kind[machine, machine](eventType).Handle("a", func(_ context.Context, e *listener.Event[machine, machine]) error {
			if len(e.New.Components) != 1 || len(e.Old.Components) != 1 || e.Partial {
				t.Errorf("%s: decoded as %+v and %+v, Partial %v", eventType, e.New, e.Old, e.Partial)
			}
			return nil
		})
		const whole = `{"components":[{"type":99}],"count":1}`
		d := listener.Delivery{Type: eventType, Payload: json.RawMessage(whole), Previous: json.RawMessage(whole)}
		if err := run(t, l, d, nil); err != nil {
			t.Errorf("%s: %v", eventType, err)
		}
		d.Payload = json.RawMessage(`{"components":[{"type":"cog"}],"count":1}`)
		decode, ok := errors.AsType[*listener.DecodeError](run(t, l, d, nil))
		if !ok || decode.Field != "components[0].type" {
			t.Errorf("%s: a component of another shape: error %v, want a DecodeError that names it", eventType, decode)
		}
	}
}

func TestModalWithUnknownComponentsIsDecodedWithoutThem(t *testing.T) {
	t.Parallel()
	modal := `{"id":"9","type":5,"data":{"custom_id":"form","components":[{"type":18,"component":{"type":4,"custom_id":"why","value":"because"}}]}}`
	got, err := see(t, listener.Delivery{Type: "INTERACTION_CREATE", Payload: json.RawMessage(modal)})
	if err != nil {
		t.Fatal(err)
	}
	data := got.payload.(*discordgo.InteractionCreate).ModalSubmitData()
	if data.CustomID != "form" || len(data.Components) != 0 {
		t.Errorf("decoded as %+v", data)
	}
	if raw, ok := got.Field("data"); !ok || !strings.Contains(string(raw), "because") {
		t.Errorf("the payload's data is %s", raw)
	}
}

func TestPreviousState(t *testing.T) {
	t.Parallel()
	const update = `{"id":"1","channel_id":"2","guild_id":"5","content":"new"}`
	tests := []struct {
		name, eventType, payload, previous string
		want                               any
		partial                            bool
	}{
		{"none", "MESSAGE_UPDATE", update, "", (*discordgo.Message)(nil), false},
		{"null", "MESSAGE_UPDATE", update, "null", (*discordgo.Message)(nil), false},
		{"one", "GUILD_ROLE_DELETE", `{"guild_id":"5","role_id":"1"}`, `{"id":"1","name":"r"}`, &discordgo.Role{ID: "1", Name: "r"}, false},
		{"without its guild", "VOICE_STATE_UPDATE", `{"guild_id":"5","user_id":"1","channel_id":null}`, `{"user_id":"1","channel_id":"2"}`,
			&discordgo.VoiceState{GuildID: "5", UserID: "1", ChannelID: "2"}, false},
		{"of another shape", "GUILD_ROLE_DELETE", `{"guild_id":"5","role_id":"1"}`, `{"id":"1","position":"high"}`, (*discordgo.Role)(nil), true},
		{"no JSON", "GUILD_ROLE_DELETE", `{"guild_id":"5","role_id":"1"}`, `{"id":"1",`, (*discordgo.Role)(nil), true},
		{"a list", "GUILD_EMOJIS_UPDATE", `{"guild_id":"5","emojis":[]}`, `[{"id":"1"}]`, []*discordgo.Emoji{{ID: "1"}}, false},
		{"an empty list", "GUILD_EMOJIS_UPDATE", `{"guild_id":"5","emojis":[]}`, `[]`, []*discordgo.Emoji{}, false},
		{"a list of another shape", "GUILD_EMOJIS_UPDATE", `{"guild_id":"5","emojis":[]}`, `[{"id":1}]`, []*discordgo.Emoji(nil), true},
		{"unknown components", "MESSAGE_DELETE", update, unknown,
			&discordgo.Message{ID: "3", ChannelID: "2", GuildID: "5", Content: "unknown", Components: []discordgo.MessageComponent{}}, true},
		{"unknown components in a list", "MESSAGE_DELETE_BULK", `{"guild_id":"5","channel_id":"2","ids":["3"]}`, "[" + unknown + "]",
			[]*discordgo.Message{{ID: "3", ChannelID: "2", GuildID: "5", Content: "unknown", Components: []discordgo.MessageComponent{}}}, true},
		{"a channel with its status", "VOICE_CHANNEL_STATUS_UPDATE", `{"guild_id":"5","id":"1","status":"new"}`, `{"id":"1","name":"deck","status":"old"}`,
			&discord.VoiceChannel{Channel: &discordgo.Channel{ID: "1", GuildID: "5", Name: "deck"}, Status: "old"}, false},
		{"threads that went", "THREAD_LIST_SYNC", `{"guild_id":"5","threads":[]}`, `[{"id":"1"}]`, []*discordgo.Channel{{ID: "1", GuildID: "5"}}, false},
		{"an emoji's reaction", "MESSAGE_REACTION_REMOVE_EMOJI", `{"message_id":"1","emoji":{"name":"x"}}`, `{"emoji":{"id":null,"name":"x"},"count":2,"me":true}`,
			&discordgo.MessageReactions{Count: 2, Me: true, Emoji: &discordgo.Emoji{Name: "x"}}, false},
		{"a ban", "GUILD_BAN_REMOVE", `{"guild_id":"5","user":{"id":"1"}}`, `{"guild_id":"5","user":{"id":"1"}}`, &discordgo.GuildBan{User: &discordgo.User{ID: "1"}}, false},
		{"of a kind without", "MESSAGE_CREATE", update, `{"id":"1"}`, listener.None{}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := see(t, listener.Delivery{Type: test.eventType, GuildID: "5", Payload: json.RawMessage(test.payload), Previous: json.RawMessage(test.previous)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got.previous); diff != "" {
				t.Errorf("Old (-want +got):\n%s", diff)
			}
			if got.Partial != test.partial {
				t.Errorf("Partial = %v, want %v", got.Partial, test.partial)
			}
		})
	}
}

func TestWhatTheGatewayCalledPartialStaysPartial(t *testing.T) {
	t.Parallel()
	got, err := see(t, listener.Delivery{Type: "GUILD_ROLE_DELETE", Partial: true, Payload: json.RawMessage(`{"role_id":"1"}`), Previous: json.RawMessage(`{"id":"1"}`)})
	if err != nil || !got.Partial {
		t.Errorf("Partial = %v, error %v", got.Partial, err)
	}
}

func TestUndecodablePayload(t *testing.T) {
	t.Parallel()
	members := `{"id":"1","members":[{"joined_at":"2025-11-04T15:00:00Z"},{"joined_at":"2025-11-04T15:00:00Z","user":{"id":"2"},"roles":["1",2]}]}`
	tests := []struct{ name, eventType, payload, field string }{
		{"a member deep inside", "GUILD_CREATE", members, "members[1].roles[1]"},
		{"a time", "GUILD_MEMBER_ADD", `{"guild_id":"1","joined_at":"yesterday"}`, "joined_at"},
		{"a message", "MESSAGE_CREATE", `{"id":"1","author":{"id":2}}`, "author.id"},
		{"a message that has unknown components too", "MESSAGE_CREATE", strings.TrimSuffix(unknown, "}") + `,"timestamp":5}`, "timestamp"},
		{"an embedded struct", "CHANNEL_UPDATE", `{"id":5}`, "id"},
		{"no object", "MESSAGE_CREATE", `[]`, ""},
		{"null", "MESSAGE_CREATE", `null`, ""},
		{"nothing", "MESSAGE_CREATE", ``, ""},
		{"broken off", "MESSAGE_CREATE", `{"id":"1","content":"a`, ""},
		{"not JSON to the letter", "MESSAGE_CREATE", `{"id":"1","flags":1e}`, "flags"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := see(t, listener.Delivery{Type: test.eventType, Payload: json.RawMessage(test.payload)})
			decode, ok := errors.AsType[*listener.DecodeError](err)
			if !ok {
				t.Fatalf("error %v, want a DecodeError", err)
			}
			if decode.Type != test.eventType || decode.Field != test.field || decode.Err == nil {
				t.Errorf("type %q field %q error %v, want %q and %q", decode.Type, decode.Field, decode.Err, test.eventType, test.field)
			}
			if !strings.Contains(err.Error(), test.eventType) || !strings.Contains(err.Error(), test.field) {
				t.Errorf("error %q does not name type and field", err)
			}
			if !listener.Discarded(err) {
				t.Error("Discarded = false: it would be tried again")
			}
		})
	}
}

func TestEmbeddedStructsAreThere(t *testing.T) {
	t.Parallel()
	for i := range probes {
		got, err := see(t, listener.Delivery{Type: probes[i].name, Payload: json.RawMessage(`{}`)})
		if err != nil {
			t.Errorf("%s: %v", probes[i].name, err)
			continue
		}
		switch p := got.payload.(type) {
		case *discordgo.GuildMemberAdd:
			_ = p.Nick
		case *discordgo.ChannelCreate:
			_ = p.Name
		case *discordgo.MessageCreate:
			_ = p.Content
		case *discordgo.InteractionCreate:
			_ = p.Token
		}
	}
}

// counted counts how often it is decoded.
type counted struct{ Text string }

var decodes atomic.Int64

func (c *counted) UnmarshalJSON(data []byte) error {
	decodes.Add(1)
	return json.Unmarshal(data, &c.Text)
}

func TestAnEntryIsDecodedOnceForAKind(t *testing.T) {
	const kind listener.Kind[*counted, listener.None] = "lantern.lit"
	var (
		r    = listener.New()
		mu   sync.Mutex
		news = map[*counted]int{}
	)
	handle := func(_ context.Context, e *listener.Event[*counted, listener.None]) error {
		mu.Lock()
		defer mu.Unlock()
		news[e.New]++
		return nil
	}
	r.Add(
		kind.Handle("a", handle),
		kind.Handle("b", handle),
		listener.Kind[*counted, listener.None]("lantern.lit").Handle("c", handle),
		listener.Handle("raw", ">", func(_ context.Context, d *listener.Delivery) error {
			if string(d.Payload) != `"x"` {
				t.Errorf("raw payload %s", d.Payload)
			}
			return nil
		}),
	)
	decodes.Store(0)
	d := listener.Delivery{Type: "lantern.lit", Payload: json.RawMessage(`"x"`)}
	var shared listener.Decoded
	var wg sync.WaitGroup
	for range 4 {
		for _, b := range r.Match("lantern.lit") {
			wg.Go(func() {
				if err := runBound(t, b, d, &shared); err != nil {
					t.Errorf("%s: %v", b.Name(), err)
				}
			})
		}
	}
	wg.Wait()
	if n := decodes.Load(); n != 1 || len(news) != 1 {
		t.Errorf("decoded %d times to %d values, want once", n, len(news))
	}

	var next listener.Decoded
	if err := runBound(t, r.Match("lantern.lit")[0], d, &next); err != nil || decodes.Load() != 2 {
		t.Errorf("another entry: decoded %d times in all, error %v, want 2", decodes.Load(), err)
	}
	if err := runBound(t, r.Match("lantern.lit")[3], d, &listener.Decoded{}); err != nil || decodes.Load() != 2 {
		t.Errorf("a raw listener: decoded %d times in all, error %v, want 2", decodes.Load(), err)
	}
}

func TestKindsOfOneTypeAreDecodedApart(t *testing.T) {
	t.Parallel()
	type id struct {
		ID string `json:"id"`
	}
	const other listener.Kind[id, *id] = "MESSAGE_UPDATE"
	r := listener.New()
	var mine id
	var theirs *discordgo.MessageUpdate
	r.Add(
		other.Handle("mine", func(_ context.Context, e *listener.Event[id, *id]) error {
			mine = e.New
			if e.Old == nil || e.Old.ID != "1" {
				t.Errorf("Old = %v", e.Old)
			}
			return nil
		}),
		listener.MessageUpdate.Handle("theirs", func(_ context.Context, e *listener.Event[*discordgo.MessageUpdate, *discordgo.Message]) error {
			theirs = e.New
			return nil
		}),
	)
	var shared listener.Decoded
	d := listener.Delivery{Type: "MESSAGE_UPDATE", Payload: json.RawMessage(known), Previous: json.RawMessage(known)}
	for _, b := range r.Match(d.Type) {
		if err := runBound(t, b, d, &shared); err != nil {
			t.Fatal(err)
		}
	}
	if mine.ID != "1" || theirs == nil || theirs.Content != "known" {
		t.Errorf("decoded %v and %v", mine, theirs)
	}
}

func TestWhatAMiddlewareHandsOnIsDecoded(t *testing.T) {
	t.Parallel()
	const kind listener.Kind[string, listener.None] = "note"
	var got []string
	keep := func(_ context.Context, e *listener.Event[string, listener.None]) error {
		got = append(got, e.New)
		return nil
	}
	upper := func(next listener.Func) listener.Func {
		return func(ctx context.Context, d *listener.Delivery) error {
			other := *d
			other.Payload = json.RawMessage(strings.ToUpper(string(d.Payload)))
			return next(ctx, &other)
		}
	}
	r := listener.New()
	r.Add(
		kind.Handle("plain", keep),
		kind.Handle("upper", keep).With(listener.Options{Use: []listener.Middleware{upper}}),
		kind.Handle("plain-again", keep),
	)
	var shared listener.Decoded
	for _, b := range r.Match("note") {
		if err := runBound(t, b, listener.Delivery{Type: "note", Payload: json.RawMessage(`"a"`)}, &shared); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"a", "A", "a"}, got); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
}

// explosive panics when it is decoded.
type explosive struct{}

func (*explosive) UnmarshalJSON([]byte) error { panic("boom") }

func TestPanicInADecoder(t *testing.T) {
	t.Parallel()
	const kind listener.Kind[*explosive, listener.None] = "bomb"
	r := listener.New()
	r.Add(kind.Handle("a", func(context.Context, *listener.Event[*explosive, listener.None]) error {
		t.Error("the listener was called")
		return nil
	}))
	var shared listener.Decoded
	b := r.Match("bomb")[0]
	d := listener.Delivery{Type: "bomb", Payload: json.RawMessage(`{}`)}
	if _, ok := errors.AsType[*listener.PanicError](runBound(t, b, d, &shared)); !ok {
		t.Error("the first run: no PanicError")
	}
	if err := runBound(t, b, d, &shared); !listener.Discarded(err) {
		t.Errorf("the second run: error %v, want a discarded one", err)
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, eventType := range []string{"MESSAGE_CREATE", "GUILD_MEMBER_UPDATE", "TYPING_START"} {
		r := listener.New()
		r.Add(probeFor(eventType).listen("probe", func(seen) {}))
		bound := r.Match(eventType)[0]
		ended := func(err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		d := listener.Delivery{Type: eventType, Payload: payload(eventType)}
		b.Run(eventType, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(d.Payload)))
			for b.Loop() {
				bound.Run(b.Context(), &d, new(listener.Decoded), ended)
			}
		})
		b.Run(eventType+"/again", func(b *testing.B) {
			b.ReportAllocs()
			var shared listener.Decoded
			for b.Loop() {
				bound.Run(b.Context(), &d, &shared, ended)
			}
		})
	}
	r := listener.New()
	r.Add(listener.Handle("raw", ">", func(context.Context, *listener.Delivery) error { return nil }))
	bound := r.Match("MESSAGE_CREATE")[0]
	b.Run("raw", func(b *testing.B) {
		b.ReportAllocs()
		d := listener.Delivery{Type: "MESSAGE_CREATE", Payload: payload("MESSAGE_CREATE")}
		var shared listener.Decoded
		for b.Loop() {
			bound.Run(b.Context(), &d, &shared, func(error) {})
		}
	})
}
