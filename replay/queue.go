package replay

// A keyQueue is what is in hand of one key of a stream.
type keyQueue struct {
	src    *source
	name   string
	places int
	units  []*unit // by listener; few

	// Entries that found no place, oldest first. While there are any, further
	// entries of the key join them.
	skipped []skippedEntry
	tail    entryID // of the last one that is, or was, remembered
	last    entryID // of the last one skipped
	more    bool    // those behind tail are not remembered

	next *keyQueue
}

type skippedEntry struct {
	id         entryID
	deliveries int    // of a suspect: without the one that is to come
	from       string // of a suspect: the consumer it is pending for
}

// A unit is a listener and a key.
type unit struct {
	key        *keyQueue
	listener   *bound
	head, tail *task
	state      unitState
	next       *unit
}

type unitState uint8

const (
	idle    unitState = iota // has nothing to run
	inReady                  // in the core's list
	busy                     // its head runs, or waits for its backoff
)

type unitList struct{ head, tail *unit }

func (c *core) newKey(s *source, name []byte) *keyQueue {
	k := c.keyPool
	if k == nil {
		k = &keyQueue{}
	} else {
		c.keyPool = k.next
		k.next = nil
	}
	k.src = s
	k.name = string(name)
	s.keys[k.name] = k
	return k
}

// free reports whether it is worth while to read a key's skipped entries again.
func (k *keyQueue) free() bool { return k.places <= places/2 }

// accused reports whether the key's next skipped entry is a suspect.
func (k *keyQueue) accused() bool { return len(k.skipped) > 0 && k.skipped[0].from != "" }

func (k *keyQueue) skipping() bool { return len(k.skipped) > 0 || k.more }

func (k *keyQueue) skip(e *entry) {
	k.last = e.id
	if k.more || len(k.skipped) >= maxSkipped {
		k.more = true
		return
	}
	k.remember(e)
}

func (k *keyQueue) remember(e *entry) {
	k.skipped = append(k.skipped, skippedEntry{e.id, e.deliveries, e.from})
	k.tail = e.id
}

// unit returns the key's unit for a listener.
func (k *keyQueue) unit(l *bound) *unit {
	for _, u := range k.units {
		if u.listener == l {
			return u
		}
	}
	u := &unit{key: k, listener: l}
	k.units = append(k.units, u)
	return u
}

func (l *unitList) push(u *unit) {
	u.next = nil
	if l.tail == nil {
		l.head = u
	} else {
		l.tail.next = u
	}
	l.tail = u
}

func (l *unitList) pop() *unit {
	u := l.head
	if u != nil {
		l.head = u.next
		if l.head == nil {
			l.tail = nil
		}
		u.next = nil
	}
	return u
}
