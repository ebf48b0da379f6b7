package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// build makes entries of items. Those that no listener is for are acknowledged;
// those that can't be delivered become dead letters.
func (r *reader) build(s *stream, items []item) {
	s.entries = s.entries[:0]
	for i := range items {
		it := &items[i]
		if it.gone {
			r.lost(s, []entryID{it.id})
			r.discard(s, it.id, it.progress != nil)
			continue
		}
		if it.bad != nil {
			r.undecodable(s, it, it.bad)
			continue
		}
		listeners := r.listeners(it.entry.Event)
		if it.entry.Target != "" {
			var err error
			if listeners, err = r.targets(it, listeners); err != nil {
				r.undecodable(s, it, err)
				continue
			}
		}
		if len(listeners) == 0 && it.progress == nil {
			r.w.metrics.unheard.Inc()
			r.discard(s, it.id, false)
			continue
		}
		e, err := makeEntry(s.source, it, listeners, &r.fields)
		if err != nil {
			r.undecodable(s, it, err)
			continue
		}
		if it.fate == crashed && e.open() > 0 {
			r.crashed(e)
			continue
		}
		s.entries = append(s.entries, e)
	}
	clear(items) // the bytes are the entries' now
}

// discard acknowledges an entry that is not to run. marked says that it has a
// record of its progress.
func (r *reader) discard(s *stream, id entryID, marked bool) {
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := s.known[id]; !ok && s.serves() {
		e := d.core.pass(s.source, id)
		e.marked = marked
		d.settle(e)
	}
}

// undecodable makes an entry that can't be delivered a dead letter.
func (r *reader) undecodable(s *stream, it *item, err error) {
	r.w.metrics.undecodable.Inc()
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &entry{src: s.source, id: it.id, deliveries: it.deliveries, reason: "entry can't be delivered: " + oneLine(err)}
	if s.seen == s.epoch && d.core.bury(e) {
		d.settle(e)
	}
}

// crashed makes an entry a dead letter that was found with a worker that had
// died while it ran nothing else that was suspect.
func (r *reader) crashed(e *entry) {
	r.w.metrics.crashed.Inc()
	for i := range e.tasks {
		switch t := &e.tasks[i]; {
		case t.over():
		case t.listener.off:
			t.state = ended
			t.listener.counts.passedOver.Inc()
		default:
			t.state, t.err = failed, errDied
			t.listener.counts.givenUp.WithLabelValues(reasonOf(t.err)).Inc()
		}
	}
	d := r.w.desk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.core.bury(e) {
		d.settle(e)
	}
}

// targets returns the listeners a redriven entry is for. Its target is the group
// and, behind the last colon, the names of listeners separated by commas; no names:
// all that are for its type. For another group there are none. It is an error if
// the target is not of this form, or one of its listeners does not exist here.
func (r *reader) targets(it *item, all []*bound) ([]*bound, error) {
	colon := strings.LastIndexByte(it.entry.Target, ':')
	if colon < 0 {
		return nil, fmt.Errorf("its target is %.200q, want group:listener,listener", it.entry.Target)
	}
	group, names := it.entry.Target[:colon], it.entry.Target[colon+1:]
	if group != r.w.config.Group {
		r.w.metrics.misdirected.Inc()
		return nil, nil
	}
	if names == "" {
		return all, nil
	}
	var found []*bound
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(b *bound) bool { return b.name == name })
		if i < 0 {
			return nil, fmt.Errorf("it is for listener %.200q, and the worker has none of this name for %s", name, it.entry.Event)
		}
		if !slices.Contains(found, all[i]) {
			found = append(found, all[i])
		}
	}
	return found, nil
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
		if !s.serves() {
			d.mu.Unlock()
			return
		}
		how := patiently
		if !until.IsZero() && !time.Now().Before(until) {
			how = firmly
		}
		late := rest[:0]
		for _, e := range rest {
			switch d.core.offer(e, how) {
			case crowded:
				late = append(late, e)
				continue
			case settled:
				d.settle(e)
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
