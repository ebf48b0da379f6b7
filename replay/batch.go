package replay

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice/listener"
)

// A batched is a task of a batch that runs.
type batched struct {
	task *task
	life context.Context // of its lane
}

// performBatch runs a batch listener for a task and its mates, those of them that
// are to be run, and hands all of them back.
func (r *runner) performBatch(first *task) {
	w, l := r.w, first.listener
	now := time.Now()
	r.batch = r.batch[:0]
	var ds []*listener.Delivery
	d := w.desk
	d.mu.Lock()
	for _, t := range append([]*task{first}, first.mates...) {
		if o, not := w.passOver(t, now); not {
			r.hand(t, o, 0, nil)
			continue
		}
		own := t.entry.delivery
		own.Listener, own.Attempt, own.MaxAttempts = l.name, t.attempt, l.maxAttempts
		ds = append(ds, &own)
		r.batch = append(r.batch, batched{t, t.entry.src.ctx})
	}
	d.mu.Unlock()
	if len(ds) == 0 {
		return
	}
	ctx, cancel := r.batchContext(now.Add(l.timeout))
	defer cancel()
	r.err = listener.ErrGoexit // until it says otherwise
	r.deadline.Store(int64(now.Sub(w.epoch) + l.timeout))
	l.RunBatch(ctx, ds, r.ended)
	if r.deadline.Swap(0) == 0 {
		return // abandoned meanwhile
	}
	l.counts.seconds.WithLabelValues(eventLabel(first.entry.delivery.Type)).Observe(time.Since(now).Seconds())
	r.settleBatch()
}

// batchContext returns the context of a batch: it ends at the deadline, or with
// any of the leases of the lanes that the batch's entries are of.
func (r *runner) batchContext(deadline time.Time) (context.Context, context.CancelFunc) {
	first := r.batch[0].life
	ctx, cancel := context.WithDeadline(first, deadline)
	lives := []context.Context{first}
	var stops []func() bool
	for _, b := range r.batch[1:] {
		if life := b.life; !slices.Contains(lives, life) {
			lives = append(lives, life)
			stops = append(stops, context.AfterFunc(life, cancel))
		}
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}

// settleBatch hands back the tasks of a batch that has run and ended with r.err.
func (r *runner) settleBatch() {
	w := r.w
	cut := slices.ContainsFunc(r.batch, func(b batched) bool { return b.life.Err() != nil })
	type ending struct {
		outcome outcome
		delay   time.Duration
	}
	endings := make([]ending, len(r.batch))
	for i, b := range r.batch {
		b.task.listener.counts.runs.Inc()
		err := listener.EventError(r.err, i)
		switch {
		case err == nil:
			endings[i].outcome = succeeded
		case cut && b.life.Err() == nil: // the context ended for another entry's sake
			endings[i].outcome = postponed
		default:
			r.ctx = b.life
			endings[i].outcome, endings[i].delay = r.judge(b.task, err)
		}
	}
	d := w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, b := range r.batch {
		r.hand(b.task, endings[i].outcome, endings[i].delay, listener.EventError(r.err, i))
	}
	clear(r.batch)
	d.call()
}
