package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A clerk keeps the books on entries that have failed: it records their progress,
// notes in Redis that they are about to run again, makes them dead letters, and
// acknowledges those that have a record. It takes what has come together in one
// round trip. All of it is on one goroutine, so an entry's steps reach Redis in
// their order.
type clerk struct {
	w     *Worker
	rest  []*job // could not be done
	full  bool   // the scripts are to be sent, not their hashes: the server has forgotten them
	round []*job
}

// A job is one call of a script.
type job struct {
	kind    jobKind
	entry   *entry // of a note or a dead letter
	source  *source
	entries []*entry // acks
	tasks   []*task  // restarts
	counts  []int    // of each task
	marks   []string // of each task: ends the name of the consumer it is claimed for
	noted   int      // lines of a note
	own     bool     // with the entry's own fields
	tries   int
	at      time.Time // not before
	cmd     *redis.Cmd
}

type jobKind uint8

const (
	noteJob jobKind = iota
	restartJob
	ackJob
	buryJob
)

// jobNames are for texts and the health.
var jobNames = [...]string{"recording progress", "retries", "acks of retried entries", "dead letters"}

// maxJobs bounds a round trip.
const maxJobs = 128

// run does what comes until ctx ends, and then what is left, once.
func (k *clerk) run(ctx context.Context) {
	last := context.WithoutCancel(ctx)
	for {
		wait := k.collect()
		if len(k.round) == 0 {
			timer := time.NewTimer(wait)
			select {
			case <-k.w.desk.jobs.signal:
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				if k.collect(); len(k.round) > 0 {
					k.do(last)
				}
				return
			}
			timer.Stop()
			continue
		}
		if err := k.do(last); err != nil && ctx.Err() != nil {
			return // what is not done is left to the lanes' next owners
		}
	}
}

// collect takes the jobs of the next round, and returns how long to wait if there
// are none.
func (k *clerk) collect() time.Duration {
	d := k.w.desk
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	k.round = k.round[:0]
	wait := time.Minute
	rest := k.rest[:0]
	for _, j := range k.rest {
		switch {
		case !j.open():
			k.drop(j)
		case len(k.round) < maxJobs && !now.Before(j.at):
			k.round = append(k.round, j)
		default:
			rest = append(rest, j)
			wait = min(wait, max(time.Millisecond, j.at.Sub(now)))
		}
	}
	clear(k.rest[len(rest):])
	k.rest = rest
	q := &d.jobs
	q.notes = k.take(q.notes, func(e *entry) *job { return &job{kind: noteJob, entry: e, source: e.src} })
	k.restarts(q)
	k.acks(q)
	q.dead = k.take(q.dead, func(e *entry) *job { return &job{kind: buryJob, entry: e, source: e.src} })
	if len(q.notes)+len(q.due)+len(q.acks)+len(q.dead) > 0 {
		q.call()
	}
	return wait
}

func (k *clerk) take(queue []*entry, make func(*entry) *job) []*entry {
	n := 0
	for n < len(queue) && len(k.round) < maxJobs {
		if j := make(queue[n]); j.open() {
			k.round = append(k.round, j)
		} else {
			k.drop(j)
		}
		n++
	}
	return shifted(queue, n)
}

// shifted returns a queue without its first n.
func shifted[T any](queue []*T, n int) []*T {
	m := copy(queue, queue[n:])
	clear(queue[m:])
	return queue[:m]
}

// restarts makes a job of each source's tasks that are due.
func (k *clerk) restarts(q *jobs) {
	of := map[*source]*job{}
	for _, t := range q.due {
		s := t.entry.src
		if t.state != waiting || !s.open { // taken out since
			continue
		}
		j := of[s]
		if j == nil {
			j = &job{kind: restartJob, source: s}
			of[s] = j
			k.round = append(k.round, j)
		}
		j.tasks = append(j.tasks, t)
		j.counts = append(j.counts, t.entry.deliveries)
		mark := ""
		if c := &k.w.desk.core; c.suspect == t.entry && !c.cleared(t.entry) {
			mark = suspectMark // another of its listeners has not run
		}
		j.marks = append(j.marks, mark)
	}
	q.due = shifted(q.due, len(q.due))
}

