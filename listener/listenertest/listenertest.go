// Package listenertest runs listeners as a worker does, without Redis: attempts,
// timeouts, ages, batches, discards and panics included, and no waiting between
// attempts. It does not need the testing package:
//
//	var w listenertest.Worker
//	got := w.RunOne(t.Context(), welcome, listenertest.Event("GUILD_MEMBER_ADD", payload, ""))
//	if got.Outcome != listenertest.Succeeded || got.Attempts != 1 {
//		t.Errorf("welcome: %v", got)
//	}
package listenertest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
	"github.com/sluicehq/sluice/listener"
)

// Event returns an event as a worker delivers it: received now, of the guild that
// the payload names, with the sequence 1 if it is a dispatch. previous is the
// entity before it, empty if it was not known. The rest of it is the test's to
// set; two events that a listener is to tell apart by Key want another Sequence
// or, if they are custom ones, another ID.
//
// It panics if the type can't be one or a text is not JSON: set Payload or
// Previous afterwards to test with what is broken.
func Event(eventType, payload, previous string) listener.Delivery {
	isDispatch := dispatch.IsType(eventType)
	if !isDispatch {
		if err := dispatch.ValidSubject(eventType); err != nil {
			panic("listenertest: Event: " + err.Error())
		}
	}
	if !rawjson.Valid([]byte(payload)) {
		panic(fmt.Sprintf("listenertest: Event: the payload of %s is not JSON: %s", eventType, payload))
	}
	if previous != "" && !rawjson.Valid([]byte(previous)) {
		panic(fmt.Sprintf("listenertest: Event: the previous state of %s is not JSON: %s", eventType, previous))
	}
	d := listener.Delivery{
		ID:       "0/0/1-0",
		Type:     eventType,
		Received: time.Now().Truncate(time.Millisecond),
		Payload:  []byte(payload),
	}
	if previous != "" {
		d.Previous = []byte(previous)
	}
	t := dispatch.Lookup(eventType)
	if t != nil && t.Express {
		d.ID = "0/x0/1-0"
	}
	if isDispatch {
		d.Session, d.Sequence = "test", 1
	}
	var f dispatch.Fields
	if err := f.Scan(d.Payload); err != nil {
		panic("listenertest: Event: " + err.Error())
	}
	_, guild := t.Key(&f)
	d.GuildID = string(guild)
	return d
}

// An Outcome is how a listener's work on an event ended.
type Outcome string

// The outcomes.
const (
	Succeeded   Outcome = "succeeded"
	Discarded   Outcome = "discarded"   // its error was of Discard, or the payload does not decode: no retry, a dead letter
	Exhausted   Outcome = "exhausted"   // every attempt failed: a dead letter
	Expired     Outcome = "expired"     // it was older than the listener's MaxAge, and not run (again)
	Interrupted Outcome = "interrupted" // ctx ended during a run that failed: another worker would begin it again
	Unmatched   Outcome = "unmatched"   // the listener is not for events of this type
)

// A Result is what became of an event with a listener.
type Result struct {
	Listener string // its name
	Outcome  Outcome
	Attempts int     // runs
	Errors   []error // those of the runs that failed, in order
	// Delays are what RetryAfter asked for, one for each of Errors; 0: the
	// worker's backoff. Nothing waits for them here.
	Delays []time.Duration
}

// Err returns the error of the last run, nil if there was none or it succeeded.
func (r Result) Err() error {
	if r.Outcome == Succeeded || len(r.Errors) == 0 {
		return nil
	}
	return r.Errors[len(r.Errors)-1]
}

// String returns the result in a line, for a test's message.
func (r Result) String() string {
	text := fmt.Sprintf("%s %s after %d attempts", r.Listener, r.Outcome, r.Attempts)
	if err := r.Err(); err != nil {
		text += ": " + err.Error()
	}
	return text
}

// A Worker runs listeners. Its fields are what a listener's own Options leave to
// the worker; the zero value has a real worker's defaults. Safe for concurrent
// use.
type Worker struct {
	MaxAttempts int           // 0: 5
	Timeout     time.Duration // of a run; 0: 30 s
}

// Run gives the event to each listener of the registry that is for it, one after
// another in the order they were added, and reports how each ended; nil if there
// are none. The registry is in use from then on. A registry with handlers of
// AddHandler wants its SetSession before.
//
// Listeners run on the calling goroutine, so that they may call t.Fatal; one that
// does not heed its context hangs the test.
func (w Worker) Run(ctx context.Context, r *listener.Registry, d listener.Delivery) []Result {
	var results []Result
	var shared listener.Decoded
	for _, b := range r.Match(d.Type) {
		results = append(results, w.run(ctx, b, &shared, d))
	}
	return results
}

