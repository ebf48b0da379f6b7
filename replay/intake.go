package replay

import "time"

// build makes entries of items. Those that no listener is for are acknowledged;
// those that can't be delivered stay pending.
func (r *reader) build(s *stream, items []item) {
	s.entries = s.entries[:0]
	for i := range items {
		it := &items[i]
		if it.gone {
			r.w.metrics.vanished.Inc()
			continue
		}
		err := it.bad
		var e *entry
		if err == nil {
			listeners := r.listeners(it.entry.Event)
			if len(listeners) == 0 {
				r.w.metrics.unheard.Inc()
				r.discard(s, it.id)
				continue
			}
			e, err = makeEntry(s.source, it, listeners, &r.fields)
		}
		if err != nil {
			r.undecodable(s, it, err)
			continue
		}
		s.entries = append(s.entries, e)
	}
	clear(items) // the bytes are the entries' now
}

// discard acknowledges an entry that is not to run.
func (r *reader) discard(s *stream, id entryID) {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.open && s.seen == s.epoch {
		d.core.pass(s.source, id)
		r.n.ack(s.source, id)
	}
}

func (r *reader) undecodable(s *stream, it *item, err error) {
	r.w.metrics.undecodable.Inc()
	r.w.log.Error("entry can't be delivered and stays pending", "id", deliveryID(s.label, it.id), "stream", s.stream, "err", err)
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.seen == s.epoch {
		d.core.park(s.source, it.id)
	}
}

func (r *reader) listeners(event string) []*bound {
	found, ok := r.matches[event]
	if !ok {
		found = r.w.match(event)
		if len(r.matches) < maxEvents {
			r.matches[event] = found
		}
	}
	return found
}

// offer hands a read's entries to the core. Those of a key whose places are taken
// wait a moment for them: a fast listener frees them before long, and to read
// entries again is dear.
func (r *reader) offer(s *stream) {
	d := r.w.desk
	rest := s.entries
	defer clear(rest)
	var until time.Time
	for len(rest) > 0 {
		d.mu.Lock()
		if s.seen != s.epoch || !s.open {
			d.mu.Unlock()
			return
		}
		how := patiently
		if !until.IsZero() && !time.Now().Before(until) {
			how = firmly
		}
		late := rest[:0]
		for _, e := range rest {
			if d.core.offer(e, how) == crowded {
				late = append(late, e)
				continue
			}
			if s.newest.compare(e.id) < 0 {
				s.newest = e.id
			}
		}
		rest = late
		s.hungry = len(rest) > 0
		d.call()
		d.mu.Unlock()
		if len(rest) == 0 {
			return
		}
		if until.IsZero() {
			until = time.Now().Add(patience)
		}
		timer := time.NewTimer(max(time.Until(until), 0))
		select {
		case <-r.kicked:
		case <-timer.C:
		}
		timer.Stop()
	}
}
