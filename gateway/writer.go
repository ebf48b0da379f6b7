package gateway

import (
	"context"
	"math/rand/v2"
	"time"
)

// writeAll is the writer: everything but the close frame is sent by it, and the
// heartbeats are timed by it, so that nothing the reader does can delay them.
func (l *link) writeAll(ctx context.Context) {
	var (
		budget   budget
		interval time.Duration
		life     uint64
		buf      [64]byte
		packet   []byte // waits for a place in the budget
	)
	ticks := time.NewTimer(time.Hour)
	ticks.Stop()
	defer ticks.Stop()
	places := time.NewTimer(time.Hour)
	places.Stop()
	defer places.Stop()

	send := func(message []byte) bool {
		if err := l.conn.write(message); err != nil {
			l.log.Debug("write", "err", err)
			l.conn.interrupt() // the reader finds the connection lost
			return false
		}
		return true
	}
	heartbeat := func() bool {
		if budget.take(time.Now(), true) > 0 {
			return true // Discord asks for more than it allows; the next one will do
		}
		return send(appendHeartbeat(buf[:0], l.handler.Sequence(l.session().Sequence)))
	}
	for {
		packets := l.packets
		if packet != nil {
			packets = nil
		}
		select {
		case <-ctx.Done():
			return
		case interval = <-l.intervals:
			// The first one after a random part of the interval, so that the
			// shards of a restarted bot do not beat together.
			ticks.Reset(time.Duration(rand.Float64() * float64(interval)))
			continue
		case <-ticks.C:
			ticks.Reset(interval)
			now, read, busy := time.Now(), l.conn.life.Load(), l.conn.busy.Load()
			a := l.step(event{what: tick, now: now, busy: busy, alive: busy || read != life})
			life = read
			switch a.verb {
			case leave:
				l.settle(a)
				return
			case doubt:
				ticks.Reset(interval / 4)
			case beat:
				if !heartbeat() {
					return
				}
			}
			continue
		case <-l.asked:
			if !heartbeat() {
				return
			}
			continue
		case packet = <-packets:
		case <-places.C:
		}
		if wait := budget.take(time.Now(), false); wait > 0 {
			places.Reset(wait)
			continue
		}
		if !send(packet) {
			return
		}
		packet = nil
		l.step(event{what: introduced, now: time.Now()})
	}
}
