package replay

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/sluicehq/sluice/internal/wire"
)

// Places is how many entries of a key are in hand at most; MaxSkipped how many
// skipped ones are remembered; MaxHeld how many bytes are in hand.
const (
	Places     = places
	MaxSkipped = maxSkipped
	MaxHeld    = maxHeld
)

// TooOld reports whether an INFO is of a server that is too old.
func TooOld(info string) (string, bool) { return tooOld(info) }

// A Core is the core with one stream and some listeners, for tests.
type Core struct {
	c         core
	s         *source
	listeners []*bound
}

// A Task is a task that was taken from a Core.
type Task struct{ t *task }

// NewCore returns a core with ordered and unordered listeners.
func NewCore(ordered, unordered int) *Core {
	c := &Core{s: &source{class: plain}}
	for i := range ordered + unordered {
		c.listeners = append(c.listeners, &bound{name: fmt.Sprint("l", i), unordered: i >= ordered})
	}
	c.Open()
	return c
}

func (c *Core) Open() { c.c.open(c.s, context.Background()) }
func (c *Core) Drop() { c.c.drop(c.s) }
func (c *Core) Shut() { c.c.shut(c.s) }

func (c *Core) entry(id uint64, key string) *entry {
	e := &entry{src: c.s, id: entryID{ms: id}, keyName: []byte(key), deliveries: 1}
	for _, l := range c.listeners {
		e.tasks = append(e.tasks, task{listener: l, attempt: 1})
	}
	return e
}

// Offer offers an entry and returns what became of it.
func (c *Core) Offer(id uint64, key string, wanted, patient bool) string {
	how := firmly
	if patient {
		how = patiently
	}
	if wanted {
		how = again
	}
	return [...]string{"taken", "skipped", "known", "settled", "refused", "crowded"}[c.c.offer(c.entry(id, key), how)]
}

// OfferSuspect offers an entry that a process may have died of; chosen says that
// its turn has come.
func (c *Core) OfferSuspect(id uint64, key string, chosen bool) string {
	e := c.entry(id, key)
	e.from = "dead"
	how := firmly
	if chosen {
		how = again
	}
	return [...]string{"taken", "skipped", "known", "settled", "refused", "crowded"}[c.c.offer(e, how)]
}

// Release gives back the place that Wanted has reserved for a suspect.
func (c *Core) Release() { c.c.release() }

// Moved says that Redis no longer has a task's entry under a suspect's consumer.
func (c *Core) Moved(t Task) { c.c.absolve(t.t.entry) }

// Told returns how many readers are to be told of the suspect's place.
func (c *Core) Told() int {
	defer func() { c.c.told = nil }()
	return len(c.c.told)
}

// Buried says that an entry is a dead letter.
func (c *Core) Buried(id uint64) { c.c.buried(c.s.known[entryID{ms: id}]) }

// NewBatchCore returns a core with one listener that takes batches.
func NewBatchCore(size int) *Core {
	c := NewCore(0, 1)
	g := &gather{size: size}
	c.listeners[0].gather = g
	c.c.gathers = []*gather{g}
	return c
}

// NextBatch takes the next batch and returns its entries' ids.
func (c *Core) NextBatch() (ids []uint64, ok bool) {
	t := c.c.next(plain)
	if t == nil {
		return nil, false
	}
	ids = append(ids, t.entry.id.ms)
	for _, mate := range t.mates {
		ids = append(ids, mate.entry.id.ms)
	}
	return ids, true
}

// Next takes the next task; ok is false if there is none.
func (c *Core) Next() (t Task, ok bool) {
	t.t = c.c.next(plain)
	return t, t.t != nil
}

func (t Task) ID() uint64       { return t.t.entry.id.ms }
func (t Task) Listener() string { return t.t.listener.name }
func (t Task) Key() string      { return string(t.t.entry.keyName) }
func (t Task) Attempt() int     { return t.t.attempt }

