package listener

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// AddHandler adds an existing discordgo handler as a listener. Like
// Session.AddHandler it takes
//
//	func(*discordgo.Session, *discordgo.MessageCreate) // or another event
//	func(*discordgo.Session, *discordgo.Event)         // every dispatch, as it came
//	func(*discordgo.Session, any)                      // every dispatch: its struct if it has one, then its *discordgo.Event
//
// and all of them with an error as their result, which then means what a
// listener's does. Without one the handler has succeeded when it returns; one
// that panics has failed in any case. The payload types of listener/discord are
// events too, and the StageInstanceEvent types, for which discordgo itself waits
// in vain, get what Discord sends as STAGE_INSTANCE_CREATE and so on. Custom
// events are not handed to handlers.
//
// As on discordgo a handler is started in the order of events and not waited for
// (Unordered), BeforeUpdate and BeforeDelete are set where it sets them, and what
// an update leaves out is taken over from the state before where discordgo's
// State does it: a member's JoinedAt, a guild's MemberCount (the last one that
// Discord sent), a channel's PermissionOverwrites and ThreadMetadata. What a guild
// nests is not in the state before: a GuildUpdate has what Discord sent, and
// BeforeDelete no channels, no members and so on. Other than on discordgo each handler gets a struct of its
// own, which it may change and keep, and a payload that does not decode fails it
// instead of giving it half a struct; an *discordgo.Event has a nil Struct then.
//
// The listener's name, which its failures are recorded under, is made of the
// event and a number that counts the handlers for that event in the order they
// were added: handler-message-create-1, handler-event-1, handler-any-1.
//
// AddHandler panics, and says why, if handler is anything else (of a named
// function type too, or for an event that no worker gets: Connect, Disconnect,
// RateLimit, PresencesReplace), is nil, or if the registry is in use.
func (r *Registry) AddHandler(handler any) {
	h := handlerFor(handler)
	if h == nil {
		panic(fmt.Sprintf("listener: AddHandler: %T: %s", handler, whyNoHandler(handler)))
	}
	if h.run == nil {
		panic(fmt.Sprintf("listener: AddHandler: the %T is nil", handler))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 1
	for i := range r.listeners {
		if other := r.listeners[i].handler; other != nil && other.label() == h.label() {
			n++
		}
	}
	l := Listener{name: "handler-" + h.label() + "-" + strconv.Itoa(n), pattern: h.event, typed: true, handler: h}
	if h.event == "" {
		l.pattern, l.typed = ">", false
	}
	l.options.Unordered = true
	r.add("AddHandler", l)
}

// SetSession gives the registry what its discordgo handlers are called with: a
// session that is ready for REST and has State.User set, as handlers expect. It
// is called before the registry is run, before or after AddHandler; whoever makes
// a worker by hand calls it, sluice.Worker does it itself. It panics if the
// registry is in use.
func (r *Registry) SetSession(s *discordgo.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound.Load() != nil {
		panic("listener: SetSession: the registry is in use; call it before the worker is made")
	}
	r.session = s
}

// NeedsSession reports whether the registry has handlers of AddHandler but no
// session to call them with: their runs fail with ErrNoSession.
func (r *Registry) NeedsSession() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != nil {
		return false
	}
	for i := range r.listeners {
		if r.listeners[i].handler != nil {
			return true
		}
	}
	return false
}

// ErrNoSession is what a handler of AddHandler fails with when the registry has
// no session.
var ErrNoSession = errors.New("listener: there are discordgo handlers but no *discordgo.Session for them; a worker needs the bot's token, or a call of Registry.SetSession")

// A discordgoHandler is a function that AddHandler takes.
type discordgoHandler struct {
	event string // the dispatch type; empty: every one
	raw   bool   // takes *discordgo.Event; else, if event is empty, any
	run   func(s *discordgo.Session, d *Delivery) error
}

// label returns what the handler's name is made of.
func (h *discordgoHandler) label() string {
	switch {
	case h.event != "":
		return strings.ReplaceAll(strings.ToLower(h.event), "_", "-")
	case h.raw:
		return "event"
	}
	return "any"
}

// bind returns the handler's Func.
func (h *discordgoHandler) bind(s *discordgo.Session) Func {
	return func(_ context.Context, d *Delivery) error {
		if s == nil {
			return ErrNoSession
		}
		return h.run(s, d)
	}
}