// RunOne is Run for one listener. One that takes batches gets a batch of one. It
// panics if the listener can't be added to a registry.
func (w Worker) RunOne(ctx context.Context, l listener.Listener, d listener.Delivery) Result {
	b := bind(l)
	if !b.Matches(d.Type) {
		return Result{Listener: b.Name(), Outcome: Unmatched}
	}
	return w.run(ctx, b, new(listener.Decoded), d)
}

func bind(l listener.Listener) *listener.Bound {
	r := listener.New()
	r.Add(l)
	return r.All()[0]
}

// RunBatch gives events to a listener that takes batches, at most its MaxSize at
// a time, and reports how each ended. What failed comes again behind those that are
// left. It panics as RunOne does, and if the listener takes no batches.
func (w Worker) RunBatch(ctx context.Context, l listener.Listener, ds ...listener.Delivery) []Result {
	b := bind(l)
	o, ok := b.Batch()
	if !ok {
		panic(fmt.Sprintf("listenertest: RunBatch: listener %q takes no batches; use RunOne", b.Name()))
	}
	results := make([]Result, len(ds))
	var pending []int
	for i := range ds {
		results[i].Listener = b.Name()
		if !b.Matches(ds[i].Type) {
			results[i].Outcome = Unmatched
			continue
		}
		pending = append(pending, i)
	}
	for len(pending) > 0 {
		var batch []*listener.Delivery
		var at, rest []int // indices of the batch's events, and of those left
		for n, i := range pending {
			if len(at) == o.MaxSize {
				rest = pending[n:]
				break
			}
			if d, due := w.next(b, &results[i], ds[i]); due {
				batch, at = append(batch, d), append(at, i)
			}
		}
		pending = rest
		if len(batch) == 0 {
			continue
		}
		var failed error
		bounded, cancel := context.WithTimeout(ctx, w.timeout(b))
		b.RunBatch(bounded, batch, func(err error) { failed = err })
		cancel()
		for n, i := range at {
			if w.settle(ctx, b, &results[i], listener.EventError(failed, n)) {
				pending = append(pending[:len(pending):len(pending)], i)
			}
		}
	}
	return results
}

func (w Worker) run(ctx context.Context, b *listener.Bound, shared *listener.Decoded, event listener.Delivery) Result {
	r := Result{Listener: b.Name()}
	for {
		d, due := w.next(b, &r, event)
		if !due {
			return r
		}
		var failed error
		bounded, cancel := context.WithTimeout(ctx, w.timeout(b))
		b.Run(bounded, d, shared, func(err error) { failed = err })
		cancel()
		if !w.settle(ctx, b, &r, failed) {
			return r
		}
	}
}

// next returns the delivery of an event's next run, unless it has expired.
func (w Worker) next(b *listener.Bound, r *Result, event listener.Delivery) (d *listener.Delivery, due bool) {
	if age := b.Options().MaxAge; age > 0 && time.Since(event.Received) > age {
		r.Outcome = Expired
		return nil, false
	}
	r.Attempts++
	event.Listener, event.Attempt, event.MaxAttempts = b.Name(), r.Attempts, w.maxAttempts(b)
	return &event, true
}

// settle notes how a run ended, and reports whether another follows.
func (w Worker) settle(ctx context.Context, b *listener.Bound, r *Result, err error) (again bool) {
	if err == nil {
		r.Outcome = Succeeded
		return false
	}
	delay, _ := listener.RetryDelay(err)
	r.Errors, r.Delays = append(r.Errors, err), append(r.Delays, delay)
	switch {
	case ctx.Err() != nil:
		r.Outcome = Interrupted
	case listener.Discarded(err):
		r.Outcome = Discarded
	case r.Attempts >= w.maxAttempts(b):
		r.Outcome = Exhausted
	default:
		return true
	}
	return false
}

func (w Worker) maxAttempts(b *listener.Bound) int {
	return cmp.Or(b.Options().MaxAttempts, w.MaxAttempts, 5)
}

func (w Worker) timeout(b *listener.Bound) time.Duration {
	return cmp.Or(b.Options().Timeout, w.Timeout, 30*time.Second)
}
