package listener_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/listener"
)

// A handlerProbe makes discordgo handlers for one event that show what they are
// called with.
type handlerProbe struct {
	event   string
	payload reflect.Type
	plain   func(saw func(*discordgo.Session, any)) any
	failing func(saw func(*discordgo.Session, any) error) any
	empty   [2]any // nil functions
}

func handlerProbeOf[T any](event string) handlerProbe {
	var plain func(*discordgo.Session, *T)
	var failing func(*discordgo.Session, *T) error
	return handlerProbe{
		event:   event,
		payload: reflect.TypeFor[*T](),
		plain: func(saw func(*discordgo.Session, any)) any {
			return func(s *discordgo.Session, e *T) { saw(s, e) }
		},
		failing: func(saw func(*discordgo.Session, any) error) any {
			return func(s *discordgo.Session, e *T) error { return saw(s, e) }
		},
		empty: [2]any{plain, failing},
	}
}

func TestAddHandlerTakesEveryEvent(t *testing.T) {
	t.Parallel()
	session := new(discordgo.Session)
	for i := range handlerProbes {
		p := &handlerProbes[i]
		var got []any
		r := listener.New()
		r.SetSession(session)
		r.AddHandler(p.plain(func(s *discordgo.Session, e any) {
			if s != session {
				t.Errorf("%v: called with another session", p.payload)
			}
			got = append(got, e)
		}))
		r.AddHandler(p.failing(func(_ *discordgo.Session, e any) error {
			got = append(got, e)
			return io.EOF
		}))
		label := "handler-" + strings.ReplaceAll(strings.ToLower(p.event), "_", "-")
		if diff := cmp.Diff([]string{label + "-1", label + "-2"}, names(r.Match(p.event))); diff != "" {
			t.Errorf("%v: listeners (-want +got):\n%s", p.payload, diff)
			continue
		}
		var shared listener.Decoded
		for i, want := range []error{nil, io.EOF} {
			b := r.All()[i]
			if o := b.Options(); !o.Unordered || o.Timeout != 0 || b.Pattern() != p.event {
				t.Errorf("%s: pattern %q, options %+v", b.Name(), b.Pattern(), o)
			}
			if err := runBound(t, b, listener.Delivery{Type: p.event, Payload: payload(p.event)}, &shared); err != want {
				t.Errorf("%s: ended with %v, want %v", b.Name(), err, want)
			}
		}
		if len(got) != 2 || reflect.TypeOf(got[0]) != p.payload || reflect.ValueOf(got[0]).IsNil() {
			t.Errorf("%v: called with %T", p.payload, got)
			continue
		}
		if got[0] == got[1] {
			t.Errorf("%v: two handlers share a struct", p.payload)
		}
		if diff := cmp.Diff(got[0], got[1]); diff != "" {
			t.Errorf("%v: two handlers see two things:\n%s", p.payload, diff)
		}
		for _, nothing := range p.empty {
			if text := panics(func() { listener.New().AddHandler(nothing) }); !strings.Contains(text, "is nil") {
				t.Errorf("%v: a nil handler panics with %q", p.payload, text)
			}
		}
	}
}

