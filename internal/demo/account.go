package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/listener"
)

// recorded is the number of dispatches in the recorded session.
var recorded = len(corpus.SessionEnvelopes())

// A ledger keeps account of every dispatch that a listener has handled.
type ledger struct {
	mu      sync.Mutex
	handled map[int64]handled // by sequence
	twice   int
	order   int              // handled before an earlier one of its guild
	last    map[string]int64 // by guild
}

// handled is what a listener got.
type handled struct {
	event    string
	previous []byte
}

func newLedger() *ledger {
	return &ledger{handled: make(map[int64]handled), last: make(map[string]int64)}
}

// take is the listener.
func (l *ledger) take(_ context.Context, d *listener.Delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.handled[d.Sequence]; ok {
		l.twice++ // what a stopped worker had in hand; the order is that of the first time
		return nil
	}
	l.handled[d.Sequence] = handled{d.Type, d.Previous}
	if d.GuildID != "" && d.Type != "INTERACTION_CREATE" { // those go before all others
		if d.Sequence < l.last[d.GuildID] {
			l.order++
		}
		l.last[d.GuildID] = max(l.last[d.GuildID], d.Sequence)
	}
	return nil
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.handled)
}

// summary compares what Discord sent with the streams and with what was handled.
func (d *demo) summary(ctx context.Context) error {
	var entries int64
	for _, key := range d.streams() {
		n, err := d.rdb.XLen(ctx, key).Result()
		if err != nil {
			return err
		}
		entries += n
	}
	pending := d.pending(ctx)
	exact, inexact, missing := d.states()
	sent := d.discord.Sent()
	identifies, resumes := len(d.discord.Identifies()), len(d.discord.Resumes())

	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	d.out.rule("what came of it")
	var errs []error
	check := func(what string, ok bool, format string, args ...any) {
		mark := "✓"
		if !ok {
			mark = "✗"
			errs = append(errs, errors.New(what))
		}
		d.out.line("", fmt.Sprintf("%s %-26s %s", mark, what, fmt.Sprintf(format, args...)))
	}
	check("dispatches sent", len(sent) > recorded, "%d, in one session: %d identify, %d resume", len(sent), identifies, resumes)
	check("entries in the streams", int(entries) == len(sent), "%d, each dispatch once", entries)
	check("handled", len(d.seen.handled) == len(sent) && missing == 0, "%d, and %d more than once", len(d.seen.handled), d.seen.twice)
	check("in order per guild", d.seen.order == 0, "%d out of order", d.seen.order)
	check("previous states exact", inexact == 0 && exact > 0, "%d of %d", exact, exact+inexact)
	check("not acknowledged", pending == 0, "%d", pending)
	check("sessions lost", identifies == 1 && resumes >= 1, "%d", identifies-1)
	if len(errs) > 0 {
		return fmt.Errorf("the demo found fault: %w", errors.Join(errs...))
	}
	return nil
}

// states compares the previous state that came with each dispatch with the recorded
// one. It counts those of the recorded types: what others must have been follows from
// rules that are ours.
func (d *demo) states() (exact, inexact, missing int) {
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	want := make(map[string][]json.RawMessage) // by dispatch, in order
	states := corpus.States()
	for _, e := range corpus.SessionEnvelopes() {
		key := e.Type + string(e.Payload)
		want[key] = append(want[key], states[e.Seq()].Previous)
	}
	for _, s := range d.discord.Sent() {
		got, ok := d.seen.handled[s.Sequence]
		if !ok {
			missing++
		}
		key := s.Type + string(s.Data)
		list := want[key]
		if len(list) == 0 {
			continue // READY, whose session is its own, and RESUMED
		}
		want[key] = list[1:]
		switch same := reflect.DeepEqual(bare(list[0]), bare(got.previous)); {
		case !same:
			inexact++
		case len(got.previous) > 0 && corpus.Recorded(s.Type):
			exact++
		}
	}
	return exact, inexact, missing
}

// bare decodes a state without what the children of a GUILD_CREATE lack.
func bare(text []byte) any {
	var v any
	if len(text) == 0 || json.Unmarshal(text, &v) != nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			delete(m, "guild_id")
			delete(m, "newly_created")
		}
	}
	return v
}
