package replay

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice/listener"
)

// places is how many entries of one key are in hand at most.
const places = 16

// maxSkipped is how many ids of a key's skipped entries are remembered; what
// follows them is found again in Redis when their turn comes.
const maxSkipped = 1024

// maxHeld is how many bytes of payloads and states of a class are in hand, and at
// most one read more: what bounds a worker's memory where entries are large.
const maxHeld = 64 << 20

// A class of streams: each has places and turns of its own.
type class uint8

const (
	express class = iota // goes first
	plain
	classes
)

// The core holds the entries in hand and says which listener runs next. It does
// no I/O and knows no clock; whoever holds it sees to it that it is called by one
// goroutine at a time.
//
// The unit of order is a listener and a key: a unit runs its entries one after
// another. Units of a key share its places: an entry has one from when it is
// taken until all its listeners have settled.
type core struct {
	ready  [classes]unitList
	inHand [classes]int
	bytes  [classes]int // of the payloads and states of those in hand
	scarce [classes]int // tell the reader when no more than these are in hand; 0: don't
	closed bool         // nothing starts any more

	suspicion           // at most one suspect is in hand
	gathers   []*gather // of the batch listeners
	whole     []*gather // those whose batch is to run
	begun     []*gather // those that have a first task since the desk looked

	keyPool *keyQueue // unused ones, linked by next
}

// A source is one stream as the core sees it.
type source struct {
	class    class
	label    string // 0/3, 0/x3: begins delivery ids
	stream   string // its Redis key
	progress string // the key of its entries' progress
	lane     *lane

	// Guarded like the core.
	epoch    int             // counts the times it was opened
	open     bool            // its entries may start
	ctx      context.Context // of the listeners' runs; ends when the lease does
	known    map[entryID]*entry
	keys     map[string]*keyQueue
	blocked  []*keyQueue // those with skipped entries
	running  int         // runs that have not returned
	unacked  int         // entries whose ack is not confirmed
	followed int         // the epoch in which it was read to the end of what was pending
	inRead   int         // reads under way that include it
	hungry   bool        // the reader waits for places of a key that has none
	nudge    bool        // the reader has something to look at
}

// An entry is an entry in hand.
type entry struct {
	src        *source
	id         entryID
	key        *keyQueue
	keyName    []byte // the key before it is taken; a part of the payload
	hasGuild   bool   // the key is a guild's id
	size       int    // of payload and state, in bytes
	deliveries int    // as Redis counts them, this one included
	state      entryState
	counted    bool          // among its source's unacked
	marked     bool          // Redis has, or may have, a record of its progress
	noting     bool          // its progress is to be recorded
	noted      int           // listeners in the record
	from       string        // a suspect's consumer; see suspicion
	orphaned   time.Duration // its age when a worker that is gone got it, if it had not been delivered before
	target     string
	reason     string // why it is a dead letter, if no listener is
	before     []progressLine
	left       int // listeners that have not settled
	running    int // listeners that run
	tasks      []task
	one        [1]task // what tasks is for most entries
	delivery   listener.Delivery
	shared     listener.Decoded
}

type entryState uint8

const (
	held   entryState = iota // has a place
	lost                     // has a place because a listener still runs; the lane is gone
	acking                   // all listeners have ended; to be acked
	dying                    // all listeners have settled, some failed; to be a dead letter
)

// A verdict is what became of an entry that was offered.
type verdict uint8

const (
	taken   verdict = iota // it has a place
	skipped                // its key had none: it stays pending and will be wanted again
	known                  // it is in hand, or skipped, already
	settled                // its listeners had all settled: it is acking or dying
	refused                // the stream is not open
	crowded                // its key has no place now; ask again soon
)

// A manner is how an entry is offered.
type manner uint8

const (
	firmly    manner = iota // an entry that finds no place is skipped
	patiently               // or the core says that its key is crowded
	again                   // it was skipped, and is the first of its key's
)

// open begins an epoch of a source.
func (c *core) open(s *source, ctx context.Context) {
	s.epoch++
	s.open = true
	s.ctx = ctx
	if s.known == nil {
		s.known = make(map[entryID]*entry)
		s.keys = make(map[string]*keyQueue)
	}
}

// still reports whether nothing of the source is under way.
func (s *source) still() bool { return s.running == 0 && s.unacked == 0 && s.inRead == 0 }

// shut ends the starts from a source; what runs may end.
func (c *core) shut(s *source) { s.open = false }

