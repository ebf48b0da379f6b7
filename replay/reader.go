package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
)

const (
	maxCount   = 256                  // entries of a stream in one read
	minRead    = 64                   // entries of all streams in one, while it is not known how large they are
	maxRead    = 8 << 20              // bytes after which less is read at a time
	patience   = 2 * time.Millisecond // how long a read's entries wait for a place
	fullCheck  = 5 * time.Millisecond
	retryGroup = time.Second
	deafBlock  = 100 * time.Millisecond
)

// A reader reads the open streams of one class on one node. Everything it does
// to a stream it does one after another: what is pending goes before what is new.
type reader struct {
	n       *node
	w       *Worker
	class   class
	streams []*stream // of all lanes

	parked  atomic.Int64  // CLIENT ID of a connection that is blocked in a read, else 0
	call    atomic.Bool   // there is something else to look at
	kicked  chan struct{} // capacity 1: the same, for a reader that waits here
	stuffed atomic.Bool   // nothing is read because too much is in hand

	// The reading goroutine's alone.
	active  []*stream
	asked   []*stream
	flights [2]flight
	backlog bool // the last read has left entries behind
	count   int  // entries of all streams in one read, at most, but one of each
	taken   int  // entries of the last read
	large   bool // the last read was
	decoder decoder
	items   []item
	pending []pendingEntry
	fields  dispatch.Fields
	matches map[string][]*bound
	skipped []skippedEntry
	failed  int // rounds in a row
}

// A stream is a source as its reader sees it.
type stream struct {
	*source
	seen    int // the epoch this is about
	phase   phase
	cursor  entryID // pending entries up to here were looked at
	newest  entryID // of all that were offered
	served  bool    // the group was there before
	retryAt time.Time
	entries []*entry       // of this read
	others  bool           // another consumer has pending entries
	left    map[string]int // suspects and such that stay pending for their consumers, by consumer
}

// serves reports whether the source is still what this is about: its entries may be
// read. It is called with the desk's mutex held.
func (s *stream) serves() bool { return s.open && s.seen == s.epoch }

type phase uint8

const (
	ensuring   phase = iota // the group may not exist
	recovering              // what is pending was not looked at
	following               // what is new is read
)

func newReader(n *node, class class) *reader {
	return &reader{
		n: n, w: n.w, class: class, kicked: make(chan struct{}, 1), count: minRead,
		matches: make(map[string][]*bound),
	}
}

func (r *reader) add(s *source) { r.streams = append(r.streams, &stream{source: s}) }

// kick makes the reader look again. It does not block.
func (r *reader) kick() {
	r.call.Store(true)
	select {
	case r.kicked <- struct{}{}:
	default:
	}
	if r.parked.Load() != 0 {
		r.n.signal()
	}
}

// idle waits for a kick, at most d, and reports whether ctx still lasts.
func (r *reader) idle(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-r.kicked:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	name := "reading" + r.n.name
	if r.class == express {
		name = "reading express streams" + r.n.name
	}
	defer r.leave()
	for ctx.Err() == nil {
		if len(r.view()) == 0 {
			r.idle(ctx, time.Second)
			continue
		}
		err := r.session(ctx, name)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errQuiet):
		default:
			r.w.health.fail(name, err)
			r.failed++
			pause(ctx, r.failed-1)
		}
	}
}

// errQuiet ends a session in which the server did not answer a read in time; it
// may have begun to wait anew (Redis before 7.2 does so when another consumer was
// served). That is nothing wrong.
var errQuiet = errors.New("no answer to a read")

// session reads on one connection until that fails.
func (r *reader) session(ctx context.Context, name string) error {
	c, err := r.n.connect(ctx, readBuffer)
	if err != nil {
		return err
	}
	defer c.close()
	// A read whose answer was lost has left entries pending.
	for _, s := range r.streams {
		switch s.phase {
		case following:
			s.phase, s.cursor = recovering, s.newest
		case recovering: // it is not known how far that went
			s.cursor = entryID{}
		}
	}
	for ctx.Err() == nil {
		r.call.Store(false)
		select {
		case <-r.kicked:
		default:
		}
		if len(r.view()) == 0 {
			if !r.idle(ctx, time.Second) {
				return nil
			}
			continue
		}
		err := r.round(ctx, c)
		switch {
		case err == nil:
			r.failed = 0
			r.w.health.ok(name)
		case !usable(err):
			return err
		default:
			r.w.health.fail(name, err)
			r.failed++
			if !pause(ctx, r.failed-1) {
				return nil
			}
		}
	}
	return nil
}

