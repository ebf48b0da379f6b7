package replay

import (
	"sync"
	"time"
)

// A desk is the core with its lock and the runners' waiting room.
type desk struct {
	mu sync.Mutex
	// Guarded by mu.
	core    core
	jobs    jobs          // for the clerk
	waiting [classes]int  // runners without work, by the last class they take
	waking  [classes]bool // one of them was signalled and has not come yet
	runners map[*runner]struct{}

	work [classes]*sync.Cond // there may be something for such a runner
}

// A jobs is what the clerk is to do.
type jobs struct {
	notes  []*entry // whose progress is to be recorded
	acks   []*entry // that have a record
	due    []*task  // whose backoff has ended
	dead   []*entry
	signal chan struct{} // capacity 1: there is something; further signals add nothing
}

func (j *jobs) call() {
	select {
	case j.signal <- struct{}{}:
	default:
	}
}

// size returns how many entries wait for the clerk that are in hand no more.
func (j *jobs) size() int { return len(j.acks) + len(j.dead) }

func newDesk() *desk {
	d := &desk{runners: make(map[*runner]struct{})}
	d.jobs.signal = make(chan struct{}, 1)
	for i := range d.work {
		d.work[i] = sync.NewCond(&d.mu)
	}
	return d
}

// call wakes one runner if there is work and one is waiting. Every runner that
// takes something calls the next: as many come as there is work for, and no
// crowd for one entry. It is called with mu held.
func (d *desk) call() {
	if d.core.closed {
		return
	}
	for _, g := range d.core.begun {
		d.await(g)
	}
	d.core.begun = d.core.begun[:0]
	for _, s := range d.core.told {
		s.lane.node.readers[s.class].kick()
	}
	d.core.told = d.core.told[:0]
	if d.core.hasReady(plain) && d.waiting[plain] > 0 {
		if !d.waking[plain] {
			d.waking[plain] = true
			d.work[plain].Signal()
		}
		return
	}
	if d.core.hasReady(express) && d.waiting[express] > 0 && !d.waking[express] {
		d.waking[express] = true
		d.work[express].Signal()
	}
}

// await makes a gather's batch run when its time has come. A timer that outlives
// the worker finds the desk closed.
func (d *desk) await(g *gather) {
	round := g.round
	time.AfterFunc(g.wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if g.round == round {
			d.core.ripen(g)
			d.call()
		}
	})
}

// take waits for a task, for a runner that takes classes up to upTo. It returns
// nil once the desk is closed. It is called with mu held.
func (d *desk) take(upTo class) *task {
	for {
		if t := d.core.next(upTo); t != nil {
			d.call()
			return t
		}
		if d.core.closed {
			return nil
		}
		d.waiting[upTo]++
		d.work[upTo].Wait()
		d.waiting[upTo]--
		d.waking[upTo] = false
	}
}

// close ends the starts for good.
func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.core.closed = true
	for _, c := range d.work {
		c.Broadcast()
	}
}

// room returns how many more entries of a class may be read.
func (d *desk) room(class class, limit int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.room(class, limit)
}

// behind returns how many open sources are not read to the end of what was
// pending when they were opened.
func (d *desk) behind(sources []*source) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range sources {
		if s.open && s.followed != s.epoch {
			n++
		}
	}
	return n
}

// inHand returns how many entries are in hand.
func (d *desk) inHand() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.inHand[express] + d.core.inHand[plain]
}

// held returns how many entries of a class are in hand, and their bytes.
func (d *desk) held(class class) (entries, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.core.inHand[class], d.core.bytes[class]
}

// wantRoom is room for a reader that is to be told, if there is none, when there
// is some again.
func (d *desk) wantRoom(class class, limit int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	room := d.core.room(class, limit)
	d.core.scarce[class] = 0
	if room <= 0 {
		d.core.scarce[class] = max(1, limit*3/4)
		d.core.hurry()
		d.call()
	}
	return room
}

// slowest names the listener that most of the entries in hand wait for.
func (d *desk) slowest(sources []*source) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := map[string]int{}
	for _, s := range sources {
		for _, e := range s.known {
			for i := range e.tasks {
				if t := &e.tasks[i]; e.state == held && t.state != ended && t.state != failed {
					counts[t.listener.name]++
				}
			}
		}
	}
	most := ""
	for name, n := range counts {
		if n > counts[most] || (n == counts[most] && name < most) {
			most = name
		}
	}
	return most
}

// acked forgets entries whose ack is confirmed.
func (d *desk) acked(s *source, ids []entryID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.core.acked(s, ids)
	s.lane.node.w.checkStill(s)
	if len(d.core.told) > 0 {
		d.call()
	}
}

// finish takes a task back whose run has ended. It is called with mu held.
func (d *desk) finish(t *task, o outcome) {
	s, e := t.entry.src, t.entry
	if d.core.finish(t, o) && e.state != lost {
		d.settle(e)
	} else if e.worthNoting() {
		d.note(e)
	}
	if s.nudge {
		s.nudge = false
		s.lane.node.readers[s.class].kick()
	}
	s.lane.node.w.checkStill(s)
	if len(d.core.told) > 0 || len(d.core.begun) > 0 {
		d.call()
	}
}

// settle does what follows when an entry's last listener has settled. It is called
// with mu held.
func (d *desk) settle(e *entry) {
	switch {
	case e.state == dying:
		d.jobs.dead = append(d.jobs.dead, e)
		d.jobs.call()
	case e.marked:
		d.jobs.acks = append(d.jobs.acks, e)
		d.jobs.call()
	default:
		e.src.lane.node.ack(e.src, e.id)
	}
}

// note has an entry's progress recorded. It is called with mu held.
func (d *desk) note(e *entry) {
	e.marked = true
	if !e.noting {
		e.noting = true
		d.jobs.notes = append(d.jobs.notes, e)
		d.jobs.call()
	}
}

// backlog returns how many entries wait to be acknowledged by script, or to be
// dead letters.
func (d *desk) backlog() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.jobs.size()
}

// still reports whether nothing of a lane is under way: no read that includes it,
// no run, no ack.
func (d *desk) still(l *lane) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range l.sources {
		if !s.still() {
			return false
		}
	}
	return true
}
