package gateway

import "time"

// A Status is where a shard stands, for readiness and operators.
type Status struct {
	// Connected reports whether the session stands: READY or RESUMED has been
	// handed over on this connection.
	Connected bool
	// Phase is offline, connected (hello awaited), greeted (READY or RESUMED
	// awaited) or ready.
	Phase string
	// Blocked reports whether the handler has a dispatch in hand right now.
	Blocked bool
	// Latency is the time from the last acked heartbeat to its ack; 0: none yet.
	Latency time.Duration
	// LastAck is when Discord last acked a heartbeat; zero: not yet.
	LastAck time.Time
	// Sequence is the last one handed over; 0: none.
	Sequence int64
	// Failures counts the connections in a row that brought nothing.
	Failures int
}

// Status reports where the shard stands. Safe for concurrent use.
func (s *Shard) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{
		Connected: s.m.phase == ready,
		Phase:     s.m.phase.String(),
		Blocked:   s.c != nil && s.c.busy.Load(),
		Latency:   s.m.latency,
		LastAck:   s.m.lastAck,
		Sequence:  s.m.session.Sequence,
		Failures:  s.m.failures,
	}
}
