package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// handBackAtOnce is how many entries a script gives back: it holds Redis up
// meanwhile.
const handBackAtOnce = 1000

// atOnce is how many lanes one round trip hands over.
const atOnce = 64

// handBack gives lanes, and what is pending in them, to their next owners: as if it
// had not been delivered, and with what listeners have done for it recorded.
func (k *keeper) handBack(ctx context.Context, lanes []*lane) error {
	var errs []error
	for some := range slices.Chunk(lanes, atOnce) {
		errs = append(errs, k.handBackSome(ctx, some))
	}
	return errors.Join(errs...)
}

func (k *keeper) handBackSome(ctx context.Context, lanes []*lane) error {
	w := k.w
	pipe := w.control.Pipeline()
	type call struct {
		keys []string
		args []any
		cmd  *redis.Cmd
	}
	var calls []*call
	var errs []error
	for _, l := range lanes {
		half, counts := w.desk.halfDone(l)
		for _, h := range half {
			args := []any{w.config.Group, h.entry.id.String()}
			for _, line := range h.lines {
				args = append(args, line.String())
			}
			note.Eval(ctx, pipe, []string{h.entry.src.stream, h.entry.src.progress}, args...)
		}
		c := &call{keys: []string{l.lease}, args: append([]any{w.id, w.config.Group, handBackAtOnce}, counts...)}
		for _, s := range l.sources {
			c.keys = append(c.keys, s.stream)
		}
		calls = append(calls, c)
	}
	if pipe.Len() > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			k.failed(ctx, "recording progress of what is handed back", err)
		}
	}
	for len(calls) > 0 {
		for _, c := range calls {
			c.cmd = handBack.Eval(ctx, pipe, c.keys, c.args...)
		}
		pipe.Exec(ctx) // each has its own error
		var more []*call
		for _, c := range calls {
			answer, err := c.cmd.Int64Slice()
			switch {
			case err != nil:
				errs = append(errs, err)
				continue
			case len(answer) != 2:
				errs = append(errs, fmt.Errorf("%w: %v", errReply, answer))
				continue
			}
			w.metrics.handedBack.Add(float64(max(0, answer[0]))) // -1: the lease is gone, they are another's already
			if answer[1] != 0 {
				more = append(more, c)
			}
		}
		calls = more
	}
	return errors.Join(errs...)
}

// A halfEntry is an entry some of whose listeners have ended.
type halfEntry struct {
	entry *entry
	lines []progressLine
}

// halfDone returns the entries of a lane with progress that is not recorded, and
// what the script handBack takes of entries that have been started and failed.
func (d *desk) halfDone(l *lane) (half []halfEntry, counts []any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, s := range l.sources {
		for _, e := range s.known {
			if e.state != held && e.state != dying || e.reason != "" {
				continue
			}
			if lines := e.progress(); len(lines) > e.noted {
				half = append(half, halfEntry{e, lines})
			}
			if n, failed := e.starts(); failed {
				counts = append(counts, strconv.Itoa(i+1)+":"+e.id.String(), n)
			}
		}
	}
	return half, counts
}

// starts returns how many runs of the entry are to be held against it, and whether
// one has failed here.
func (e *entry) starts() (n int, failedHere bool) {
	for i := range e.tasks {
		t := &e.tasks[i]
		failedHere = failedHere || t.err != nil
		switch t.state {
		case ended:
		case failed:
			n = max(n, t.attempt)
		default:
			n = max(n, t.attempt-1)
		}
	}
	return n, failedHere
}

// sweepAfter is after how many leases without a sign of life a consumer that
// holds nothing is removed, and how often that is looked at.
const sweepAfter = 10

// sweep removes the consumers of workers that are gone from the lanes held, and
// drops dead letters that are too old.
func (k *keeper) sweep(ctx context.Context) {
	w := k.w
	for _, group := range k.groups {
		var streams []string
		for _, l := range group {
			if l.state != owned {
				continue
			}
			for _, s := range l.sources {
				streams = append(streams, s.stream)
			}
			if l.number == 0 {
				dropped, err := expire.Run(ctx, w.control, []string{l.dead}, w.config.DeadAge.Milliseconds()).Int64()
				if err != nil {
					k.failed(ctx, "dropping old dead letters", err)
				} else {
					w.health.ok("dropping old dead letters")
					w.droppedLetters(l, dropped)
				}
			}
		}
		if len(streams) == 0 {
			continue
		}
		err := sweep.Run(ctx, w.control, streams, w.config.Group, (sweepAfter * w.config.Lease).Milliseconds(), w.id, w.id+suspectMark).Err()
		if err != nil && err != redis.Nil {
			k.failed(ctx, "removing consumers that are gone", err)
		} else {
			w.health.ok("removing consumers that are gone")
		}
	}
}
