package listener_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener"
)

// lacking are the dispatches for which discordgo calls no typed handler.
var lacking = map[string]bool{
	"CHANNEL_INFO": true, "GUILD_SOUNDBOARD_SOUNDS_UPDATE": true, "GUILD_SOUNDBOARD_SOUND_CREATE": true,
	"GUILD_SOUNDBOARD_SOUND_DELETE": true, "GUILD_SOUNDBOARD_SOUND_UPDATE": true, "MESSAGE_REACTION_REMOVE_EMOJI": true,
	"RATE_LIMITED": true, "SOUNDBOARD_SOUNDS": true, "STAGE_INSTANCE_CREATE": true, "STAGE_INSTANCE_DELETE": true,
	"STAGE_INSTANCE_UPDATE": true, "VOICE_CHANNEL_EFFECT_SEND": true, "VOICE_CHANNEL_START_TIME_UPDATE": true,
	"VOICE_CHANNEL_STATUS_UPDATE": true,
}

// notOurs is what discordgo's State puts into the structs of handlers out of
// lists and counts of its own, which the state before does not have.
var notOurs = cmp.Options{
	cmpopts.IgnoreFields(discordgo.Channel{}, "Messages"),
	of[*discordgo.GuildUpdate](cmpopts.IgnoreFields(discordgo.Guild{},
		"MemberCount", "Members", "Presences", "Channels", "Threads", "VoiceStates")),
	of[*discordgo.GuildDelete](cmpopts.IgnoreFields(discordgo.Guild{},
		"MemberCount", "Members", "Presences", "Channels", "Threads", "VoiceStates", "Roles", "Emojis", "Stickers", "StageInstances")),
}

// of applies an option to events of one type.
func of[T any](option cmp.Option) cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		// The event is an interface's value, as handlers of any event get it.
		return len(p) > 1 && p.Index(1).Type() == reflect.TypeFor[T]() || p.Index(0).Type() == reflect.TypeFor[T]()
	}, option)
}

// Where discordgo is wrong.
const (
	component = "discordgo gives up the data of a modal with a component it does not know"
	direct    = "State does not know the channel of a direct message"
	merged    = "State merges eight fields of a message, reactions not among them"
	archived  = "State forgets archived threads when threads are synced"
	joined    = "State takes a guild's joined_at from a GUILD_UPDATE, which has none"
	outage    = "State forgets a guild that is in an outage"
	stateless = "State, which is off here so that it adds no states before, names members their guild and synced threads their member"
)

// TestHandlersGetWhatDiscordgoGivesThem has a discordgo Session of its own read
// dispatches from a gateway, and compares what it hands to its handlers with what
// AddHandler hands to ours.
func TestHandlersGetWhatDiscordgoGivesThem(t *testing.T) {
	t.Parallel()
	session := sessionEnvelopes()
	tests := []struct {
		name       string
		ready      json.RawMessage
		dispatches []corpus.Envelope
		states     map[stateKey]json.RawMessage // nil: none is known
		differ     map[int64]string             // by sequence, and why
	}{
		{"one of each", payload("READY"), corpus.Dispatches(), nil, map[int64]string{22: stateless, 68: stateless}},
		{"a session", session[0].Payload, session, expectedStates(), map[int64]string{
			115: component, 116: direct, 647: merged, 755: merged, 773: archived, 847: joined, 862: component,
			961: outage, 1044: outage, 1090: outage, 1098: outage, 1188: outage, 1229: outage, 1276: outage,
			1331: outage, 1433: outage, 1434: outage, 1487: outage,
		}},
	}
	discord := gatewaytest.New(gatewaytest.Config{Shards: len(tests), Ready: func(shard, _ int) json.RawMessage { return tests[shard].ready }})
	if err := discord.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discord.Close() })
	discordgo.APIVersion = "10" // no other test dials
	discordgo.EndpointGateway = discord.URL() + "/gateway"
	for shard, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newComparison(t, test.states)
			c.session.ShardID, c.session.ShardCount = shard, len(tests)
			if err := c.session.Open(); err != nil {
				t.Fatal(err)
			}
			defer c.session.Close()
			for _, e := range test.dispatches {
				if e.Type == "READY" {
					continue
				}
				if _, err := discord.Send(shard, e.Type, e.Payload); err != nil {
					t.Fatal(err)
				}
			}
			for range test.dispatches {
				d := <-c.compared
				switch why, may := test.differ[d.sequence]; {
				case may && d.diff == "":
					t.Errorf("s=%d %s: no difference, although %s", d.sequence, d.eventType, why)
				case !may && d.diff != "":
					t.Errorf("s=%d %s: ours differs (-theirs +ours):\n%.3000s", d.sequence, d.eventType, d.diff)
				}
			}
		})
	}
}

type compared struct {
	sequence  int64
	eventType string
	diff      string
}

type comparison struct {
	session  *discordgo.Session
	compared chan compared // has room for all
}

func newComparison(t *testing.T, states map[stateKey]json.RawMessage) *comparison {
	s, err := discordgo.New("Bot token")
	if err != nil {
		t.Fatal(err)
	}
	s.LogLevel = -1 // it complains of modals it can't read
	s.SyncEvents = true
	s.StateEnabled = states != nil
	s.State.MaxMessageCount = 1000
	c := &comparison{session: s, compared: make(chan compared, 4096)}

	var ours, theirs any
	keep := func(kept *any) func(*discordgo.Session, any) {
		return func(_ *discordgo.Session, e any) {
			if _, raw := e.(*discordgo.Event); !raw {
				*kept = e
			}
		}
	}
	r := listener.New()
	r.SetSession(s)
	r.AddHandler(keep(&ours))
	s.AddHandler(keep(&theirs))
	s.AddHandler(func(_ *discordgo.Session, raw *discordgo.Event) { // behind its struct
		got := compared{sequence: raw.Sequence, eventType: raw.Type}
		defer func() {
			ours, theirs = nil, nil
			c.compared <- got
		}()
		var f dispatch.Fields
		if err := f.Scan(raw.RawData); err != nil {
			t.Error(err)
		}
		_, guild := dispatch.Lookup(raw.Type).Key(&f)
		d := listener.Delivery{Type: raw.Type, GuildID: string(guild), Payload: raw.RawData, Previous: states[stateKey{raw.Sequence, raw.Type}]}
		if err := runBound(t, r.All()[0], d, nil); err != nil {
			t.Errorf("s=%d %s: %v", raw.Sequence, raw.Type, err)
		}
		switch {
		case theirs == nil && !lacking[raw.Type]:
			t.Errorf("discordgo has no struct for %s", raw.Type)
		case theirs != nil && !reflect.DeepEqual(theirs, ours): // cmp is slow
			got.diff = cmp.Diff(theirs, ours, notOurs)
		}
	})
	return c
}
