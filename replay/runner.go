package replay

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/listener"
)

// A runner runs listeners, one at a time, on a goroutine of its own.
type runner struct {
	w    *Worker
	upTo class // the classes it takes

	// Guarded by the desk's mutex.
	task      *task     // being run
	abandoned bool      // its task was settled without it
	batch     []batched // its task and mates, those that are run

	ctx      context.Context // of the stream whose task it is
	deadline atomic.Int64    // time.Duration of Worker.clock when its listener should have returned; 0: it runs none
	ended    func(error)     // notes how the listener ended
	err      error
}

// overtime is how long past the end of its context a listener may take to return.
const overtime = 5 * time.Second

// startRunner starts a runner. It ends when the desk is closed, or with its
// goroutine, which a listener may end: then another takes its place.
func (w *Worker) startRunner(upTo class) {
	r := &runner{w: w, upTo: upTo}
	r.ended = func(err error) { r.err = err }
	w.runners.Go(r.run)
}

func (r *runner) run() {
	d := r.w.desk
	returned := false
	defer func() {
		if returned {
			return
		}
		if r.deadline.Swap(0) != 0 { // the listener has ended the goroutine
			if r.task.listener.gather != nil {
				r.settleBatch()
			} else {
				r.settle(r.judge(r.task, r.err))
			}
			r.w.startRunner(r.upTo)
		}
		d.mu.Lock()
		delete(d.runners, r)
		d.mu.Unlock()
	}()
	d.mu.Lock()
	d.runners[r] = struct{}{}
	for !r.abandoned {
		r.task = d.take(r.upTo)
		if r.task == nil {
			break
		}
		r.ctx = r.task.entry.src.ctx
		d.mu.Unlock()
		if r.task.listener.gather != nil {
			r.performBatch(r.task)
			d.mu.Lock()
			continue
		}
		o, delay := r.perform(r.task)
		d.mu.Lock()
		if !r.abandoned {
			r.hand(r.task, o, delay, r.err)
		}
	}
	delete(d.runners, r)
	d.mu.Unlock()
	returned = true
}

func (r *runner) settle(o outcome, delay time.Duration) {
	r.w.desk.mu.Lock()
	defer r.w.desk.mu.Unlock()
	r.hand(r.task, o, delay, r.err)
}

// hand hands a task back, with the error of its run if it failed; one to be
// retried is woken after delay. It is called with the desk's mutex held.
func (r *runner) hand(t *task, o outcome, delay time.Duration, err error) {
	if o == retry || o == gaveUp {
		t.err = err
	}
	r.w.desk.finish(t, o)
	if o == retry {
		r.later(t, delay)
	}
}

// later has the clerk wake a task after delay. A timer that outlives the worker finds the desk
// closed.
func (r *runner) later(t *task, delay time.Duration) {
	d := r.w.desk
	time.AfterFunc(delay, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.state == waiting && !d.core.closed {
			d.jobs.due = append(d.jobs.due, t)
			d.jobs.call()
		}
	})
}

// perform runs a task's listener, unless there is a reason not to.
func (r *runner) perform(t *task) (outcome, time.Duration) {
	w, e, l := r.w, t.entry, t.listener
	now := time.Now()
	if o, not := w.passOver(t, now); not {
		return o, 0
	}
	d := &e.delivery
	var shared *listener.Decoded
	if len(e.tasks) > 1 || t.err != nil {
		own := e.delivery
		d = &own
		shared = &e.shared
	}
	d.Listener, d.Attempt, d.MaxAttempts = l.name, t.attempt, l.maxAttempts
	run := &runContext{parent: r.ctx, deadline: now.Add(l.timeout)}
	r.err = listener.ErrGoexit // until it says otherwise
	r.deadline.Store(int64(now.Sub(w.epoch) + l.timeout))
	defer run.end()
	l.Run(run, d, shared, r.ended)
	if r.deadline.Swap(0) == 0 {
		return gaveUp, 0 // abandoned meanwhile: nobody takes this
	}
	l.counts.runs.Inc()
	if took := time.Since(now); took >= time.Millisecond {
		l.counts.seconds.WithLabelValues(eventLabel(e.delivery.Type)).Observe(took.Seconds())
	}
	if r.err == nil {
		return succeeded, 0
	}
	return r.judge(t, r.err)
}

