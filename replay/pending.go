package replay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// ensure makes the groups that may not exist.
func (r *reader) ensure(c *conn) error {
	now := time.Now()
	asked := r.asked[:0]
	for _, s := range r.active {
		if s.phase != ensuring || now.Before(s.retryAt) {
			continue
		}
		c.command(6, "XGROUP")
		c.text("CREATE")
		c.text(s.stream)
		c.text(r.w.config.Group)
		c.text(r.startOf(s))
		c.text("MKSTREAM")
		asked = append(asked, s)
	}
	r.asked = asked
	if len(asked) == 0 {
		return nil
	}
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var made []newGroup
	for _, s := range asked {
		_, err := c.want('+')
		name := "the group of " + s.stream
		switch {
		case err == nil:
			made = append(made, newGroup{s, r.startOf(s), s.served})
			s.phase, s.cursor, s.newest, s.served = recovering, entryID{}, entryID{}, true
			r.w.health.ok(name)
		case isCode(err, "BUSYGROUP"):
			s.phase, s.served = recovering, true
			r.w.health.ok(name)
		case usable(err):
			s.retryAt = now.Add(retryGroup)
			r.w.health.fail(name, err)
		default:
			return err
		}
	}
	return r.begin(c, made)
}

// survey asks of all streams at once whether anything is pending in them: mostly
// there is not.
func (r *reader) survey(c *conn) error {
	asked := r.asked[:0]
	for _, s := range r.active {
		if s.phase == recovering {
			c.command(3, "XPENDING")
			c.text(s.stream)
			c.text(r.w.config.Group)
			asked = append(asked, s)
		}
	}
	r.asked = asked
	if len(asked) == 0 {
		return nil
	}
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var said error
	for _, s := range asked {
		total, _, err := readSummary(c, r.foreign(s))
		switch {
		case !usable(err):
			return err
		case err != nil:
			s.phase, s.cursor = ensuring, entryID{}
			said = cmp.Or(said, err)
		case total == 0:
			s.phase = following
		}
	}
	return said
}

// recover takes up what is pending behind the stream's cursor, the worker's own
// and that of others, in order, as far as there is room.
func (r *reader) recover(c *conn, s *stream) error {
	if s.cursor == (entryID{}) {
		clear(s.left)
	}
	for {
		room := min(r.page(), r.room(s))
		if room <= 0 {
			return nil
		}
		if err := r.list(c, s, room); err != nil {
			return err
		}
		listed := len(r.pending)
		last := s.cursor
		if listed > 0 {
			last = r.pending[listed-1].id
		}
		r.unknown(s)
		before := c.bytes
		items, err := r.claim(c, s, r.pending)
		if err != nil {
			return err
		}
		r.adapt(c.bytes-before, len(items), listed == room)
		r.build(s, items)
		r.offer(s)
		s.cursor = last
		if s.newest.compare(last) < 0 {
			s.newest = last
		}
		if listed < room {
			s.phase = following
			return nil
		}
	}
}

// room returns how many more entries of a stream may be taken up: none once its lane
// is, or will be, another worker's.
func (r *reader) room(s *stream) int {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if !s.serves() || !s.lane.valid(r.w.clock()) {
		return 0
	}
	return d.core.room(r.class, r.w.limit(r.class))
}

// page returns how many entries of one stream are claimed at a time.
func (r *reader) page() int { return min(r.count, maxCount) }

// list reads the pending entries behind the stream's cursor into r.pending.
func (r *reader) list(c *conn, s *stream, count int) error {
	c.command(6, "XPENDING")
	c.text(s.stream)
	c.text(r.w.config.Group)
	if s.cursor == (entryID{}) {
		c.text("-")
	} else {
		c.text(s.cursor.next().String())
	}
	c.text("+")
	c.int(int64(count))
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var err error
	r.pending, err = readPending(c, r.pending[:0])
	if err != nil && usable(err) {
		s.phase, s.cursor = ensuring, entryID{}
	}
	return err
}

// unknown drops from r.pending what is in hand. What is in hand of a lane that
// was lost and is back stays: it must be offered again.
func (r *reader) unknown(s *stream) {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	r.pending = slices.DeleteFunc(r.pending, func(p pendingEntry) bool {
		e, ok := s.known[p.id]
		return ok && e.state != lost
	})
}

// A fate is what becomes of a pending entry.
type fate uint8

const (
	normal  fate = iota // it runs
	suspect             // it waits until it can run alone
	chosen              // it is a suspect whose turn has come
	crashed             // it is given up
)

// handedBack is the consumer that holds what a worker has given back uncounted.
const handedBack = "-"

// fate decides what becomes of an entry that is pending for a consumer, and how
// often it has been delivered then.
func (r *reader) fate(p pendingEntry) (f fate, count int) {
	switch {
	case p.chosen:
		return chosen, p.deliveries + 1
	case r.w.own(p.consumer): // reading one's own again is no delivery
		return normal, max(1, p.deliveries)
	case p.consumer == handedBack || p.deliveries <= 1:
		return normal, p.deliveries + 1
	case strings.HasSuffix(p.consumer, suspectMark) && p.deliveries >= r.w.config.MaxDeliveries:
		return crashed, p.deliveries
	}
	return suspect, p.deliveries
}