func (k *clerk) acks(q *jobs) {
	of := map[*source]*job{}
	for _, e := range q.acks {
		j := of[e.src]
		if j == nil {
			j = &job{kind: ackJob, source: e.src}
			of[e.src] = j
			k.round = append(k.round, j)
		}
		j.entries = append(j.entries, e)
	}
	q.acks = shifted(q.acks, len(q.acks))
}

// open reports whether a job is still to be done. It is called with the desk's
// mutex held.
func (j *job) open() bool {
	switch j.kind {
	case noteJob:
		return j.entry.state != acking
	case buryJob:
		return j.source.open && j.source.known[j.entry.id] == j.entry
	case restartJob:
		return j.source.open
	}
	return true
}

// name says what a job is about.
func (j *job) name() string {
	if j.kind == buryJob {
		return jobNames[j.kind] + " in " + j.source.lane.dead
	}
	return jobNames[j.kind] + " of " + j.source.stream
}

// drop lets go of a job that is not to be done. It is called with the desk's mutex
// held.
func (k *clerk) drop(j *job) {
	if j.tries > 0 {
		k.w.health.ok(j.name()) // if others of its name fail they will say so
	}
	if j.kind == noteJob {
		j.entry.noting = false
	}
	if j.kind == buryJob && j.source.known[j.entry.id] == j.entry && !j.source.open {
		k.w.desk.core.uncount(j.entry) // the next owner will do it
		k.w.checkStill(j.source)
	}
}

// do sends the round's jobs and takes in the answers.
func (k *clerk) do(ctx context.Context) error {
	w := k.w
	now := w.clock()
	pipe := w.control.Pipeline()
	for _, j := range k.round {
		j.cmd = nil
		if (j.kind == buryJob || j.kind == restartJob) && !j.source.lane.valid(now) {
			continue // it is lost, or will be renewed
		}
		keys, args := k.call(j)
		run := (*redis.Script).EvalSha
		if k.full {
			run = (*redis.Script).Eval
		}
		j.cmd = run(scripts[j.kind], ctx, pipe, keys, args...)
	}
	var transport error
	if pipe.Len() > 0 {
		_, transport = pipe.Exec(ctx)
	}
	if said := redis.Error(nil); transport != nil && errors.As(transport, &said) {
		transport = nil // of one of the commands
	}
	k.full = false
	d := w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range k.round {
		err := error(nil)
		switch {
		case j.cmd == nil:
			err = errNoLease
		case transport != nil && j.cmd.Err() == nil && j.cmd.Val() == nil:
			err = transport
		default:
			err = j.cmd.Err()
		}
		k.answered(j, err)
	}
	d.call()
	return transport
}

var scripts = [...]*redis.Script{noteJob: note, restartJob: restart, ackJob: settle, buryJob: bury}

var errNoLease = errors.New("the lease of the lane has ended")

// call returns the keys and arguments of a job's script.
func (k *clerk) call(j *job) (keys []string, args []any) {
	c := &k.w.config
	s := j.source
	switch j.kind {
	case noteJob:
		keys = []string{s.stream, s.progress}
		args = []any{c.Group, j.entry.id.String()}
		k.w.desk.mu.Lock()
		lines := j.entry.progress()
		k.w.desk.mu.Unlock()
		j.noted = len(lines)
		for _, line := range lines {
			args = append(args, line.String())
		}
	case restartJob:
		keys = []string{s.lane.lease, s.stream}
		args = []any{k.w.id, c.Group}
		for i, t := range j.tasks {
			args = append(args, t.entry.id.String(), j.counts[i], k.w.id+j.marks[i])
		}
	case ackJob:
		keys = []string{s.stream, s.progress}
		args = []any{c.Group}
		for _, e := range j.entries {
			args = append(args, e.id.String())
		}
	case buryJob:
		keys = []string{s.stream, s.lane.dead, s.progress, s.lane.lease}
		names, errs := j.entry.failures()
		args = []any{
			c.Group, j.entry.id.String(), k.w.id, strings.Join(names, ","), strings.Join(errs, "\n"),
			c.DeadLength, c.DeadAge.Milliseconds(),
		}
		if j.own {
			args = j.entry.appendFields(args)
		}
	}
	return keys, args
}