// drop ends an epoch: all that does not run is forgotten. What runs keeps its
// place until it returns.
func (c *core) drop(s *source) {
	s.open = false
	for _, k := range s.keys {
		k.skipped, k.more = nil, false
		for _, u := range k.units {
			u.head, u.tail = nil, nil // the units that run find it so when they end
		}
	}
	s.blocked = nil
	for id, e := range s.known {
		switch e.state {
		case dying: // the next owner finds its listeners settled
			delete(s.known, id)
			c.uncount(e)
			c.absolve(e)
		case held, lost:
			for i := range e.tasks {
				t := &e.tasks[i]
				if t.state == waiting && !t.unit.listener.unordered {
					t.unit.state = idle
				}
				if t.state == queued || t.state == waiting {
					t.state = dropped
				}
			}
			e.state = lost
			if e.running == 0 {
				c.forget(e)
			}
		}
	}
	for _, g := range c.gathers {
		g.sift()
	}
	for _, k := range s.keys {
		c.retire(k)
	}
}

// offer gives an entry to the core.
func (c *core) offer(e *entry, how manner) verdict {
	s := e.src
	if !s.open {
		return refused
	}
	if have, ok := s.known[e.id]; ok {
		if have.state == lost {
			c.revive(have)
		}
		return known
	}
	if e.open() == 0 { // with a former owner all listeners have settled
		s.known[e.id] = e
		c.end(e)
		return settled
	}
	k := s.keys[string(e.keyName)]
	switch {
	case k == nil:
		k = c.newKey(s, e.keyName)
	case how == again:
	case k.skipping() && e.id.compare(k.last) <= 0:
		return known
	case k.skipping():
		k.skip(e)
		return skipped
	}
	if e.from != "" && how != again {
		s.blocked = append(s.blocked, k)
		k.skip(e)
		return skipped
	}
	if k.places >= places {
		c.hurry()
		switch how {
		case patiently:
			return crowded
		case firmly:
			s.blocked = append(s.blocked, k)
			k.skip(e)
		}
		return skipped
	}
	k.places++
	c.inHand[s.class]++
	c.bytes[s.class] += e.size
	s.known[e.id] = e
	e.key = k
	if e.hasGuild {
		e.delivery.GuildID = k.name
	}
	e.state = held
	if e.from != "" {
		c.suspect = e
	}
	e.left = e.open()
	for i := range e.tasks {
		t := &e.tasks[i]
		t.entry = e
		t.unit = k.unit(t.listener)
		if t.state == queued {
			c.push(t)
		}
	}
	if k.places == places && k.skipping() { // there are more that can't join a batch
		c.hurry()
	}
	return taken
}

// open returns how many of the entry's listeners have not settled.
func (e *entry) open() int {
	n := 0
	for i := range e.tasks {
		if !e.tasks[i].over() {
			n++
		}
	}
	return n
}

// bury notes an entry that is to be a dead letter without a run. It reports
// whether it was not known.
func (c *core) bury(e *entry) bool {
	if have, ok := e.src.known[e.id]; !e.src.open || ok && have.state != lost {
		return false
	}
	e.src.known[e.id] = e
	c.end(e)
	return true
}

// buried forgets an entry that is a dead letter, or need not be one.
func (c *core) buried(e *entry) {
	if e.src.known[e.id] == e {
		delete(e.src.known, e.id)
	}
	c.uncount(e)
	c.absolve(e)
}

// uncount takes an entry from its source's unacked: a lane that is to be handed
// over does not wait for it.
func (c *core) uncount(e *entry) {
	if e.counted {
		e.counted = false
		e.src.unacked--
	}
}

// pass returns an entry that is to be acknowledged without a run.
func (c *core) pass(s *source, id entryID) *entry {
	e := &entry{src: s, id: id}
	s.known[id] = e
	c.end(e)
	return e
}

// room returns how many more entries of a class may be taken, of limit in all.
func (c *core) room(class class, limit int) int {
	if c.bytes[class] >= maxHeld {
		return 0
	}
	return limit - c.inHand[class]
}

// revive puts back what drop has taken out of an entry that is running still.
func (c *core) revive(e *entry) {
	e.state = held
	for i := range e.tasks {
		if t := &e.tasks[i]; t.state == dropped {
			c.push(t)
		}
	}
}

// next returns the task to be run now, nil if there is none.
func (c *core) next(upTo class) *task {
	if c.closed {
		return nil
	}
	for class := express; class <= upTo; class++ {
		if class == plain && len(c.whole) > 0 {
			if t := c.batch(); t != nil {
				return t
			}
		}
		for u := c.ready[class].pop(); u != nil; u = c.ready[class].pop() {
			t := u.head
			if t == nil || !u.key.src.open {
				u.state = idle
				c.retire(u.key)
				continue
			}
			u.head = t.next
			if u.head == nil {
				u.tail = nil
			}
			t.next = nil
			t.start()
			u.state = busy
			if u.listener.unordered {
				c.advance(u)
			}
			return t
		}
	}
	return nil
}

// hasReady reports whether next would look at anything.
func (c *core) hasReady(upTo class) bool {
	if upTo >= plain && len(c.whole) > 0 {
		return true
	}
	for class := express; class <= upTo; class++ {
		if c.ready[class].head != nil {
			return true
		}
	}
	return false
}

