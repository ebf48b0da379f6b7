package replay

import "slices"

// wanted returns skipped entries that would find a place now, each key's in order
// and about limit in all, and sets scan if a key has more that are not remembered.
// If one of them is a suspect, it has the suspect's place until offer takes it or
// release is called.
func (c *core) wanted(s *source, limit int, buf []skippedEntry) (ids []skippedEntry, scan *keyQueue) {
	ids = buf
	for _, k := range s.blocked {
		if len(ids) >= limit {
			break
		}
		switch {
		case k.accused():
			if c.reserve(s, k) {
				ids = append(ids, k.skipped[0])
			}
			continue
		case !k.free():
			continue
		case len(k.skipped) == 0 && k.more:
			scan = k
			continue
		}
		n := min(places-k.places, len(k.skipped))
		if i := slices.IndexFunc(k.skipped[:n], func(e skippedEntry) bool { return e.from != "" }); i >= 0 {
			n = i
		}
		ids = append(ids, k.skipped[:n]...)
	}
	return ids, scan
}

// hasWanted reports whether wanted would return anything.
func (c *core) hasWanted(s *source) bool {
	return slices.ContainsFunc(s.blocked, func(k *keyQueue) bool {
		if k.accused() {
			return k.places == 0 && !c.occupied()
		}
		return k.free()
	})
}

// unskip takes wanted entries off their keys' lists: they were offered again, or
// are no longer pending.
func (c *core) unskip(s *source, ids []skippedEntry) {
	gone := make(map[entryID]bool, len(ids))
	for _, id := range ids {
		gone[id.id] = true
	}
	for _, k := range s.blocked {
		n := 0
		for n < len(k.skipped) && gone[k.skipped[n].id] {
			n++
		}
		k.skipped = k.skipped[n:]
		if len(k.skipped) == 0 {
			k.skipped = nil
		}
	}
	c.unblock(s)
}

// relearn remembers skipped entries that were found again: found are pending
// entries of the stream behind the id after, in order and without a gap, and end
// says that there are no more. It reports whether k needs more of them.
func (c *core) relearn(k *keyQueue, after entryID, found []*entry, end bool) (needs bool) {
	s := k.src
	if s == nil {
		return false
	}
	behind := func(k *keyQueue) bool { return k.more && len(k.skipped) < maxSkipped && k.tail.compare(after) >= 0 }
	for _, e := range found {
		if k := s.keys[string(e.keyName)]; k != nil && behind(k) && e.id.compare(k.tail) > 0 && e.id.compare(k.last) <= 0 {
			k.remember(e)
			k.more = e.id != k.last
		}
	}
	if end {
		for _, k := range s.blocked {
			k.more = k.more && !behind(k)
		}
		c.unblock(s)
	}
	return k.more && len(k.skipped) < places
}

// unblock removes the keys that skip no longer.
func (c *core) unblock(s *source) {
	s.blocked = slices.DeleteFunc(s.blocked, func(k *keyQueue) bool {
		if k.skipping() {
			return false
		}
		c.retire(k)
		return true
	})
}
