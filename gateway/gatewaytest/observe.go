package gatewaytest

import (
	"context"
	"encoding/json"
	"slices"
	"time"
)

// A Sent is one dispatch of a session.
type Sent struct {
	Shard    int
	Session  string // its session_id
	Sequence int64
	Type     string          // empty: the message of a SendRaw
	Data     json.RawMessage // d, nil if it had none; of a SendRaw the message. Read only
}

// A Received is one message of a client's.
type Received struct {
	Shard   int // -1: not identified yet
	Session string
	Op      int
	Data    json.RawMessage // d
	At      time.Time
}

// An Identify is one IDENTIFY that was not wrong in itself.
type Identify struct {
	Shard, Shards int
	Intents       int
	Session       string          // that began; empty: it came too early and got op 9
	Path          string          // of the address it came to
	Data          json.RawMessage // its d
	At            time.Time
}

// A Resume is one RESUME.
type Resume struct {
	Shard    int // -1: the session was not known
	Session  string
	Sequence int64
	OK       bool   // false: it was refused
	Path     string // of the address it came to
	At       time.Time
}

// A Close is the end of one connection.
type Close struct {
	Shard   int // -1: not identified yet
	Session string
	Code    int // the client's; 1006: it hung up without one, or was cut off
	Server  int // the code the server closed with; 0: it did not
	At      time.Time
}

// Sent returns every dispatch of the sessions the server still knows, session
// after session as they began, each in its order.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Sent
	for _, sess := range s.sessions {
		for i := range sess.buffer {
			e := &sess.buffer[i]
			all = append(all, Sent{sess.place.shard, sess.id, sess.first + int64(i), e.name, e.d()})
		}
	}
	return all
}

// SentCount returns how many dispatches were sent since Start.
func (s *Server) SentCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Received returns the clients' messages in the order they came.
func (s *Server) Received() []Received { return read(s, &s.received) }

// Identifies returns the IDENTIFYs in the order they came.
func (s *Server) Identifies() []Identify { return read(s, &s.identifies) }

// Resumes returns the RESUMEs in the order they came.
func (s *Server) Resumes() []Resume { return read(s, &s.resumes) }

// Closes returns how connections ended, in that order.
func (s *Server) Closes() []Close { return read(s, &s.closes) }

// Connected reports whether a shard has a connection that stands in a session.
func (s *Server) Connected(shard int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.current[place{shard, s.shards}]
	return sess != nil && sess.conn != nil && sess.conn.closing == 0
}

// SessionID returns the session_id of a shard's session; empty: it has none.
func (s *Server) SessionID(shard int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sess := s.current[place{shard, s.shards}]; sess != nil {
		return sess.id
	}
	return ""
}

// WaitConnected waits until all of the shards are connected. Its errors are
// those of Wait; so it is for the calls below.
func (s *Server) WaitConnected(ctx context.Context, shards ...int) error {
	return s.Wait(ctx, func() bool {
		for _, shard := range shards {
			if !s.Connected(shard) {
				return false
			}
		}
		return true
	})
}

// WaitIdentifies waits until there were n IDENTIFYs in all.
func (s *Server) WaitIdentifies(ctx context.Context, n int) error {
	return s.Wait(ctx, func() bool { return len(s.Identifies()) >= n })
}

// WaitResumes waits until there were n RESUMEs in all.
func (s *Server) WaitResumes(ctx context.Context, n int) error {
	return s.Wait(ctx, func() bool { return len(s.Resumes()) >= n })
}

// WaitCloses waits until n connections have ended.
func (s *Server) WaitCloses(ctx context.Context, n int) error {
	return s.Wait(ctx, func() bool { return len(s.Closes()) >= n })
}

// WaitReceived waits until n messages with an opcode have come.
func (s *Server) WaitReceived(ctx context.Context, op, n int) error {
	return s.Wait(ctx, func() bool {
		count := 0
		for _, r := range s.Received() {
			if r.Op == op {
				count++
			}
		}
		return count >= n
	})
}

// read returns a copy of one of s's records.
func read[T any](s *Server, records *[]T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(*records)
}

// keep appends a record and drops the oldest above most.
func keep[T any](records []T, r T, most int) []T {
	records = append(records, r)
	if len(records) > most {
		records = records[len(records)-most:]
	}
	return records
}