// own reports whether a consumer is this worker's.
func (w *Worker) own(consumer string) bool {
	return strings.HasPrefix(consumer, w.id) && (len(consumer) == len(w.id) || consumer[len(w.id):] == suspectMark)
}

// claim makes pending entries the worker's own, if they are not, and returns them
// in order, with the records of their progress. Those that others held are counted
// as delivered once more. Suspects and what is given up stay with whom they are.
func (r *reader) claim(c *conn, s *stream, pending []pendingEntry) ([]item, error) {
	r.items = r.items[:0]
	if len(pending) == 0 {
		return r.items, nil
	}
	order := func(p pendingEntry) int {
		f, count := r.fate(p)
		return int(f)<<32 + count
	}
	slices.SortStableFunc(pending, func(a, b pendingEntry) int { return cmp.Compare(order(a), order(b)) })
	type group struct {
		fate  fate
		count int
		of    []pendingEntry
	}
	var groups []group
	foreign := 0
	for rest := pending; len(rest) > 0; {
		g := group{}
		g.fate, g.count = r.fate(rest[0])
		n := 0
		for n < len(rest) && n < maxCount && order(rest[n]) == order(rest[0]) {
			if !r.w.own(rest[n].consumer) && g.fate == normal {
				foreign++
			}
			n++
		}
		g.of, rest = rest[:n], rest[n:]
		groups = append(groups, g)
		switch g.fate {
		case normal, chosen:
			consumer := r.w.id
			if g.fate == chosen {
				consumer += suspectMark
			}
			c.command(5+n+2, "XCLAIM")
			c.text(s.stream)
			c.text(r.w.config.Group)
			c.text(consumer)
			c.text("0")
			for _, p := range g.of {
				c.entry(p.id)
			}
			c.text("RETRYCOUNT")
			c.int(int64(g.count))
		default:
			for _, p := range g.of {
				c.command(4, "XRANGE")
				c.text(s.stream)
				c.entry(p.id)
				c.entry(p.id)
			}
		}
	}
	c.command(2+len(pending), "HMGET")
	c.text(s.progress)
	for _, p := range pending {
		c.entry(p.id)
	}
	if err := c.flush(ioTimeout); err != nil {
		return nil, err
	}
	var said error
	for _, g := range groups {
		var err error
		if g.fate == normal || g.fate == chosen {
			before := len(r.items)
			r.items, err = r.decoder.items(c, r.items, g.count)
			for i := before; i < len(r.items) && g.fate == chosen; i++ {
				r.items[i].from = r.w.id + suspectMark
			}
		} else {
			err = r.left(c, s, g.fate, g.of)
		}
		if !usable(err) {
			return nil, err
		}
		said = cmp.Or(said, err)
	}
	records, err := r.records(c, pending)
	switch {
	case !usable(err):
		return nil, err
	case err != nil:
		r.w.health.fail("the progress of "+s.stream, err)
	default:
		r.w.health.ok("the progress of " + s.stream)
	}
	if said != nil {
		return nil, said
	}
	r.w.metrics.reclaimed.Add(float64(foreign))
	slices.SortFunc(r.items, func(a, b item) int { return a.id.compare(b.id) })
	for i := range r.items {
		r.items[i].progress = records[r.items[i].id]
	}
	r.orphans(pending)
	return r.items, r.vanished(c, s, pending, records)
}

// left reads the entries that stay with their consumers.
func (r *reader) left(c *conn, s *stream, f fate, of []pendingEntry) error {
	var said error
	for _, p := range of {
		before := len(r.items)
		var err error
		r.items, err = r.decoder.items(c, r.items, p.deliveries)
		if !usable(err) {
			return err
		}
		said = cmp.Or(said, err)
		if s.left == nil {
			s.left = make(map[string]int)
		}
		s.left[p.consumer]++
		if err == nil && len(r.items) == before {
			r.items = append(r.items, item{id: p.id, gone: true})
		}
		for i := before; i < len(r.items); i++ {
			r.items[i].fate = f
			if f == suspect {
				r.items[i].from = p.consumer
			}
		}
	}
	return said
}

// records reads what HMGET answers: the records of entries that have one.
func (r *reader) records(c *conn, of []pendingEntry) (records map[entryID][]byte, err error) {
	n, err := c.array()
	if err != nil {
		return nil, err
	}
	if n != len(of) {
		return nil, fmt.Errorf("%w: %d records of %d entries", errReply, n, len(of))
	}
	for _, p := range of {
		record, err := c.own()
		if err != nil {
			return nil, err
		}
		if record != nil {
			if records == nil {
				records = make(map[entryID][]byte)
			}
			records[p.id] = record
		}
	}
	return records, nil
}

