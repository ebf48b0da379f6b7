package listener

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// HandleBatch returns a listener that takes the events matching the pattern many
// at a time: for what costs the same for one as for a hundred, like an INSERT.
// The pattern is as Handle's.
//
// fn is called with at least one event, in the order they came in; those of one
// guild are in their order. A nil error means that none of them needs another
// run. An error fails every event of the batch, except for a BatchError, which
// says of each what became of it. What failed comes again in a later batch, with
// a higher Attempt and behind events that came meanwhile: beyond the order within
// the slice a batch listener has none, and its Options are Unordered. MaxAge and
// MaxAttempts are each event's, Timeout is the whole batch's.
//
// The slice and its Deliveries are fn's, the payloads in them are shared: read
// only. Events are not decoded, and middleware does not see them: a registry's
// passes a batch listener over, and one of its own is refused by Registry.Add.
func HandleBatch(name, pattern string, o BatchOptions, fn func(ctx context.Context, ds []*Delivery) error) Listener {
	l := Listener{name: name, pattern: pattern, batch: &batch{options: o, run: fn}}
	l.options.Unordered = true
	return l
}

// Defaults of BatchOptions.
const (
	DefaultBatchSize = 100
	DefaultBatchWait = time.Second
)

// MaxBatchSize is the most that BatchOptions.MaxSize may be.
const MaxBatchSize = 10_000

// BatchOptions say when a batch is whole: when it has MaxSize events, or MaxWait
// after its first one came, whichever is earlier. The zero value is 100 events
// and a second. All its events are in hand meanwhile, so a worker that may have
// fewer of them in hand makes smaller batches.
type BatchOptions struct {
	MaxSize int           // events, at most MaxBatchSize; 0: DefaultBatchSize
	MaxWait time.Duration // 0: DefaultBatchWait
}

func (o BatchOptions) filled() BatchOptions {
	if o.MaxSize == 0 {
		o.MaxSize = DefaultBatchSize
	}
	if o.MaxWait == 0 {
		o.MaxWait = DefaultBatchWait
	}
	return o
}

// batch is what a batch listener has that others have not.
type batch struct {
	options BatchOptions
	run     func(ctx context.Context, ds []*Delivery) error
}

func (b *batch) check() error {
	if o := b.options; o.MaxSize < 0 || o.MaxSize > MaxBatchSize || o.MaxWait < 0 {
		return fmt.Errorf("its batches have MaxSize %d and MaxWait %v: want 0 to %d, and no negative time", o.MaxSize, o.MaxWait, MaxBatchSize)
	}
	return nil
}

// A BatchError is what a batch listener returns, as it is and not wrapped, to say
// which events of its batch failed: their indices in the slice as it got it, each
// with its error, which may be one of Discard or RetryAfter. Those it does not name, or
// names with nil, have succeeded; so an empty one is no failure. One that names
// an index the batch does not have fails every event.
type BatchError map[int]error

// Error returns the errors, a line for each event that failed.
func (e BatchError) Error() string {
	var lines []string
	for _, i := range slices.Sorted(maps.Keys(e)) {
		if e[i] != nil {
			lines = append(lines, fmt.Sprintf("event %d: %v", i, e[i]))
		}
	}
	if lines == nil {
		return "no event failed"
	}
	return strings.Join(lines, "\n")
}

// settle returns err as the worker may take it, for a batch of n events.
func (e BatchError) settle(n int) error {
	failed := 0
	for i, err := range e {
		if err == nil {
			continue
		}
		if i < 0 || i >= n {
			return fmt.Errorf("listener: a BatchError names event %d of a batch of %d: %w", i, n, err)
		}
		failed++
	}
	if failed == 0 {
		return nil
	}
	return e
}

// runBatch runs fn and makes its error one that EventError understands.
func (b *batch) runBatch(ctx context.Context, ds []*Delivery) error {
	n := len(ds)
	err := b.run(ctx, ds)
	if each, ok := err.(BatchError); ok {
		return each.settle(n)
	}
	return err
}

// runOne is the batch listener's Func, for a runtime that makes no batches.
func (b *batch) runOne(ctx context.Context, d *Delivery) error {
	return EventError(b.runBatch(ctx, []*Delivery{d}), 0)
}