func TestHandlersOfEveryEvent(t *testing.T) {
	t.Parallel()
	var got []any
	keep := func(e any) { got = append(got, e) }
	r := listener.New()
	r.SetSession(new(discordgo.Session))
	r.AddHandler(func(_ *discordgo.Session, e any) { keep(e) })
	r.AddHandler(func(_ *discordgo.Session, e any) error { keep(e); return io.EOF })
	r.AddHandler(func(_ *discordgo.Session, e *discordgo.Event) { keep(e) })
	r.AddHandler(func(_ *discordgo.Session, e *discordgo.Event) error { keep(e); return io.EOF })
	if diff := cmp.Diff([]string{"handler-any-1", "handler-any-2", "handler-event-1", "handler-event-2"}, names(r.All())); diff != "" {
		t.Fatalf("listeners (-want +got):\n%s", diff)
	}
	for _, eventType := range []string{"orders.created", "sluice.session.lost", "note"} {
		if got := r.Match(eventType); got != nil {
			t.Errorf("%s: goes to %q", eventType, names(got))
		}
	}
	role := &discordgo.GuildRoleDelete{GuildID: "1", RoleID: "2"}
	stage := &discordgo.StageInstanceEventCreate{StageInstance: &discordgo.StageInstance{ID: "2"}}
	tests := []struct {
		name, eventType, payload string
		value                    any // Struct
		ended                    []error
		decode                   bool // the error is a DecodeError
	}{
		{"a struct", "GUILD_ROLE_DELETE", `{"guild_id":"1","role_id":"2"}`, role, []error{nil, io.EOF, nil, io.EOF}, false},
		{"a type discordgo misnames", "STAGE_INSTANCE_CREATE", `{"id":"2"}`, stage, []error{nil, io.EOF, nil, io.EOF}, false},
		{"a type nobody knows", "LANTERN_LIT", `{"id":"2"}`, nil, []error{nil, io.EOF, nil, io.EOF}, false},
		{"a bad payload", "GUILD_ROLE_DELETE", `{"role_id":2}`, nil, []error{nil, nil, nil, io.EOF}, true},
	}
	for _, test := range tests {
		event := &discordgo.Event{Sequence: 7, Type: test.eventType, RawData: json.RawMessage(test.payload), Struct: test.value}
		want := [][]any{{event}, {event}, {event}, {event}}
		if test.value != nil {
			want[0] = []any{test.value, event}
			want[1] = []any{test.value} // it has failed for this one
		}
		if test.decode {
			want[0], want[1] = nil, nil
		}
		d := listener.Delivery{Type: test.eventType, Sequence: 7, Payload: json.RawMessage(test.payload)}
		for i, b := range r.Match(test.eventType) {
			got = nil
			err := runBound(t, b, d, nil)
			if _, ok := errors.AsType[*listener.DecodeError](err); test.decode && i < 2 {
				if !ok {
					t.Errorf("%s: %s ended with %v, want a DecodeError", test.name, b.Name(), err)
				}
			} else if err != test.ended[i] {
				t.Errorf("%s: %s ended with %v, want %v", test.name, b.Name(), err, test.ended[i])
			}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("%s: %s was called with (-want +got):\n%s", test.name, b.Name(), diff)
			}
			for _, e := range got {
				if raw, ok := e.(*discordgo.Event); ok && &raw.RawData[0] == &d.Payload[0] {
					t.Errorf("%s: %s shares the payload", test.name, b.Name())
				}
			}
		}
	}
}

func TestAddHandlerPanics(t *testing.T) {
	t.Parallel()
	type named func(*discordgo.Session, *discordgo.MessageCreate)
	tests := []struct {
		name    string
		handler any
		want    string
	}{
		{"nothing", nil, "want a function"},
		{"no function", 7, "want a plain func"},
		{"a pointer to no event", func(*discordgo.Session, *discordgo.Message) {}, "want a plain func"},
		{"no pointer", func(*discordgo.Session, discordgo.MessageCreate) {}, "want a plain func"},
		{"no session", func(*discordgo.MessageCreate) {}, "want a plain func"},
		{"a named type", named(func(*discordgo.Session, *discordgo.MessageCreate) {}), "want a plain func"},
		{"another result", func(*discordgo.Session, *discordgo.MessageCreate) bool { return true }, "want a plain func"},
		{"connect", func(*discordgo.Session, *discordgo.Connect) {}, "*discordgo.Connect): no worker gets this event: the connection"},
		{"connect with an error", func(*discordgo.Session, *discordgo.Connect) error { return nil }, "no worker gets this event"},
		{"disconnect", func(*discordgo.Session, *discordgo.Disconnect) {}, "no worker gets this event: the connection"},
		{"rate limit", func(*discordgo.Session, *discordgo.RateLimit) {}, "Session.AddHandler"},
		{"presences replace", func(*discordgo.Session, *discordgo.PresencesReplace) {}, "Discord does not send it"},
		{"nil for any", (func(*discordgo.Session, any))(nil), "is nil"},
		{"nil for any with an error", (func(*discordgo.Session, any) error)(nil), "is nil"},
		{"nil for Event", (func(*discordgo.Session, *discordgo.Event))(nil), "is nil"},
		{"nil for Event with an error", (func(*discordgo.Session, *discordgo.Event) error)(nil), "is nil"},
	}
	for _, test := range tests {
		r := listener.New()
		if got := panics(func() { r.AddHandler(test.handler) }); !strings.HasPrefix(got, "listener: AddHandler: ") || !strings.Contains(got, test.want) {
			t.Errorf("%s: panics with %q, want something with %q", test.name, got, test.want)
		}
		if n := len(r.All()); n != 0 {
			t.Errorf("%s: %d listeners were added all the same", test.name, n)
		}
	}
	message := func(*discordgo.Session, *discordgo.MessageCreate) {}
	r := listener.New()
	r.Add(listener.Handle("handler-message-create-1", ">", nothing))
	if got := panics(func() { r.AddHandler(message) }); !strings.Contains(got, `"handler-message-create-1" is twice`) {
		t.Errorf("a name twice: panics with %q", got)
	}
	r.All()
	if got := panics(func() { r.AddHandler(message) }); !strings.Contains(got, "in use") {
		t.Errorf("AddHandler to a registry in use: panics with %q", got)
	}
	if got := panics(func() { r.SetSession(nil) }); !strings.Contains(got, "in use") {
		t.Errorf("SetSession of a registry in use: panics with %q", got)
	}
}

