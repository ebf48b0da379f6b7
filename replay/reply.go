package replay

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// An item is an entry as it was read. bad says why it can't be delivered.
type item struct {
	id         entryID
	deliveries int
	gone       bool          // no longer in the stream, only pending
	fate       fate          // of a pending one
	from       string        // of a suspect: the consumer it is pending for
	progress   []byte        // the record of it, nil if there is none
	orphaned   time.Duration // see entry
	entry      wire.Entry
	bad        error
}

// A decoder reads entries off a connection. Texts that come again and again it
// gives back as the same string.
type decoder struct {
	events  map[string]string // custom events; see maxEvents
	session string
}

// maxEvents bounds the names of custom events that are remembered.
const maxEvents = 1024

// items reads an array of entries and appends them to into. The array is that of
// XCLAIM, or that of one stream in XREADGROUP.
func (d *decoder) items(c *conn, into []item, deliveries int) ([]item, error) {
	n, err := c.array()
	if err != nil {
		return into, err
	}
	for range n {
		into = append(into, item{deliveries: deliveries})
		it := &into[len(into)-1]
		nested, err := c.array()
		if err != nil {
			return into, err
		}
		if nested < 0 { // Redis 6.2: XCLAIM of an entry that was trimmed
			into = into[:len(into)-1]
			continue
		}
		if nested != 2 {
			return into, fmt.Errorf("%w: an entry of %d parts", errReply, nested)
		}
		id, err := c.word()
		if err != nil {
			return into, err
		}
		var ok bool
		if it.id, ok = parseID(id); !ok {
			return into, fmt.Errorf("%w: %.80q as an id", errReply, id)
		}
		if err := d.fields(c, it); err != nil {
			return into, err
		}
	}
	return into, nil
}

// fields reads an entry's fields and values. What is wrong with them is the
// item's; only what is wrong with the connection is returned.
func (d *decoder) fields(c *conn, it *item) error {
	n, err := c.array()
	if err != nil {
		return err
	}
	if n < 0 {
		it.gone = true
		return nil
	}
	if n%2 != 0 {
		return fmt.Errorf("%w: an entry of %d names and values", errReply, n)
	}
	var seen uint16
	for i := range n / 2 {
		field := i
		if i >= len(fieldNames) || !c.is(fieldNames[i]) { // it is not where it should be
			name, err := c.word()
			if err != nil {
				return err
			}
			if field = indexOf(name); field < 0 {
				if err := c.skip(); err != nil {
					return err
				}
				continue
			}
		}
		seen |= 1 << field
		if err := d.field(c, it, field); err != nil {
			return err
		}
	}
	if seen != 1<<len(wire.Fields)-1 && it.bad == nil {
		missing := wire.Fields[bits.TrailingZeros16(^seen)]
		it.bad = fmt.Errorf("%w: field %q is missing", wire.ErrEntry, missing)
	}
	if codec := it.entry.Codec; it.bad == nil && codec != wire.JSON && codec != wire.Msgpack {
		it.bad = fmt.Errorf("%w: codec is %q, want %q or %q", wire.ErrEntry, codec, wire.JSON, wire.Msgpack)
	}
	return nil
}

// fieldNames are wire.Fields as they are sent.
var fieldNames = func() (sent [len(wire.Fields)]string) {
	for i, name := range wire.Fields {
		sent[i] = fmt.Sprintf("$%d\r\n%s\r\n", len(name), name)
	}
	return sent
}()

// indexOf returns which of wire.Fields a name is, -1 if it is none.
func indexOf(name []byte) int { return slices.Index(wire.Fields[:], string(name)) }

// The places in wire.Fields; a test holds them to it.
const (
	fieldEvent = iota
	fieldPayload
	fieldState
	fieldShard
	fieldSequence
	fieldSession
	fieldReceived
	fieldCodec
	fieldFlags
	fieldTrace
	fieldTarget
)

