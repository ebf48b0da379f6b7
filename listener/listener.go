// Package listener is what a user of Sluice writes: functions that are called
// with the dispatches of Discord's gateway, and with custom events, each with the
// state its entity had before.
//
// A listener is made from a kind, which gives it typed events, or by a subject
// pattern, which gives it any number of event types raw:
//
//	r := listener.New()
//	r.Add(
//		listener.MessageUpdate.Handle("edit-log", func(ctx context.Context, e *event.MessageUpdate) error {
//			return save(ctx, e.Old, e.New)
//		}),
//		listener.Handle("audit", "guild.>", func(ctx context.Context, d *listener.Delivery) error {
//			return record(ctx, d.Type, d.Payload)
//		}),
//	)
//
// Its name is what its successes and failures are recorded under: it stays the
// same for as long as the listener does. HandleBatch makes one that takes many
// events at a time, and Registry.AddHandler takes a discordgo handler as it is.
//
// Package replay runs a registry's listeners, package listenertest does in tests;
// this package knows neither Redis nor sockets.
package listener

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// A Kind is an event type together with the Go types of its payload and of the
// entity's previous state. Its text is the type as Discord names it, or the
// dotted name of a custom event:
//
//	const OrderCreated listener.Kind[Order, listener.None] = "orders.created"
type Kind[T, P any] string

// None is the previous state of a kind that has none.
type None struct{}

// Handle returns a listener for the kind's events. The name must be unique in a
// registry; fn may be called concurrently for events of different guilds, and for
// the same event again if it returned an error. See the package's Discard and
// RetryAfter for what an error can say.
func (k Kind[T, P]) Handle(name string, fn func(ctx context.Context, e *Event[T, P]) error) Listener {
	l := Listener{name: name, pattern: string(k), typed: true}
	if fn != nil {
		l.run = func(ctx context.Context, d *Delivery) error {
			v, err := decode[T, P](ctx, string(k), d)
			if err != nil {
				return err
			}
			e := &Event[T, P]{Delivery: *d, New: v.payload, Old: v.previous}
			e.Partial = e.Partial || v.partial
			return fn(ctx, e)
		}
	}
	return l
}

// Handle returns a listener for all events whose type matches the pattern, as
// they are. A type is also a dotted subject, guild.member.update for
// GUILD_MEMBER_UPDATE; in a pattern * stands for one token, > for one or more at
// the end, # for any number anywhere. A type as Discord names it is a pattern too.
func Handle(name, pattern string, fn Func) Listener {
	return Listener{name: name, pattern: pattern, run: fn}
}

// A Func is a listener's function. A nil error means that the event needs no
// further run of it.
type Func func(ctx context.Context, d *Delivery) error

// A Middleware wraps the runs of a listener: what it returns is called for every
// run, retries too, and its error is the run's. It sees the event before it is
// decoded, and an error of decoding as one of the listener's; it may pass the
// event by (nil) or make another of its error. Registry.Use and Options.Use say
// where it goes.
//
// It is called once for each listener it wraps, when the registry is taken into
// use; the Func it returns is called concurrently. What that hands on may be
// another Delivery: one with another Payload or Previous is decoded on its own.
type Middleware func(Func) Func

// Options are what a listener may have otherwise than the worker's configuration
// says. The zero value changes nothing.
type Options struct {
	// Timeout is when the context of a run ends, counted from its start; the
	// listener should then return an error soon. One that has not returned 5 s
	// later is abandoned: its event is given up without another run, since the one
	// that hangs may yet have its effects. 0: the worker's
	// (replay.listener_timeout).
	Timeout time.Duration
	// MaxAge is how long after it was written into its stream, by Redis' clock, an
	// event is worth a run. It is looked at before each run, retries too; an event
	// that is older is counted as expired, and the listener has then ended with it:
	// no dead letter. 0: what the worker says of the event's type (replay.expire).
	MaxAge time.Duration
	// MaxAttempts is the number of runs after which an event is given up. A worker
	// that dies in a run has used it up. 0: the worker's (replay.max_deliveries).
	MaxAttempts int
	// Unordered: events of one guild are started in order, but not waited for, so
	// they run side by side and overtake one another.
	Unordered bool
	// Use wraps the listener, the first outermost, all of them inside the
	// registry's. With adds behind those there are.
	Use []Middleware
}

