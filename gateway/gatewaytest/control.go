package gatewaytest

import (
	"fmt"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// Send sends a dispatch in a shard's session and returns its sequence. Without a
// connection it waits in the session for the RESUME. A nil d leaves d out; d is
// copied. The error says that the shard has no session, or that d is no JSON.
// The shard is one of as many as the last IDENTIFY said; so it is for all calls.
func (s *Server) Send(shard int, name string, d []byte) (sequence int64, err error) {
	if d != nil && !rawjson.Complete(d) {
		return 0, fmt.Errorf("gatewaytest: the d of %s is not one JSON value: use SendRaw to send what is none", name)
	}
	sequence = s.emit(func() (*session, string, []byte) {
		return s.current[place{shard, s.shards}], name, d
	})
	if sequence == 0 {
		return 0, noSession(shard)
	}
	return sequence, nil
}

// SendRaw sends a message as it is in the place of the session's next dispatch:
// it has a sequence (which need not be the one it says), and a RESUME from
// before it gets it again. It is kept but not logged.
func (s *Server) SendRaw(shard int, message []byte) (sequence int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.current[place{shard, s.shards}]
	if sess == nil {
		return 0, noSession(shard)
	}
	s.add(sess, entry{frame: append([]byte(nil), message...), raw: true})
	return sess.last(), nil
}

// Interject writes a message as it is to a shard's connection, behind what was
// sent so far. It belongs to no session: no RESUME brings it again. The error
// says that the shard has no connection; so it is for the calls below.
func (s *Server) Interject(shard int, message []byte) error {
	message = append([]byte(nil), message...)
	return s.command(shard, func(c *connection) { c.order(order{frame: message}) })
}

// Reconnect asks a shard to reconnect (op 7).
func (s *Server) Reconnect(shard int) error {
	return s.Interject(shard, []byte(`{"t":null,"s":null,"op":7,"d":null}`))
}

// RequestHeartbeat asks a shard for a heartbeat (op 1).
func (s *Server) RequestHeartbeat(shard int) error {
	return s.Interject(shard, []byte(`{"t":null,"s":null,"op":1,"d":null}`))
}

// Invalidate tells a shard that its session is invalid (op 9). If it is not
// resumable, the session has ended.
func (s *Server) Invalidate(shard int, resumable bool) error {
	return s.command(shard, func(c *connection) {
		c.order(order{frame: invalidSession(resumable)})
		if !resumable {
			s.end(c.session)
		}
	})
}

// CloseShard closes a shard's connection with a code; those after which Discord
// does not resume end the session.
func (s *Server) CloseShard(shard, code int) error {
	return s.command(shard, func(c *connection) { c.close(code) })
}

// EndSession ends a shard's session without a word, as if it had timed out: a
// RESUME is refused. The error says that there is none.
func (s *Server) EndSession(shard int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.current[place{shard, s.shards}]
	if sess == nil {
		return noSession(shard)
	}
	s.end(sess)
	return nil
}

// DropConnections cuts all connections without a close frame, as a network does,
// and returns how many there were.
func (s *Server) DropConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop()
}

func (s *Server) drop() int {
	for c := range s.conns {
		c.ws.Close()
	}
	return len(s.conns)
}

// WithholdAcks lets heartbeats go unanswered, or answers them again.
func (s *Server) WithholdAcks(withhold bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noAcks = withhold
}

// command runs do, with s.mu held, on a shard's connection.
func (s *Server) command(shard int, do func(c *connection)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.current[place{shard, s.shards}]
	if sess == nil || sess.conn == nil || sess.conn.closing != 0 {
		return fmt.Errorf("gatewaytest: shard %d is not connected", shard)
	}
	do(sess.conn)
	return nil
}

func noSession(shard int) error {
	return fmt.Errorf("gatewaytest: shard %d has no session", shard)
}
