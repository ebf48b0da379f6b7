package forward

import "github.com/sluicehq/sluice/internal/wire"

// A batch is what one commit writes: the commands of its items, in order.
type batch struct {
	number   uint64
	commands [][]any
	items    []item
	bytes    int   // of payloads and states
	cost     int64 // of the budget, released when the batch is confirmed
	session  *newSession
}

// An item is one dispatch in a batch, or an entry of the gateway's own.
type item struct {
	entry    wire.Entry // in JSON, whatever the codec
	stream   string     // key it goes to
	from, to int        // its commands in the batch
	commands [][]any    // in place of those, once it has shrunk
	xadd     int        // which of its commands appends the entry; -1: none does
	shrunk   bool
	sequence int64 // 0: it moves no sequence
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

// Command takes a command of the item being built. It implements cache.Writer.
func (b *batch) Command(args ...any) { b.commands = append(b.commands, args) }

func (b *batch) empty() bool { return b == nil || len(b.items) == 0 }

func (b *batch) full() bool { return len(b.items) >= maxBatch || b.bytes >= maxBatchBytes }

// sequence returns the last sequence among items, 0 if none of them has one.
func sequenceOf(items []item) (sequence int64) {
	for i := range items {
		if items[i].sequence != 0 {
			sequence = items[i].sequence
		}
	}
	return sequence
}