// passOver reports whether a task is not to be run, and what becomes of it then.
func (w *Worker) passOver(t *task, now time.Time) (o outcome, not bool) {
	e, l := t.entry, t.listener
	switch {
	case !e.src.lane.valid(now.Sub(w.epoch)):
		return revoked, true
	case l.off:
		l.counts.passedOver.Inc()
		return succeeded, true
	case w.expired(t, now.Sub(w.epoch)):
		l.counts.expired.WithLabelValues(eventLabel(e.delivery.Type)).Inc()
		return succeeded, true
	}
	return 0, false
}

// judge decides what follows from a run that failed.
func (r *runner) judge(t *task, err error) (outcome, time.Duration) {
	w, l := r.w, t.listener
	if r.ctx.Err() != nil { // the lane was lost, or the worker stops: not the listener's fault
		return revoked, 0
	}
	l.counts.failures.Inc()
	attrs := []slog.Attr{
		slog.String("id", t.entry.delivery.ID), slog.String("event", t.entry.delivery.Type),
		slog.String("listener", l.name), slog.Int("attempt", t.attempt), slog.Any("err", err),
	}
	if stack, ok := errors.AsType[*listener.PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(stack.Stack)))
	}
	if t.attempt >= l.maxAttempts || listener.Discarded(err) {
		l.counts.givenUp.WithLabelValues(reasonOf(err)).Inc()
		w.givenUp.log(w.log, slog.LevelWarn, "listener was given up for an entry", attrs...)
		return gaveUp, 0
	}
	l.counts.retries.Inc()
	delay, asked := listener.RetryDelay(err)
	if asked {
		delay = min(delay, w.config.BackoffMax)
	} else {
		delay = w.backoff(t.attempt)
	}
	w.log.LogAttrs(context.Background(), slog.LevelDebug, "listener failed and will run again", append(attrs, slog.Duration("in", delay))...)
	return retry, delay
}

// backoff returns how long to wait after a number of failed runs.
func (w *Worker) backoff(failed int) time.Duration {
	d := w.config.BackoffMax
	if shift := failed - 1; shift < 62 && w.config.Backoff <= d>>shift {
		d = w.config.Backoff << shift
	}
	return d - rand.N(d/2+1)
}

// abandon gives up on a task whose listener does not return. It is called with the
// desk's mutex held.
func (w *Worker) abandon(t *task) {
	t.err = errAbandoned
	t.listener.counts.givenUp.WithLabelValues(reasonOf(t.err)).Inc()
	w.desk.finish(t, gaveUp)
}

// watch settles the tasks of listeners that do not return, and gives others a
// runner in their place, until ctx ends.
func (w *Worker) watch(ctx context.Context) {
	tick := time.NewTicker(overtime / 5)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := int64(w.clock())
		d := w.desk
		d.mu.Lock()
		for r := range d.runners {
			due := r.deadline.Load()
			if due == 0 || due+int64(overtime) > now || !r.deadline.CompareAndSwap(due, 0) {
				continue
			}
			r.abandoned = true
			delete(d.runners, r)
			l := r.task.listener
			w.stuck.log(w.log, slog.LevelError, "listener does not return and is abandoned", slog.String("listener", l.name),
				slog.String("id", r.task.entry.delivery.ID), slog.String("event", r.task.entry.delivery.Type), slog.Duration("timeout", l.timeout))
			l.counts.abandoned.Inc()
			if l.gather == nil {
				w.abandon(r.task)
			}
			for _, b := range r.batch {
				w.abandon(b.task)
			}
			w.startRunner(r.upTo)
		}
		d.mu.Unlock()
	}
}