// answered takes in what became of a job. It is called with the desk's mutex held.
func (k *clerk) answered(j *job, err error) {
	w := k.w
	s := j.source
	name := j.name()
	if err == nil {
		err = k.accept(j)
	}
	switch {
	case err == nil:
		w.health.ok(name)
	case errors.Is(err, errAgain):
		k.again(j, 0)
	case errors.Is(err, errNoLease): // the keeper finds out, if it is so
		k.again(j, backoff0)
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		k.full = true
		k.again(j, 0)
	case strings.Contains(err.Error(), "NOGROUP"):
		// Nothing is pending where there is no group: what was is read again.
		k.nothing(j)
	default:
		w.health.fail(name, err)
		if j.kind == buryJob {
			w.desk.core.uncount(j.entry) // neither a lane that is to be handed over waits for this
			w.desk.core.absolve(j.entry) // nor the next suspect
			w.checkStill(s)
			if j.entry.worthNoting() { // for the lane's next owner
				w.desk.note(j.entry)
			}
		}
		k.again(j, min(backoffN, backoff0<<min(j.tries, 10)))
		j.tries++
	}
}

func (k *clerk) again(j *job, in time.Duration) {
	j.at = time.Now().Add(in)
	k.rest = append(k.rest, j)
	k.w.desk.jobs.call()
}

// errAgain asks for the same job again, now.
var errAgain = errors.New("again")

// accept takes in a script's answer. It is called with the desk's mutex held.
func (k *clerk) accept(j *job) error {
	w := k.w
	d := w.desk
	switch j.kind {
	case noteJob:
		e := j.entry
		e.noting = false
		e.noted = max(e.noted, j.noted)
		if (e.state == held || e.state == lost) && e.worthNoting() {
			d.note(e)
		}
	case restartJob:
		due, err := j.cmd.Int64Slice()
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		if len(due) == 1 && due[0] == 0 {
			return errNoLease
		}
		pending := make([]bool, len(j.tasks)+1)
		for _, i := range due {
			if i >= 1 && int(i) < len(pending) {
				pending[i] = true
			}
		}
		for i, t := range j.tasks {
			if pending[i+1] {
				if j.marks[i] == "" {
					d.core.absolve(t.entry)
				}
				d.core.wake(t)
			} else {
				k.acked(t)
			}
		}
	case ackJob:
		n, err := j.cmd.Int64()
		if err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		w.metrics.acked.Add(float64(n))
		w.metrics.lateAcks.Add(float64(int64(len(j.entries)) - n))
		k.forget(j)
	case buryJob:
		return k.buried(j)
	}
	return nil
}

// acked ends a task whose entry somebody else has acknowledged.
func (k *clerk) acked(t *task) {
	d := k.w.desk
	if t.state != waiting {
		return
	}
	t.start() // and ends at once
	d.finish(t, succeeded)
}

// nothing ends a job on entries that are not pending any more.
func (k *clerk) nothing(j *job) {
	d := k.w.desk
	switch j.kind {
	case noteJob:
		j.entry.noting = false
	case restartJob:
		for _, t := range j.tasks {
			k.acked(t)
		}
	case ackJob:
		k.forget(j)
	case buryJob:
		d.core.buried(j.entry)
		k.w.checkStill(j.source)
	}
}

func (k *clerk) forget(j *job) {
	ids := make([]entryID, len(j.entries))
	for i, e := range j.entries {
		ids[i] = e.id
	}
	k.w.desk.core.acked(j.source, ids)
	k.w.checkStill(j.source)
}

// buried takes in what became of a dead letter.
func (k *clerk) buried(j *job) error {
	w := k.w
	answer, err := j.cmd.Slice()
	if err != nil || len(answer) == 0 {
		return fmt.Errorf("bury: %w", errors.Join(errReply, err))
	}
	switch answer[0] {
	case "lost":
		return errNoLease
	case "gone":
		if j.own || j.entry.delivery.Type == "" {
			w.metrics.vanished.Inc()
			w.drops.log(w.log, slog.LevelError, "entry was trimmed before it could be a dead letter",
				slog.String("id", deliveryID(j.source.label, j.entry.id)))
			w.desk.core.pass(j.source, j.entry.id)
			w.desk.core.uncount(j.entry)
			w.desk.core.absolve(j.entry)
			j.source.lane.node.ack(j.source, j.entry.id)
			return nil
		}
		j.own = true
		return errAgain
	case "stored":
		if len(answer) == 3 {
			letter, _ := answer[1].(string)
			dropped, _ := answer[2].(int64)
			w.mourn(j.entry, letter, dropped)
		}
	}
	w.desk.core.buried(j.entry)
	w.checkStill(j.source)
	return nil
}
