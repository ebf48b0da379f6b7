package forward

import "github.com/sluicehq/sluice/internal/wire"

// A batch is what one commit writes: the commands of its items, in order.
type batch struct {
	block
	number  uint64
	items   []item
	bytes   int   // of payloads and states
	cost    int64 // of the budget, released when the batch is confirmed
	session *newSession
}

// maxReused is the size in bytes up to which a batch's memory is used again: what
// a guild of 30 MB took is given back.
const maxReused = 4 * maxBatchBytes

// A stock keeps the memory of confirmed batches for new ones. At most three are
// in use: one grows, one waits, one is being committed.
type stock chan *batch

func newStock() stock { return make(stock, 3) }

// take returns an empty batch.
func (s stock) take(number uint64) *batch {
	b := new(batch)
	select {
	case b = <-s:
	default:
	}
	b.number = number
	return b
}

// put takes a batch back that nothing refers to any more.
func (s stock) put(b *batch) {
	if cap(b.buf) > maxReused {
		return
	}
	clear(b.items)
	*b = batch{block: block{buf: b.buf[:0], starts: b.starts[:0]}, items: b.items[:0]}
	select {
	case s <- b:
	default:
	}
}

// An item is one dispatch in a batch, or an entry of the gateway's own.
type item struct {
	entry    wire.Entry // in JSON, whatever the codec
	stream   string     // key it goes to
	from, to int        // its commands in the batch
	instead  *block     // in place of those, once it has shrunk
	xadd     int        // which of its commands appends the entry; -1: none does
	sequence int64      // 0: it moves no sequence
}

// A newSession is what the session record becomes with a READY.
type newSession struct {
	id, resumeURL string
	at            int // index of READY's item
}

// sessionIn returns the new session if its READY is one of the items from up to to.
func (b *batch) sessionIn(from, to int) *newSession {
	if b.session != nil && from <= b.session.at && b.session.at < to {
		return b.session
	}
	return nil
}

// commands returns the commands of the items from up to to.
func (b *batch) commands(from, to int) part {
	if instead := b.items[from].instead; to-from == 1 && instead != nil {
		return instead.part(0, instead.len())
	}
	return b.part(b.items[from].from, b.items[to-1].to)
}

func (b *batch) empty() bool { return b == nil || len(b.items) == 0 }

func (b *batch) full() bool { return len(b.items) >= maxBatch || b.bytes >= maxBatchBytes }

// sequenceOf returns the last sequence among items, 0 if none of them has one.
func sequenceOf(items []item) (sequence int64) {
	for i := range items {
		if items[i].sequence != 0 {
			sequence = items[i].sequence
		}
	}
	return sequence
}