func TestHandlersNeedASession(t *testing.T) {
	t.Parallel()
	r := listener.New()
	r.Add(listener.Handle("a", ">", nothing))
	if r.NeedsSession() {
		t.Error("a registry without handlers: NeedsSession = true")
	}
	r.AddHandler(func(*discordgo.Session, *discordgo.Resumed) { t.Error("the handler was called") })
	if !r.NeedsSession() {
		t.Error("a registry with a handler: NeedsSession = false")
	}
	if err := runBound(t, r.All()[1], listener.Delivery{Type: "RESUMED"}, nil); !errors.Is(err, listener.ErrNoSession) {
		t.Errorf("ended with %v, want ErrNoSession", err)
	}
	with := listener.New()
	with.AddHandler(func(*discordgo.Session, *discordgo.Resumed) {})
	with.SetSession(new(discordgo.Session))
	if with.NeedsSession() {
		t.Error("a registry with a session: NeedsSession = true")
	}
}

func TestHandlersAreNumberedByEvent(t *testing.T) {
	t.Parallel()
	message := func(*discordgo.Session, *discordgo.MessageCreate) {}
	r := listener.New()
	r.AddHandler(message)
	r.AddHandler(func(*discordgo.Session, *discordgo.StageInstanceEventCreate) {})
	r.Add(listener.MessageCreate.Handle("own", func(context.Context, *listener.Event[*discordgo.MessageCreate, listener.None]) error { return nil }))
	r.AddHandler(message)
	want := []string{"handler-message-create-1", "handler-stage-instance-create-1", "own", "handler-message-create-2"}
	if diff := cmp.Diff(want, names(r.All())); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestHandlersRunWithinTheRegistrysMiddleware(t *testing.T) {
	t.Parallel()
	var trace []string
	r := listener.New()
	r.SetSession(new(discordgo.Session))
	r.AddHandler(func(_ *discordgo.Session, e *discordgo.GuildRoleDelete) { trace = append(trace, e.RoleID) })
	r.Use(func(next listener.Func) listener.Func {
		return func(ctx context.Context, d *listener.Delivery) error {
			trace = append(trace, d.Type)
			return next(ctx, d)
		}
	})
	d := listener.Delivery{Type: "GUILD_ROLE_DELETE", Payload: json.RawMessage(`{"role_id":"2"}`)}
	if err := runBound(t, r.All()[0], d, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"GUILD_ROLE_DELETE", "2"}, trace); diff != "" {
		t.Errorf("trace (-want +got):\n%s", diff)
	}
}

// handle runs a handler of discordgo's for d.
func handle(tb testing.TB, handler any, d listener.Delivery) error {
	tb.Helper()
	r := listener.New()
	r.SetSession(new(discordgo.Session))
	r.AddHandler(handler)
	return runBound(tb, r.All()[0], d, nil)
}