// Finish ends a run: succeeded, retry, gaveUp or revoked. It reports whether the
// entry is to be acked.
func (c *Core) Finish(t Task, how string) (ack bool) {
	o := map[string]outcome{"succeeded": succeeded, "retry": retry, "gaveUp": gaveUp, "revoked": revoked}[how]
	return c.c.finish(t.t, o) && t.t.entry.state == acking
}

func (c *Core) Wake(t Task) { c.c.wake(t.t) }

func (c *Core) Acked(ids ...uint64) {
	var all []entryID
	for _, id := range ids {
		all = append(all, entryID{ms: id})
	}
	c.c.acked(c.s, all)
}

// Wanted returns the skipped entries that are wanted, and whether a key's are no
// longer remembered.
func (c *Core) Wanted() (ids []uint64, scan bool) {
	wanted, k := c.c.wanted(c.s, 1<<30, nil)
	for _, e := range wanted {
		ids = append(ids, e.id.ms)
	}
	return ids, k != nil
}

func (c *Core) Unskip(ids ...uint64) {
	var all []skippedEntry
	for _, id := range ids {
		all = append(all, skippedEntry{id: entryID{ms: id}})
	}
	c.c.unskip(c.s, all)
}

// Relearn does what a reader does when Wanted says scan: pending returns the
// pending entries behind an id, at most a number of them, as ids and keys.
func (c *Core) Relearn(pending func(behind uint64, n int) ([]uint64, []string)) {
	_, k := c.c.wanted(c.s, 1<<30, nil)
	after := k.tail
	for at := after.ms; ; {
		ids, keys := pending(at, 100)
		var found []*entry
		for i, id := range ids {
			at = id
			if _, ok := c.s.known[entryID{ms: id}]; !ok {
				found = append(found, c.entry(id, keys[i]))
			}
		}
		if !c.c.relearn(k, after, found, len(ids) < 100) || len(ids) < 100 {
			return
		}
	}
}

// Left returns what the core still holds.
func (c *Core) Left() (inHand, known, keys, blocked, running, unacked int) {
	return c.c.inHand[plain], len(c.s.known), len(c.s.keys), len(c.s.blocked), c.s.running, c.s.unacked
}

// InHand returns how many places a key has taken.
func (c *Core) InHand(key string) int {
	if k := c.s.keys[key]; k != nil {
		return k.places
	}
	return 0
}

// ReadEntries reads what XCLAIM answers, as it comes off a connection with a
// buffer of some size.
func ReadEntries(answer []byte, buffer int) (entries []wire.Entry, bad []error, err error) {
	c := &conn{net: readConn{bytes.NewReader(answer)}, in: make([]byte, buffer)}
	var d decoder
	items, err := d.items(c, nil, 1)
	for _, it := range items {
		entries = append(entries, it.entry)
		bad = append(bad, it.bad)
	}
	return entries, bad, err
}

// readConn is a connection that only reads.
type readConn struct{ *bytes.Reader }

func (readConn) Write(p []byte) (int, error)      { return len(p), nil }
func (readConn) Close() error                     { return nil }
func (readConn) LocalAddr() net.Addr              { return nil }
func (readConn) RemoteAddr() net.Addr             { return nil }
func (readConn) SetDeadline(time.Time) error      { return nil }
func (readConn) SetReadDeadline(time.Time) error  { return nil }
func (readConn) SetWriteDeadline(time.Time) error { return nil }

// Skew has the worker's server say that it is d later than it is.
func Skew(w *Worker, d time.Duration) {
	w.serverTime = func(ctx context.Context, n *node) (time.Time, error) {
		now, err := serverTime(ctx, n)
		return now.Add(d), err
	}
}

// A ServerClock is a worker's idea of a server's time.
type ServerClock struct{ c serverClock }

// Hear takes in an answer; times of the worker's clock are since it was made.
func (c *ServerClock) Hear(now time.Time, asked, heard time.Duration) { c.c.hear(now, asked, heard) }

// Age returns the age of the entry with the id ms-0.
func (c *ServerClock) Age(ms int64, now time.Duration) (time.Duration, bool) {
	return c.c.age(entryID{ms: uint64(ms)}, now)
}
