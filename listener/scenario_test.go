package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/listener"
)

// played returns what typed listeners get of a scenario's dispatches, each with the
// payload of the one before it as its state, if they are of one entity.
func played(t *testing.T, number string) (all []seen) {
	t.Helper()
	for _, s := range corpus.Scenarios() {
		if s.Number() != number {
			continue
		}
		var last json.RawMessage
		for _, e := range s.Envelopes {
			d := listener.Delivery{Type: e.Type, GuildID: "900100000000000001", Payload: e.Payload}
			if p := probeFor(e.Type); p == nil {
				t.Fatalf("no kind %q", e.Type)
			}
			if strings.HasSuffix(e.Type, "_UPDATE") || strings.HasSuffix(e.Type, "_DELETE") {
				d.Previous = last
			}
			got, err := see(t, d)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, got)
			last = e.Payload
		}
	}
	if len(all) == 0 {
		t.Fatalf("scenario %s is not in the corpus", number)
	}
	return all
}

// has reports what Field says of a member: its text, "absent" for none.
func has(d listener.Delivery, name string) string {
	text, ok := d.Field(name)
	if !ok {
		return "absent"
	}
	return string(text)
}

func TestScenario073EmbedOnlyUpdate(t *testing.T) {
	t.Parallel()
	got := played(t, "073")[1]
	update := got.payload.(*discordgo.MessageUpdate)
	if update.Author != nil || update.Content != "" || len(update.Embeds) != 1 {
		t.Errorf("New = %+v", update.Message)
	}
	if has(got.Delivery, "content") != "absent" || has(got.Delivery, "embeds") == "absent" {
		t.Errorf("content is %s, embeds are %s", has(got.Delivery, "content"), has(got.Delivery, "embeds"))
	}
	merged, err := got.merged()
	m, _ := merged.(*discordgo.Message)
	if err != nil || m.Author == nil || m.Content == "" || len(m.Embeds) != 1 {
		t.Errorf("Merged = %+v, %v", m, err)
	}
}

func TestScenario079ReplyNullVsAbsent(t *testing.T) {
	t.Parallel()
	all := played(t, "079")
	if one, two := has(all[0].Delivery, "referenced_message"), has(all[1].Delivery, "referenced_message"); one != "null" || two != "absent" {
		t.Errorf("referenced_message is %s and %s, want null and absent", one, two)
	}
}

func TestScenario095WebhookAuthorNotAUser(t *testing.T) {
	t.Parallel()
	all := played(t, "095")
	one, two := all[0].payload.(*discordgo.MessageCreate), all[1].payload.(*discordgo.MessageCreate)
	if one.Author.ID != two.Author.ID || one.Author.Username == two.Author.Username || one.Member != nil {
		t.Errorf("authors %+v and %+v", one.Author, two.Author)
	}
}

// A child that a GUILD_CREATE nested does not name its guild; its Old does.
func TestScenario107ChildLacksGuildID(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ eventType, payload, previous string }{
		{"CHANNEL_DELETE", `{"id":"2","guild_id":"7"}`, `{"id":"2","name":"harbor"}`},
		{"GUILD_MEMBER_REMOVE", `{"guild_id":"7","user":{"id":"3"}}`, `{"user":{"id":"3"}}`},
		{"VOICE_STATE_UPDATE", `{"guild_id":"7","user_id":"3","channel_id":null}`, `{"user_id":"3","channel_id":"2"}`},
		{"THREAD_DELETE", `{"id":"4","guild_id":"7"}`, `{"id":"4"}`},
	} {
		got, err := see(t, listener.Delivery{Type: test.eventType, GuildID: "7", Payload: json.RawMessage(test.payload), Previous: json.RawMessage(test.previous)})
		if err != nil {
			t.Fatal(err)
		}
		if id := guildOf(got.previous); id == nil || *id != "7" {
			t.Errorf("%s: Old is of guild %v, want 7", test.eventType, id)
		}
	}
}