func TestHandlersGetWhatTheUpdateLeavesOut(t *testing.T) {
	t.Parallel()
	joined := time.Date(2025, 11, 4, 15, 0, 0, 0, time.UTC)
	ran := 0
	for _, err := range []error{
		handle(t, func(_ *discordgo.Session, e *discordgo.GuildMemberUpdate) {
			ran++
			if !e.JoinedAt.Equal(joined) || e.BeforeUpdate == nil || e.BeforeUpdate.Nick != "old" {
				t.Errorf("joined %v, before %+v", e.JoinedAt, e.BeforeUpdate)
			}
		}, listener.Delivery{Type: "GUILD_MEMBER_UPDATE", Payload: json.RawMessage(`{"guild_id":"1","user":{"id":"2"},"nick":"new","joined_at":null}`),
			Previous: json.RawMessage(`{"user":{"id":"2"},"nick":"old","joined_at":"2025-11-04T15:00:00Z"}`)}),
		handle(t, func(_ *discordgo.Session, e *discordgo.GuildUpdate) {
			ran++
			if e.MemberCount != 41 || e.Name != "new" {
				t.Errorf("guild %+v", e.Guild)
			}
		}, listener.Delivery{Type: "GUILD_UPDATE", Payload: json.RawMessage(`{"id":"1","name":"new"}`), Previous: json.RawMessage(`{"id":"1","member_count":41}`)}),
		handle(t, func(_ *discordgo.Session, e *discordgo.ChannelUpdate) {
			ran++
			if len(e.PermissionOverwrites) != 1 || e.Topic != "" {
				t.Errorf("channel %+v", e.Channel)
			}
		}, listener.Delivery{Type: "CHANNEL_UPDATE", Payload: json.RawMessage(`{"id":"1"}`),
			Previous: json.RawMessage(`{"id":"1","topic":"t","permission_overwrites":[{"id":"3"}]}`)}),
		handle(t, func(_ *discordgo.Session, e *discordgo.ThreadUpdate) {
			ran++
			if e.ThreadMetadata == nil || !e.ThreadMetadata.Archived {
				t.Errorf("thread %+v", e.Channel)
			}
		}, listener.Delivery{Type: "THREAD_UPDATE", Payload: json.RawMessage(`{"id":"1"}`), Previous: json.RawMessage(`{"id":"1","thread_metadata":{"archived":true}}`)}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	if ran != 4 {
		t.Errorf("%d handlers ran, want 4", ran)
	}
	// A typed listener's New is the payload and nothing else.
	got, err := see(t, listener.Delivery{Type: "GUILD_UPDATE", Payload: json.RawMessage(`{"id":"1"}`), Previous: json.RawMessage(`{"id":"1","member_count":41}`)})
	if err != nil || got.payload.(*discordgo.GuildUpdate).MemberCount != 0 {
		t.Errorf("a listener got %+v, error %v", got.payload, err)
	}
}

func TestHandlerOfABadPayloadIsNotCalled(t *testing.T) {
	t.Parallel()
	err := handle(t, func(*discordgo.Session, *discordgo.MessageCreate) { t.Error("the handler was called") },
		listener.Delivery{Type: "MESSAGE_CREATE", Payload: json.RawMessage(`{"id":1}`)})
	if decode, ok := errors.AsType[*listener.DecodeError](err); !ok || decode.Field != "id" || !listener.Discarded(err) {
		t.Errorf("ended with %v, want a DecodeError for id", err)
	}
}

func BenchmarkHandler(b *testing.B) {
	for _, test := range []struct {
		name    string
		handler any
	}{
		{"typed", func(*discordgo.Session, *discordgo.MessageCreate) {}},
		{"Event", func(*discordgo.Session, *discordgo.Event) {}},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			r := listener.New()
			r.SetSession(new(discordgo.Session))
			r.AddHandler(test.handler)
			bound := r.All()[0]
			d := listener.Delivery{Type: "MESSAGE_CREATE", Payload: payload("MESSAGE_CREATE")}
			for b.Loop() {
				bound.Run(b.Context(), &d, nil, func(err error) {
					if err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}