// A Listener is a function together with its name and what it listens to. Make
// one with Kind.Handle, Handle or HandleBatch; it is a value that can be copied.
type Listener struct {
	name, pattern string
	typed         bool              // the pattern is one type, to the letter
	run           Func              // nil for those below
	batch         *batch            // takes many events at a time
	handler       *discordgoHandler // was added with AddHandler
	options       Options
}

// With returns the listener with those options set that o has other than zero;
// o.Use goes inside the middleware it already has.
func (l Listener) With(o Options) Listener {
	if o.Timeout != 0 {
		l.options.Timeout = o.Timeout
	}
	if o.MaxAge != 0 {
		l.options.MaxAge = o.MaxAge
	}
	if o.MaxAttempts != 0 {
		l.options.MaxAttempts = o.MaxAttempts
	}
	l.options.Unordered = l.options.Unordered || o.Unordered
	l.options.Use = slices.Concat(l.options.Use, o.Use)
	return l
}

// MaxNameBytes is the length that a listener's name may have.
const MaxNameBytes = 100

// checkName returns why a listener can't have the name.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	}
	for i := range len(name) {
		c := name[i]
		letter := (c|0x20 >= 'a' && c|0x20 <= 'z') || (c >= '0' && c <= '9')
		if !letter && (i == 0 || (c != '-' && c != '_' && c != '.' && c != '/')) {
			return errors.New("it must be letters and digits, and behind the first of them also - _ . /")
		}
	}
	return nil
}

// matcher returns what the listener listens to.
func (l *Listener) matcher() (dispatch.Pattern, error) {
	if l.typed && !dispatch.IsType(l.pattern) {
		if err := dispatch.ValidSubject(l.pattern); err != nil {
			return dispatch.Pattern{}, fmt.Errorf("a kind is one event type: %w", err)
		}
	}
	return dispatch.Compile(l.pattern)
}

// check returns why the listener can't be added to a registry.
func (l *Listener) check() error {
	if l.name == "" && l.pattern == "" && l.run == nil && l.batch == nil {
		return errors.New("a zero Listener; make one with Kind.Handle, Handle or HandleBatch")
	}
	if err := checkName(l.name); err != nil {
		return fmt.Errorf("bad name %q: %w", l.name, err)
	}
	if _, err := l.matcher(); err != nil {
		return fmt.Errorf("listener %q: %w", l.name, err)
	}
	if b := l.batch; b != nil {
		if err := b.check(); err != nil {
			return fmt.Errorf("listener %q: %w", l.name, err)
		}
		if len(l.options.Use) > 0 {
			return fmt.Errorf("listener %q takes batches and has middleware, which wraps one event at a time: call it in the function", l.name)
		}
	}
	if l.run == nil && l.handler == nil && (l.batch == nil || l.batch.run == nil) {
		return fmt.Errorf("listener %q for %s has a nil function", l.name, l.pattern)
	}
	if o := &l.options; o.Timeout < 0 || o.MaxAge < 0 || o.MaxAttempts < 0 {
		return fmt.Errorf("listener %q has a negative option: Timeout %v, MaxAge %v, MaxAttempts %d", l.name, o.Timeout, o.MaxAge, o.MaxAttempts)
	}
	if slices.ContainsFunc(l.options.Use, func(mw Middleware) bool { return mw == nil }) {
		return fmt.Errorf("listener %q uses a nil Middleware", l.name)
	}
	return nil
}