func TestScenario111PinsTimestampForms(t *testing.T) {
	t.Parallel()
	want := []string{`"2031-04-05T06:07:08.642318+00:00"`, `"2031-04-05T06:07:08.642000+00:00"`, "null", "absent"}
	for i, got := range played(t, "111") {
		if text := has(got.Delivery, "last_pin_timestamp"); text != want[i] {
			t.Errorf("envelope %d: last_pin_timestamp is %s, want %s", i, text, want[i])
		}
		pins := got.payload.(*discordgo.ChannelPinsUpdate)
		if want := strings.Trim(strings.NewReplacer("null", "", "absent", "").Replace(want[i]), `"`); pins.LastPinTimestamp != want {
			t.Errorf("envelope %d: LastPinTimestamp = %q, want %q", i, pins.LastPinTimestamp, want)
		}
	}
}

func TestScenario113TypingWithoutMember(t *testing.T) {
	t.Parallel()
	typing := played(t, "113")[0].payload.(*discordgo.TypingStart)
	if typing.GuildID == "" || typing.UserID == "" {
		t.Errorf("New = %+v", typing)
	}
}

func TestScenario115EmojiIDNull(t *testing.T) {
	t.Parallel()
	all := played(t, "115")
	one, two := all[0].payload.(*discordgo.MessageReactionAdd), all[1].payload.(*discordgo.MessageReactionAdd)
	if one.Emoji.ID != "" || one.Emoji.Name == two.Emoji.Name || one.Emoji.Name == "" {
		t.Errorf("emojis %+v and %+v", one.Emoji, two.Emoji)
	}
}

func TestScenario117UnknownChannelType(t *testing.T) {
	t.Parallel()
	g := played(t, "117")[0].payload.(*discordgo.GuildCreate)
	types := map[discordgo.ChannelType]bool{}
	for _, c := range append(g.Channels, g.Threads...) {
		types[c.Type] = true
	}
	for _, want := range []discordgo.ChannelType{0, 5, 13, 15, 16, 42, 77} {
		if !types[want] {
			t.Errorf("no channel of type %d: %v", want, types)
		}
	}
}

func TestScenario119StageEventNames(t *testing.T) {
	t.Parallel()
	all := played(t, "119")
	for i, topic := range []string{"", "fog", "fog 2"} {
		old, _ := all[i].previous.(*discordgo.StageInstance)
		if (old == nil) != (topic == "") || old != nil && old.Topic != topic {
			t.Errorf("%s: Old = %+v, want topic %q", all[i].Type, old, topic)
		}
	}
}

func TestScenario121NegativePosition(t *testing.T) {
	t.Parallel()
	g := played(t, "121")[0].payload.(*discordgo.GuildCreate)
	if len(g.Roles) == 0 || g.Roles[0].Position != -1 || len(g.Channels) == 0 {
		t.Errorf("roles %+v", g.Roles)
	}
}

func TestScenario123NonceForms(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	for _, got := range played(t, "123") {
		kinds[has(got.Delivery, "nonce")[:1]] = true
	}
	for _, want := range []string{`"`, "1", "t", "n", "a", "{"} { // a string, a number, true, null, absent, an object
		if !kinds[want] {
			t.Errorf("no nonce that begins with %q: %v", want, kinds)
		}
	}
}

// Typed listeners can't hold these; they learn which member it is, and raw ones get
// everything.
func TestScenario125ForumTagIntegerID(t *testing.T) {
	t.Parallel()
	for _, number := range []string{"125", "127"} {
		for _, s := range corpus.Scenarios() {
			if s.Number() != number {
				continue
			}
			for _, e := range s.Envelopes {
				d := listener.Delivery{Type: e.Type, Payload: e.Payload}
				_, err := see(t, d)
				if decode, ok := errors.AsType[*listener.DecodeError](err); err != nil && (!ok || decode.Field == "" || !listener.Discarded(err)) {
					t.Errorf("%s: %v, want a DecodeError that names the member", s.Name, err)
				}
				ran := false
				raw := listener.Handle("raw", ">", func(_ context.Context, got *listener.Delivery) error {
					ran = string(got.Payload) == string(e.Payload)
					return nil
				})
				if err := run(t, raw, d, nil); err != nil || !ran {
					t.Errorf("%s: a raw listener: %v, with the payload: %v", s.Name, err, ran)
				}
			}
		}
	}
}