// on is a handler for one event, try one that returns an error.
func on[T, P any](k Kind[*T, P], f func(*discordgo.Session, *T)) *discordgoHandler {
	if f == nil {
		return &discordgoHandler{}
	}
	return try(k, func(s *discordgo.Session, e *T) error {
		f(s, e)
		return nil
	})
}

func try[T, P any](k Kind[*T, P], f func(*discordgo.Session, *T) error) *discordgoHandler {
	if f == nil {
		return &discordgoHandler{}
	}
	return &discordgoHandler{event: string(k), run: func(s *discordgo.Session, d *Delivery) error {
		e, err := structOf[T, P](string(k), d)
		if err != nil {
			return err
		}
		return f(s, e)
	}}
}

// onAll is a handler for every dispatch.
func onAll(f func(*discordgo.Session, any) error) *discordgoHandler {
	return &discordgoHandler{run: func(s *discordgo.Session, d *Delivery) error {
		e, err := eventOf(d)
		if err != nil {
			return err
		}
		if e.Struct != nil {
			if err := f(s, e.Struct); err != nil {
				return err
			}
		}
		return f(s, e)
	}}
}

func onEvent(f func(*discordgo.Session, *discordgo.Event) error) *discordgoHandler {
	return &discordgoHandler{raw: true, run: func(s *discordgo.Session, d *Delivery) error {
		e, _ := eventOf(d) // RawData is there in any case
		return f(s, e)
	}}
}

// handlerFor returns the handler that AddHandler was given, nil if it takes none
// such, and one without run if it is nil.
func handlerFor(f any) *discordgoHandler {
	switch f := f.(type) {
	case func(*discordgo.Session, any):
		if f == nil {
			return &discordgoHandler{}
		}
		return onAll(func(s *discordgo.Session, e any) error {
			f(s, e)
			return nil
		})
	case func(*discordgo.Session, any) error:
		if f == nil {
			return &discordgoHandler{}
		}
		return onAll(f)
	case func(*discordgo.Session, *discordgo.Event):
		if f == nil {
			return &discordgoHandler{}
		}
		return onEvent(func(s *discordgo.Session, e *discordgo.Event) error {
			f(s, e)
			return nil
		})
	case func(*discordgo.Session, *discordgo.Event) error:
		if f == nil {
			return &discordgoHandler{}
		}
		return onEvent(f)
	}
	return typedHandlerFor(f)
}

// whyNoHandler says why AddHandler does not take f.
func whyNoHandler(f any) string {
	switch f.(type) {
	case nil:
		return "want a function"
	case func(*discordgo.Session, *discordgo.Connect), func(*discordgo.Session, *discordgo.Connect) error,
		func(*discordgo.Session, *discordgo.Disconnect), func(*discordgo.Session, *discordgo.Disconnect) error:
		return "no worker gets this event: the connection is the gateway process's, and bots restart without it"
	case func(*discordgo.Session, *discordgo.RateLimit), func(*discordgo.Session, *discordgo.RateLimit) error:
		return "no worker gets this event: the Session makes it for its REST requests, add the handler to it with Session.AddHandler"
	case func(*discordgo.Session, *discordgo.PresencesReplace), func(*discordgo.Session, *discordgo.PresencesReplace) error:
		return "no worker gets this event: Discord does not send it to bots"
	}
	return "want a plain func(*discordgo.Session, *T), with or without an error as its result, where T is the type of an event (or any in place of *T)"
}

// structOf returns the payload as one handler gets it: its own.
func structOf[T, P any](name string, d *Delivery) (*T, error) {
	v, err := decodeNow[*T, P](name, d)
	if err != nil {
		return nil, err
	}
	takeOver(any(v.payload), any(v.previous))
	return v.payload, nil
}

// anyStruct is structOf for those who take any struct.
func anyStruct[T, P any](k Kind[*T, P], d *Delivery) (any, error) {
	v, err := structOf[T, P](string(k), d)
	if err != nil {
		return nil, err // not a nil *T
	}
	return v, nil
}

// eventOf returns the dispatch as discordgo shows it raw; without a Struct if it
// does not decode, and why.
func eventOf(d *Delivery) (*discordgo.Event, error) {
	e := &discordgo.Event{Sequence: d.Sequence, Type: d.Type, RawData: bytes.Clone(d.Payload)}
	var err error
	e.Struct, err = typedStruct(d)
	return e, err
}

// isDispatch reports whether an event is one that discordgo would hand to
// handlers of every event.
func isDispatch(eventType string) bool { return dispatch.IsType(eventType) }
