package gateway

import "time"

// Discord closes a connection that sends more than 120 messages in 60 seconds.
// Source: https://discord.com/developers/docs/events/gateway#rate-limiting
const (
	budgetSends    = 120
	budgetWindow   = 60 * time.Second
	budgetReserved = 5 // places only heartbeats may take
)

// A budget counts a connection's messages. The zero value is a new connection's.
type budget struct {
	sent [budgetSends]time.Time // a ring: the last so many, next is the oldest
	next int
}

// take returns 0 and counts a message if one may be sent now, else the wait
// until then. The last places are for heartbeats.
func (b *budget) take(now time.Time, heartbeat bool) time.Duration {
	oldest := b.next
	if !heartbeat {
		oldest = (b.next + budgetReserved) % budgetSends
	}
	if wait := b.sent[oldest].Add(budgetWindow).Sub(now); wait > 0 && !b.sent[oldest].IsZero() {
		return wait
	}
	b.sent[b.next] = now
	b.next = (b.next + 1) % budgetSends
	return 0
}