// finish takes a task back whose run has ended. settled is set if it was the
// entry's last: the entry is then to be acked (acking), to be a dead letter
// (dying), or is given up for the lane's next owner to end (lost). A revoked task
// takes its stream's other entries with it.
func (c *core) finish(t *task, o outcome) (settled bool) {
	e, u := t.entry, t.unit
	s := e.src
	e.running--
	s.running--
	switch o {
	case succeeded, gaveUp:
		t.state = ended
		if o == gaveUp {
			t.state = failed
		}
		e.left--
		if !u.listener.unordered {
			c.advance(u)
		}
		if e.left == 0 {
			if e.state == lost && e.fatal() { // a dead letter needs the lease
				c.forget(e)
				return true
			}
			c.leave(e)
			c.end(e)
			return true
		}
	case retry:
		if e.state == lost {
			t.state = dropped
			t.attempt++
			if !u.listener.unordered {
				c.advance(u)
			}
			break
		}
		t.state = waiting
		t.attempt++
		e.deliveries = max(e.deliveries, t.attempt)
	case postponed:
		t.state = dropped
		if e.state == held && s.open {
			c.requeue(t)
		}
	case revoked:
		t.state = dropped
		if e.state == held && t.epoch != s.epoch { // the lane is back already
			c.requeue(t)
			break
		}
		if !u.listener.unordered {
			c.advance(u)
		}
		if e.state == held && s.open {
			c.drop(s)
			return false
		}
	}
	if e.state == lost && e.running == 0 {
		c.forget(e)
	}
	return false
}

// wake ends a task's wait. It does nothing if the task no longer waits.
func (c *core) wake(t *task) {
	if t.state != waiting {
		return
	}
	c.requeue(t)
}

// requeue puts a task back at the head of its unit.
func (c *core) requeue(t *task) {
	t.state = queued
	if g := t.listener.gather; g != nil {
		c.gather(g, t)
		return
	}
	u := t.unit
	t.next = u.head
	u.head = t
	if u.tail == nil {
		u.tail = t
	}
	if u.state != inReady {
		u.state = inReady
		c.ready[u.key.src.class].push(u)
	}
}

// acked forgets entries whose ack is confirmed.
func (c *core) acked(s *source, ids []entryID) {
	s.unacked -= len(ids)
	for _, id := range ids {
		if e, ok := s.known[id]; ok && e.state == acking {
			delete(s.known, id)
			c.absolve(e)
		}
	}
}

// fatal reports whether a listener was given up for the entry, here or before.
func (e *entry) fatal() bool {
	if e.reason != "" {
		return true
	}
	for i := range e.tasks {
		if e.tasks[i].state == failed {
			return true
		}
	}
	return slices.ContainsFunc(e.before, func(l progressLine) bool { return l.failed })
}

// end gives an entry whose listeners have all settled the state that follows.
func (c *core) end(e *entry) {
	e.state = acking
	if e.fatal() {
		e.state = dying
	}
	e.counted = true
	e.src.unacked++
}

// forget gives an entry up that is still pending in Redis.
func (c *core) forget(e *entry) {
	delete(e.src.known, e.id)
	c.absolve(e)
	c.leave(e)
}

// leave frees an entry's place.
func (c *core) leave(e *entry) {
	k := e.key
	e.key = nil
	c.inHand[e.src.class]--
	c.bytes[e.src.class] -= e.size
	k.places--
	if (k.skipping() || k.src.hungry) && k.free() {
		k.src.nudge = true
	}
	if class := k.src.class; c.scarce[class] > 0 && c.inHand[class] <= c.scarce[class] && c.bytes[class] <= maxHeld*3/4 {
		c.scarce[class] = 0
		k.src.nudge = true
	}
	c.retire(k)
}

// retire puts a key away that has nothing left.
func (c *core) retire(k *keyQueue) {
	if k.places > 0 || k.skipping() {
		return
	}
	for _, u := range k.units {
		if u.state == inReady { // empty, but still in the list: it will be found so
			return
		}
	}
	delete(k.src.keys, k.name)
	k.src = nil
	k.next = c.keyPool
	c.keyPool = k
}

// push appends a task to its unit.
func (c *core) push(t *task) {
	t.state = queued
	t.next = nil
	if g := t.listener.gather; g != nil {
		c.gather(g, t)
		return
	}
	u := t.unit
	if u.tail == nil {
		u.head = t
	} else {
		u.tail.next = t
	}
	u.tail = t
	if u.state == idle {
		u.state = inReady
		c.ready[u.key.src.class].push(u)
	}
}

// advance lets a unit go on with its next task.
func (c *core) advance(u *unit) {
	if u.head == nil {
		u.state = idle
		return
	}
	u.state = inReady
	c.ready[u.key.src.class].push(u)
}
