package listener

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// This file is what a runtime needs that reads entries and runs listeners, as
// package replay does. Users of listeners need none of it.

// All returns the registry's listeners in the order they were added. From the
// first call of All or Match on the registry is in use. The slice is shared: read
// only.
func (r *Registry) All() []*Bound { return r.bind() }

// Match returns the listeners for an event type, in the order they were added;
// nil if there are none. What it returned is remembered by type, so that it does
// not allocate again. The slice is shared: read only.
func (r *Registry) Match(eventType string) []*Bound { return r.match(eventType) }

// A Bound is a listener of a registry, within all its middleware. It is immutable
// and safe for concurrent use.
type Bound struct {
	name, text string
	pattern    dispatch.Pattern
	exact      bool // the type itself, not a pattern
	dispatches bool // Discord's types only
	shares     bool // takes part in an entry's Decoded
	options    Options
	run        Func
	batch      *batch
}

func newBound(l *Listener, outer []Middleware, session *discordgo.Session) *Bound {
	pattern, err := l.matcher()
	if err != nil {
		panic("listener: " + err.Error()) // Add has checked it
	}
	b := &Bound{name: l.name, text: l.pattern, pattern: pattern, exact: l.typed, options: l.options, run: l.run}
	b.options.Use = nil
	b.shares = l.typed && l.handler == nil
	if l.handler != nil {
		b.dispatches = !l.typed
		b.run = l.handler.bind(session)
	}
	if l.batch != nil {
		b.batch = &batch{options: l.batch.options.filled(), run: l.batch.run}
		b.run = b.batch.runOne
		return b
	}
	for _, mw := range slices.Backward(slices.Concat(outer, l.options.Use)) {
		b.run = mw(b.run)
		if b.run == nil {
			panic("listener: a Middleware of " + l.name + " returned a nil Func")
		}
	}
	return b
}

// Name returns the listener's name.
func (b *Bound) Name() string { return b.name }

// Pattern returns the event type or the pattern the listener was made with.
func (b *Bound) Pattern() string { return b.text }

// Options returns the listener's options as its author gave them; zero fields
// are for the runtime to fill. Use is applied already, and nil.
func (b *Bound) Options() Options { return b.options }

// Matches reports whether the listener is for events of the type.
func (b *Bound) Matches(eventType string) bool {
	if b.exact {
		return eventType == b.text
	}
	return (!b.dispatches || isDispatch(eventType)) && b.pattern.Match(eventType)
}

// Run runs the listener for d, on the calling goroutine, and reports how it ended
// to ended, which is called exactly once, on the same goroutine and before Run
// returns: with nil, the listener's error, a *PanicError, or ErrGoexit. After
// ErrGoexit Run does not return: the goroutine is ending, and only its deferred
// calls run.
//
// d must be this run's own and have its Listener, Attempt and MaxAttempts set.
// Payload and Previous must not change afterwards. shared is the entry's, the
// same for all runs of all its listeners; nil: d is decoded for this run only.
// Run does not look at Options: a timeout is the runtime's, by ctx.
//
// A batch listener gets d as a batch of one.
func (b *Bound) Run(ctx context.Context, d *Delivery, shared *Decoded, ended func(error)) {
	if shared != nil && b.shares {
		ctx = context.WithValue(ctx, decodedKey{}, shared)
	}
	guard(func() error { return b.run(ctx, d) }, ended)
}

// guard calls f, and ended with how it ended.
func guard(f func() error, ended func(error)) {
	var (
		err      error
		finished bool
	)
	defer func() {
		if !finished {
			if value := recover(); value != nil {
				err = newPanicError(value)
			} else {
				err = ErrGoexit
			}
		}
		ended(err)
	}()
	err = f()
	finished = true
}

// Batch returns when a batch for the listener is whole, all fields filled; ok is
// false if it does not take batches.
func (b *Bound) Batch() (o BatchOptions, ok bool) {
	if b.batch == nil {
		return BatchOptions{}, false
	}
	return b.batch.options, true
}

// RunBatch runs a batch listener for ds, at least one and each as Run wants d. It
// reports to ended as Run does; EventError tells what the error says of each
// event. ds is the listener's from then on, to reorder and to keep. RunBatch
// panics if the listener does not take batches.
func (b *Bound) RunBatch(ctx context.Context, ds []*Delivery, ended func(error)) {
	if b.batch == nil {
		panic("listener: RunBatch: " + b.name + " does not take batches")
	}
	guard(func() error { return b.batch.runBatch(ctx, ds) }, ended)
}

// EventError returns how event i of a batch ended for which RunBatch reported
// err: nil if it succeeded.
func EventError(err error, i int) error {
	if each, ok := err.(BatchError); ok {
		return each[i]
	}
	return err
}

// Discarded reports whether no further run can change how the listener ended: its
// error is one of Discard, or a *DecodeError.
func Discarded(err error) bool {
	var discard *discarded
	var decode *DecodeError
	return errors.As(err, &discard) || errors.As(err, &decode)
}

// RetryDelay returns the delay that an error of RetryAfter asks for; ok is false
// for any other error. A negative delay is 0.
func RetryDelay(err error) (d time.Duration, ok bool) {
	var retry *retryAfter
	if !errors.As(err, &retry) {
		return 0, false
	}
	return max(0, retry.d), true
}