func (d *decoder) field(c *conn, it *item, field int) (err error) {
	e := &it.entry
	switch field {
	case fieldPayload:
		e.Payload, err = c.own()
		return err
	case fieldState:
		e.State, err = c.own()
		return err
	}
	value, err := c.word()
	if err != nil {
		return err
	}
	switch field {
	case fieldEvent:
		e.Event = d.event(value)
	case fieldShard:
		e.Shard = int(it.number(field, value, math.MaxInt32))
	case fieldSequence:
		e.Sequence = it.number(field, value, math.MaxInt64)
	case fieldReceived:
		e.Received = it.number(field, value, math.MaxInt64)
	case fieldSession:
		if string(value) != d.session {
			d.session = string(value)
		}
		e.Session = d.session
	case fieldCodec:
		switch string(value) {
		case wire.JSON:
			e.Codec = wire.JSON
		case wire.Msgpack:
			e.Codec = wire.Msgpack
		default:
			e.Codec = string(value)
		}
	case fieldFlags:
		if len(value) > 0 {
			e.Flags = wire.ParseFlags(string(value))
		}
	case fieldTrace:
		e.Trace = string(value)
	case fieldTarget:
		e.Target = string(value)
	}
	return nil
}

// number reads a decimal field.
func (it *item) number(field int, value []byte, limit uint64) int64 {
	digitsOf, negative := value, len(value) > 0 && value[0] == '-'
	if negative {
		digitsOf = value[1:]
	}
	n, rest, ok := digits(digitsOf)
	if !ok || len(rest) > 0 || n > limit {
		if it.bad == nil {
			it.bad = fmt.Errorf("%w: field %q is %.80q, want a decimal number", wire.ErrEntry, wire.Fields[field], value)
		}
		return 0
	}
	if negative {
		return -int64(n)
	}
	return int64(n)
}

func (d *decoder) event(name []byte) string {
	if t := dispatch.Lookup(name); t != nil {
		return t.Name
	}
	if s, ok := d.events[string(name)]; ok {
		return s
	}
	s := strings.Clone(string(name))
	if len(d.events) < maxEvents && len(s) <= dispatch.MaxSubjectBytes {
		if d.events == nil {
			d.events = make(map[string]string)
		}
		d.events[s] = s
	}
	return s
}

// A pendingEntry is a line of XPENDING.
type pendingEntry struct {
	id         entryID
	consumer   string
	deliveries int
	idle       time.Duration // since it was delivered last
	chosen     bool          // a suspect whose turn has come
}

// readPending reads what XPENDING answers with a range.
func readPending(c *conn, into []pendingEntry) ([]pendingEntry, error) {
	n, err := c.array()
	if err != nil {
		return into, err
	}
	for range n {
		if parts, err := c.array(); err != nil {
			return into, err
		} else if parts != 4 {
			return into, fmt.Errorf("%w: a pending entry of %d parts", errReply, parts)
		}
		var p pendingEntry
		word, err := c.word()
		if err != nil {
			return into, err
		}
		id, ok := parseID(word)
		if !ok {
			return into, fmt.Errorf("%w: %.80q as an id", errReply, word)
		}
		p.id = id
		if word, err = c.word(); err != nil {
			return into, err
		}
		if k := len(into); k > 0 && into[k-1].consumer == string(word) {
			p.consumer = into[k-1].consumer
		} else {
			p.consumer = string(word)
		}
		idle, err := c.want(':')
		if err != nil {
			return into, err
		}
		p.idle = time.Duration(idle) * time.Millisecond
		deliveries, err := c.want(':')
		if err != nil {
			return into, err
		}
		p.deliveries = int(deliveries)
		into = append(into, p)
	}
	return into, nil
}

// readSummary reads what XPENDING answers without a range: how many entries are
// pending, and whether one of the consumers they are pending for is foreign, as
// asked of each with its number of them.
func readSummary(c *conn, foreign func(consumer string, pending int) bool) (total int64, others bool, err error) {
	parts, err := c.array()
	if err != nil {
		return 0, false, err
	}
	if parts != 4 {
		return 0, false, fmt.Errorf("%w: a summary of %d parts", errReply, parts)
	}
	if total, err = c.want(':'); err != nil {
		return 0, false, err
	}
	for range 2 { // the lowest and the highest id
		if err := c.skip(); err != nil {
			return 0, false, err
		}
	}
	consumers, err := c.array()
	if err != nil {
		return 0, false, err
	}
	for range consumers {
		if parts, err := c.array(); err != nil {
			return 0, false, err
		} else if parts != 2 {
			return 0, false, fmt.Errorf("%w: a consumer of %d parts", errReply, parts)
		}
		name, err := c.word()
		if err != nil {
			return 0, false, err
		}
		consumer := string(name)
		count, err := c.word()
		if err != nil {
			return 0, false, err
		}
		n, _, _ := digits(count)
		others = foreign(consumer, int(n)) || others
	}
	return total, others, nil
}