// vanished sees to the entries that were pending and were not claimed: they were
// acknowledged meanwhile, or they are lost, having been trimmed or deleted. In some
// versions of Redis the latter stay pending; an ack is right for all of them.
func (r *reader) vanished(c *conn, s *stream, pending []pendingEntry, records map[entryID][]byte) error {
	if len(pending) == len(r.items) {
		return nil
	}
	var missing []entryID
	for _, p := range pending {
		_, found := slices.BinarySearchFunc(r.items, p.id, func(it item, id entryID) int { return it.id.compare(id) })
		if !found {
			missing = append(missing, p.id)
			c.command(4, "XRANGE")
			c.text(s.stream)
			c.entry(p.id)
			c.entry(p.id)
		}
	}
	if err := c.flush(ioTimeout); err != nil {
		return err
	}
	var said error
	var gone []entryID
	for _, id := range missing {
		n, err := c.array()
		for range n {
			if err == nil {
				err = c.skip()
			}
		}
		switch {
		case !usable(err):
			return err
		case err != nil:
			said = cmp.Or(said, err)
		case n == 0:
			gone = append(gone, id)
		}
		r.discard(s, id, records[id] != nil)
	}
	r.lost(s, gone)
	return said
}

// lost counts and names entries that were trimmed or deleted while they were pending.
func (r *reader) lost(s *stream, gone []entryID) {
	if len(gone) == 0 {
		return
	}
	r.w.metrics.vanished.Add(float64(len(gone)))
	var ids []string
	for _, id := range gone[:min(len(gone), 50)] {
		ids = append(ids, deliveryID(s.label, id))
	}
	r.w.drops.log(r.w.log, slog.LevelError, "entries are lost: they were trimmed or deleted while they were pending",
		slog.Int("entries", len(gone)), slog.String("ids", strings.Join(ids, " ")))
}

// reread reads entries again that found no place, of keys that have some now.
func (r *reader) reread(c *conn, s *stream) error {
	d := r.w.desk
	room := r.room(s)
	if room <= 0 {
		return nil
	}
	var scan *keyQueue
	d.mu.Lock()
	// Half of the room is for what is new: other keys do not wait for these.
	r.skipped, scan = d.core.wanted(s.source, min(r.page(), (room+1)/2), r.skipped[:0])
	d.mu.Unlock()
	if len(r.skipped) > 0 {
		r.pending = r.pending[:0]
		accused := false
		for _, e := range r.skipped {
			p := pendingEntry{id: e.id, consumer: r.w.id, deliveries: e.deliveries}
			if e.from != "" {
				p.consumer, p.chosen = e.from, true
				accused = true
				s.left[e.from] = max(0, s.left[e.from]-1)
				r.w.metrics.suspects.Inc()
			}
			r.pending = append(r.pending, p)
		}
		if accused {
			defer func() {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.core.release()
				d.call()
			}()
		}
		before := c.bytes
		items, err := r.claim(c, s, r.pending)
		if err != nil {
			return err
		}
		r.adapt(c.bytes-before, len(items), len(r.skipped) >= r.page())
		r.build(s, items)
		d.mu.Lock()
		var noPlace map[entryID]bool
		for _, e := range s.entries {
			switch d.core.offer(e, again) {
			case settled:
				d.settle(e)
			case skipped:
				if noPlace == nil {
					noPlace = make(map[entryID]bool)
				}
				noPlace[e.id] = true
			}
		}
		done := slices.DeleteFunc(r.skipped, func(e skippedEntry) bool { return noPlace[e.id] })
		d.core.unskip(s.source, done)
		d.call()
		d.mu.Unlock()
	}
	if scan != nil {
		return r.rescan(c, s, scan)
	}
	return nil
}

// rescan looks for a key's skipped entries that are no longer remembered.
func (r *reader) rescan(c *conn, s *stream, k *keyQueue) error {
	cursor, left := s.cursor, maps.Clone(s.left) // of which all was counted before
	defer func() { s.cursor, s.left = cursor, left }()
	after := k.tail
	s.cursor = after
	for {
		page := r.page()
		if err := r.list(c, s, page); err != nil {
			return err
		}
		end := len(r.pending) < page
		if !end {
			s.cursor = r.pending[len(r.pending)-1].id
		}
		r.unknown(s)
		before := c.bytes
		items, err := r.claim(c, s, r.pending)
		if err != nil {
			return err
		}
		r.adapt(c.bytes-before, len(items), !end)
		r.build(s, items)
		d := r.w.desk
		d.mu.Lock()
		needs := d.core.relearn(k, after, s.entries, end)
		d.mu.Unlock()
		if end || !needs || r.room(s) <= 0 {
			return nil
		}
	}
}

// isCode reports whether err is an error that Redis answered with a code.
func isCode(err error, code string) bool {
	said, ok := errors.AsType[replyError](err)
	return ok && len(said) >= len(code) && string(said[:len(code)]) == code
}