// view takes stock of the open streams.
func (r *reader) view() []*stream {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	r.active = r.active[:0]
	for _, s := range r.streams {
		if !s.open {
			continue
		}
		if s.seen != s.epoch {
			s.seen, s.phase, s.cursor, s.newest, s.retryAt = s.epoch, ensuring, entryID{}, entryID{}, time.Time{}
		}
		if s.phase != following {
			s.followed = 0
		}
		r.active = append(r.active, s)
	}
	return r.active
}

// leave ends the reader's part in its streams.
func (r *reader) leave() {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range r.streams {
		r.w.checkStill(s.source)
	}
	r.stuffed.Store(false)
}

// round does what is next for each of the open streams: make the group, take up
// what is pending, read again what found no place, read what is new.
func (r *reader) round(ctx context.Context, c *conn) error {
	if err := r.takeUp(c); err != nil {
		return err
	}
	room := r.w.desk.wantRoom(r.class, r.w.limit(r.class))
	r.stuffed.Store(room <= 0)
	if room <= 0 || r.n.backlog() > r.w.config.MaxInHand || r.w.desk.backlog() > r.w.config.MaxInHand {
		r.idle(ctx, fullCheck)
		return nil
	}
	return r.read(ctx, c, room)
}

// takeUp does what comes before reading what is new. No lane of the streams is handed
// over meanwhile: a claim that came late would take entries from their next owner.
func (r *reader) takeUp(c *conn) error {
	d := r.w.desk
	d.mu.Lock()
	r.active = slices.DeleteFunc(r.active, func(s *stream) bool { return !s.serves() })
	for _, s := range r.active {
		s.inRead++
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, s := range r.active {
			s.inRead--
			r.w.checkStill(s.source)
		}
	}()
	if err := r.ensure(c); err != nil {
		return err
	}
	if err := r.survey(c); err != nil {
		return err
	}
	for _, s := range r.active {
		if s.phase == recovering {
			if err := r.recover(c, s); err != nil {
				return err
			}
		}
		if s.phase == following {
			if err := r.reread(c, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// A flight is a read of new entries that was sent and whose answer was not read.
type flight struct {
	streams []*stream
	count   int // entries of a stream, at most
}

// read reads what is new from all streams that are as far, and looks behind it
// for what others were served. As long as there is more than a read takes, the
// next one is sent before the answer to this one is taken in.
func (r *reader) read(ctx context.Context, c *conn, room int) error {
	f := &r.flights[0]
	block, left := r.park(c, f)
	defer r.land(f)
	if len(f.streams) == 0 || block < time.Millisecond { // none is as far, or a lease is about to end
		r.parked.Store(0)
		r.idle(ctx, max(block, fullCheck))
		return nil
	}
	r.ask(c, f, room, block)
	if err := c.flush(max(left, block+time.Second)); err != nil {
		return err
	}
	for {
		next := r.ahead(ctx, c, f)
		if next != nil {
			defer r.land(next)
			if err := c.flush(ioTimeout); err != nil {
				return err
			}
		}
		err := r.receive(c, f)
		if next == nil || !usable(err) {
			return err
		}
		r.land(f)
		if err != nil { // both of them failed then
			return cmp.Or(r.receive(c, next), err)
		}
		f = next
	}
}

// ahead makes the next read if f is likely to leave more behind, and there is
// nothing else to do. It does not block.
func (r *reader) ahead(ctx context.Context, c *conn, f *flight) *flight {
	if !r.backlog || r.large || r.call.Load() || ctx.Err() != nil || r.n.backlog() > r.w.config.MaxInHand {
		return nil
	}
	limit := r.w.limit(r.class)
	room := r.w.desk.room(r.class, limit) - f.count*len(f.streams)
	if room < limit/4 {
		return nil
	}
	next := &r.flights[0]
	if f == next {
		next = &r.flights[1]
	}
	d := r.w.desk
	d.mu.Lock()
	next.streams = next.streams[:0]
	now := r.w.clock()
	for _, s := range f.streams {
		if s.serves() && s.phase == following && !d.core.hasWanted(s.source) && s.lane.valid(now+r.w.config.Lease/3) {
			s.inRead++
			next.streams = append(next.streams, s)
		}
	}
	d.mu.Unlock()
	if len(next.streams) == 0 {
		return nil
	}
	r.ask(c, next, room, 0)
	return next
}

// ask writes a read's commands. block 0 does not block.
func (r *reader) ask(c *conn, f *flight, room int, block time.Duration) {
	n := len(f.streams)
	f.count = max(1, min(room/n, r.w.limit(r.class)/4/n, r.count/n, maxCount))
	words := 7 + 2*n
	if block > 0 {
		words += 2
	}
	c.command(words, "XREADGROUP")
	c.text("GROUP")
	c.text(r.w.config.Group)
	c.text(r.w.id)
	c.text("COUNT")
	c.int(int64(f.count))
	if block > 0 {
		c.text("BLOCK")
		c.int(block.Milliseconds())
	}
	c.text("STREAMS")
	for _, s := range f.streams {
		c.text(s.stream)
	}
	for range f.streams {
		c.text(">")
	}
	for _, s := range f.streams {
		c.command(3, "XPENDING")
		c.text(s.stream)
		c.text(r.w.config.Group)
	}
}

// receive takes in the answer to a read.
func (r *reader) receive(c *conn, f *flight) error {
	for _, s := range f.streams {
		s.entries = s.entries[:0]
	}
	before := c.bytes
	said := r.answers(c, f)
	if !usable(said) {
		if timeout, ok := errors.AsType[net.Error](said); ok && timeout.Timeout() {
			return errQuiet
		}
		return said
	}
	r.parked.Store(0)
	for _, s := range f.streams {
		_, others, err := readSummary(c, r.foreign(s))
		if !usable(err) {
			return err
		}
		s.others = others
		said = cmp.Or(said, err)
	}
	r.adapt(c.bytes-before, r.taken, r.backlog)
	for _, s := range f.streams {
		switch {
		case said != nil: // a stream or a group is gone: Redis does not say whose
			s.phase, s.cursor = ensuring, entryID{}
		case s.others:
			// A read of a former owner's was served. This read's entries are pending
			// like that one's: all of them are taken up in order.
			s.phase, s.cursor = recovering, entryID{}
		case s.phase == following:
			r.offer(s)
		}
	}
	return said
}

// park chooses the streams to be read and notes that they are. It returns how long
// the read may block, and how long the shortest of their leases lasts.
func (r *reader) park(c *conn, f *flight) (block, left time.Duration) {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	now := r.w.clock()
	left = r.w.config.Lease
	f.streams = f.streams[:0]
	wanted := false
	for _, s := range r.active {
		if !s.serves() || s.phase != following {
			continue
		}
		s.inRead++
		s.followed = s.epoch
		left = min(left, time.Duration(s.lane.until.Load())-now)
		wanted = wanted || d.core.hasWanted(s.source)
		f.streams = append(f.streams, s)
	}
	block = left * 2 / 3
	if wanted || len(f.streams) < len(r.active) {
		block = min(block, fullCheck) // there is more to do than to wait
	}
	if c.id == 0 { // nobody can end the read early
		block = min(block, deafBlock)
	}
	r.parked.Store(c.id)
	if r.call.Load() { // a kick that came before can't end the read
		block = min(block, time.Millisecond)
	}
	return block, left
}

// land notes that a read is no longer under way.
func (r *reader) land(f *flight) {
	r.parked.Store(0)
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range f.streams {
		s.inRead--
		r.w.checkStill(s.source)
	}
	f.streams = f.streams[:0]
}

// foreign returns what tells whether a consumer has more pending entries than were
// left with it.
func (r *reader) foreign(s *stream) func(string, int) bool {
	return func(consumer string, pending int) bool {
		if r.w.own(consumer) {
			return false
		}
		left := s.left[consumer]
		if left > pending { // some have been acknowledged
			s.left[consumer] = pending
		}
		return pending > left
	}
}

// answers reads what XREADGROUP answers into the streams' entries.
func (r *reader) answers(c *conn, f *flight) error {
	r.backlog, r.taken = false, 0
	n, err := c.array()
	if err != nil {
		return err
	}
	at := 0
	for range n {
		if parts, err := c.array(); err != nil {
			return err
		} else if parts != 2 {
			return fmt.Errorf("%w: a stream of %d parts", errReply, parts)
		}
		name, err := c.word()
		if err != nil {
			return err
		}
		for at < len(f.streams) && f.streams[at].stream != string(name) {
			at++
		}
		if at == len(f.streams) {
			return fmt.Errorf("%w: stream %.80q, which was not asked for", errReply, name)
		}
		s := f.streams[at]
		r.items, err = r.decoder.items(c, r.items[:0], 1)
		if err != nil {
			return err
		}
		r.w.metrics.delivered.Add(float64(len(r.items)))
		r.taken += len(r.items)
		r.backlog = r.backlog || len(r.items) >= f.count
		r.build(s, r.items)
	}
	return nil
}

// adapt chooses how many entries are read at a time: fewer while reads are large,
// more while they are small and leave a backlog, and few where there is none: what
// comes next may be large. A read of some hundred entries is the cheapest for Redis,
// whichever streams they are of.
func (r *reader) adapt(read int64, entries int, backlog bool) {
	r.large = read > maxRead/2
	switch {
	case read > maxRead || entries > maxCount:
		r.count = max(1, r.count/2)
	case !backlog:
		r.count = max(min(r.count, minRead), r.count/2)
	case read < maxRead/4 && entries <= maxCount/2:
		r.count = min(maxCount*max(1, len(r.active)), r.count*2)
	}
}