func TestScenario135NullMeansTrue(t *testing.T) {
	t.Parallel()
	update := played(t, "135")[2]
	if text, ok := update.Field("role"); !ok || !strings.Contains(string(text), `"premium_subscriber":null`) {
		t.Errorf("role = %s", text)
	}
	old, err := see(t, listener.Delivery{Type: "GUILD_ROLE_DELETE", Payload: json.RawMessage(`{"role_id":"1"}`), Previous: json.RawMessage(`{"id":"1","tags":{"premium_subscriber":null}}`)})
	if err != nil || !strings.Contains(string(old.Previous), `{"premium_subscriber":null}`) {
		t.Errorf("Previous = %s, %v", old.Previous, err)
	}
}

func TestScenario137TimestampPrecision(t *testing.T) {
	t.Parallel()
	want := []string{"2031-04-05T06:07:08Z", "2031-04-05T06:07:08.1Z", "2031-04-05T06:07:08.123456Z", "2031-04-05T06:07:08.123Z", "2031-04-05T06:07:08.123Z"}
	for i, got := range played(t, "137") {
		m := got.payload.(*discordgo.MessageCreate)
		if at := m.Timestamp.UTC().Format(time.RFC3339Nano); at != want[i] {
			t.Errorf("message %d: at %s, want %s", i, at, want[i])
		}
		if _, offset := m.Timestamp.Zone(); i == 4 && offset != 2*60*60 {
			t.Errorf("message %d: zone %v, want the one it was sent with", i, m.Timestamp.Location())
		}
	}
}

func TestScenario139LoneSurrogate(t *testing.T) {
	t.Parallel()
	got := played(t, "139")[0]
	m := got.payload.(*discordgo.MessageCreate)
	if want := "a\ufffd b\ufffd \U0001f600 \ufffd\ufffd \U0010ffff"; m.Content != want || !utf8.ValidString(m.Content) {
		t.Errorf("Content = %q, want %q", m.Content, want)
	}
	old, err := see(t, listener.Delivery{Type: "MESSAGE_DELETE", Payload: json.RawMessage(`{"id":"1"}`), Previous: got.Payload})
	if err != nil || old.previous.(*discordgo.Message).Content != m.Content {
		t.Errorf("Old differs from New: %v, %v", old.previous, err)
	}
}

func TestScenario167EmptyVsNilSlice(t *testing.T) {
	t.Parallel()
	got := played(t, "167")
	none := got[1].payload.(*discordgo.GuildMemberUpdate)
	if none.Roles == nil || len(none.Roles) != 0 || has(got[1].Delivery, "roles") != "[]" {
		t.Errorf("Roles = %#v, %s", none.Roles, has(got[1].Delivery, "roles"))
	}
	if old := got[2].previous.(*discordgo.Member); old.Roles == nil || len(old.Roles) != 0 {
		t.Errorf("Old.Roles = %#v, want an empty list", old.Roles)
	}
}

func TestScenario169EmbeddedPointerAndReuse(t *testing.T) {
	t.Parallel()
	all := played(t, "169")
	one, two := all[0].payload.(*discordgo.MessageUpdate), all[1].payload.(*discordgo.MessageUpdate)
	if one == two || one.Message == two.Message {
		t.Error("two events share a message")
	}
	want := &discordgo.Message{ID: "900500000000000002", ChannelID: "900200000000000002", Components: []discordgo.MessageComponent{}}
	if diff := cmp.Diff(want, two.Message); diff != "" {
		t.Errorf("the second has something of the first (-want +got):\n%s", diff)
	}
}
