package replay

import (
	"cmp"
	"errors"
	"slices"
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
		start := r.w.config.Start
		if s.served {
			start = "0" // what was lost is read again, nothing is passed over
		}
		c.command(6, "XGROUP")
		c.text("CREATE")
		c.text(s.stream)
		c.text(r.w.config.Group)
		c.text(start)
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
	for _, s := range asked {
		_, err := c.want('+')
		name := "the group of " + s.stream
		switch {
		case err == nil:
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
	return nil
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
		total, _, err := readSummary(c, r.w.config.Consumer)
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
	for {
		room := min(maxCount, r.w.desk.room(r.class, r.w.limit(r.class)))
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
		items, err := r.claim(c, s.source, r.pending)
		if err != nil {
			return err
		}
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

// list reads the pending entries behind the stream's cursor into r.pending.
func (r *reader) list(c *conn, s *stream, count int) error {
	c.command(6, "XPENDING")
	c.text(s.stream)
	c.text(r.w.config.Group)
	if s.cursor == (entryID{}) {
		c.text("-")
	} else {
		c.text("(" + s.cursor.String())
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

// claim makes pending entries the worker's own, if they are not, and returns them
// in order. Those that others held are counted as delivered once more; reading
// one's own again is no delivery.
func (r *reader) claim(c *conn, s *source, pending []pendingEntry) ([]item, error) {
	r.items = r.items[:0]
	if len(pending) == 0 {
		return r.items, nil
	}
	slices.SortStableFunc(pending, func(a, b pendingEntry) int { return cmp.Compare(r.counted(a), r.counted(b)) })
	type group struct{ n, count int }
	var groups []group
	foreign := 0
	for rest := pending; len(rest) > 0; {
		count := r.counted(rest[0])
		n := 0
		for n < len(rest) && n < maxCount && r.counted(rest[n]) == count {
			if rest[n].consumer != r.w.config.Consumer {
				foreign++
			}
			n++
		}
		c.command(5+n+2, "XCLAIM")
		c.text(s.stream)
		c.text(r.w.config.Group)
		c.text(r.w.config.Consumer)
		c.text("0")
		for _, p := range rest[:n] {
			c.entry(p.id)
		}
		c.text("RETRYCOUNT")
		c.int(int64(count))
		groups = append(groups, group{n, count})
		rest = rest[n:]
	}
	if err := c.flush(ioTimeout); err != nil {
		return nil, err
	}
	var said error
	for _, g := range groups {
		var err error
		r.items, err = r.decoder.items(c, r.items, g.count)
		if !usable(err) {
			return nil, err
		}
		said = cmp.Or(said, err)
	}
	if said != nil {
		return nil, said
	}
	r.w.metrics.claimed.Add(float64(foreign))
	if gone := len(pending) - len(r.items); gone > 0 {
		r.w.metrics.vanished.Add(float64(gone))
	}
	slices.SortFunc(r.items, func(a, b item) int { return a.id.compare(b.id) })
	return r.items, nil
}

func (r *reader) counted(p pendingEntry) int {
	if p.consumer != r.w.config.Consumer {
		return p.deliveries + 1
	}
	return max(1, p.deliveries)
}

// reread reads entries again that found no place, of keys that have some now.
func (r *reader) reread(c *conn, s *stream) error {
	d := r.w.desk
	d.mu.Lock()
	var scan *keyQueue
	r.skipped, scan = d.core.wanted(s.source, r.skipped[:0])
	d.mu.Unlock()
	if len(r.skipped) > 0 {
		r.pending = r.pending[:0]
		for _, e := range r.skipped {
			r.pending = append(r.pending, pendingEntry{e.id, r.w.config.Consumer, e.deliveries})
		}
		items, err := r.claim(c, s.source, r.pending)
		if err != nil {
			return err
		}
		r.build(s, items)
		d.mu.Lock()
		var noPlace map[entryID]bool
		for _, e := range s.entries {
			if d.core.offer(e, again) == skipped {
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
	cursor := s.cursor
	defer func() { s.cursor = cursor }()
	after := k.tail
	s.cursor = after
	for {
		if err := r.list(c, s, maxCount); err != nil {
			return err
		}
		end := len(r.pending) < maxCount
		if !end {
			s.cursor = r.pending[len(r.pending)-1].id
		}
		r.unknown(s)
		items, err := r.claim(c, s.source, r.pending)
		if err != nil {
			return err
		}
		r.build(s, items)
		d := r.w.desk
		d.mu.Lock()
		needs := d.core.relearn(k, after, s.entries, end)
		d.mu.Unlock()
		if end || !needs {
			return nil
		}
	}
}

// isCode reports whether err is an error that Redis answered with a code.
func isCode(err error, code string) bool {
	said, ok := errors.AsType[replyError](err)
	return ok && len(said) >= len(code) && string(said[:len(code)]) == code
}
