package gatewaytest

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// A session is one of a shard's, with everything that was sent in it. Guarded by
// Server.mu.
type session struct {
	id    string
	place place

	buffer []entry // buffer[i] has sequence first+i
	first  int64
	bytes  int
	sent   int64 // the highest sequence that was written to a socket

	awaits   bool        // READY is still withheld
	host     string      // the client dialled
	token    string      // it identified with
	conn     *connection // nil: none
	detached time.Time   // since when
	ended    bool
}

// An entry is one dispatch as it goes over the wire.
type entry struct {
	name  string
	frame []byte
	data  int  // where d begins in frame; it ends a byte before the end. 0: none
	raw   bool // sent by SendRaw
}

func (e *entry) d() json.RawMessage {
	switch {
	case e.raw:
		return e.frame
	case e.data == 0:
		return nil
	}
	return e.frame[e.data : len(e.frame)-1]
}

// begin starts a session for a shard and makes it the shard's current one. s.mu
// is held.
func (s *Server) begin(p place) *session {
	var id [16]byte
	rand.Read(id[:])
	sess := &session{id: hex.EncodeToString(id[:]), place: p, first: 1, detached: time.Now()}
	if old := s.current[p]; old != nil {
		s.end(old)
	}
	s.current[p] = sess
	s.sessions = append(s.sessions, sess)
	if len(s.sessions) > s.cfg.KeepSessions {
		for i, old := range s.sessions {
			if old.ended {
				s.sessions = append(s.sessions[:i:i], s.sessions[i+1:]...)
				break
			}
		}
	}
	return sess
}

// end ends a session: it can't be resumed, and nothing more is sent in it. s.mu
// is held.
func (s *Server) end(sess *session) {
	sess.ended = true
	if s.current[sess.place] == sess {
		delete(s.current, sess.place)
	}
	s.notify()
}

// expired reports whether the session has been without a connection too long.
func (s *Server) expired(sess *session) bool {
	return sess.conn == nil && time.Since(sess.detached) > s.cfg.SessionTimeout
}

// find returns the session with an id, nil if it is unknown or has ended. s.mu
// is held.
func (s *Server) find(id string) *session {
	for i := len(s.sessions) - 1; i >= 0; i-- {
		if sess := s.sessions[i]; sess.id == id {
			if s.expired(sess) {
				s.end(sess)
			}
			if sess.ended {
				return nil
			}
			return sess
		}
	}
	return nil
}

// last is the highest sequence of the session.
func (sess *session) last() int64 { return sess.first + int64(len(sess.buffer)) - 1 }

// at returns the entry with a sequence, nil if there is none (yet, or any more).
func (sess *session) at(sequence int64) *entry {
	i := sequence - sess.first
	if i < 0 || i >= int64(len(sess.buffer)) {
		return nil
	}
	return &sess.buffer[i]
}

// put gives a dispatch the session's next sequence and sends it when its turn
// comes. s.mu is held.
func (s *Server) put(sess *session, name string, d []byte) int64 {
	sequence := sess.last() + 1
	frame := make([]byte, 0, len(name)+len(d)+48)
	frame = append(frame, `{"t":`...)
	frame = appendString(frame, name)
	frame = append(frame, `,"s":`...)
	frame = strconv.AppendInt(frame, sequence, 10)
	frame = append(frame, `,"op":0`...)
	e := entry{name: name}
	if d != nil {
		frame = append(frame, `,"d":`...)
		e.data = len(frame)
		frame = append(frame, d...)
	}
	e.frame = append(frame, '}')
	s.add(sess, e)
	return sequence
}

// add appends an entry and drops the oldest ones above the bounds. s.mu is held.
func (s *Server) add(sess *session, e entry) {
	sess.buffer = append(sess.buffer, e)
	sess.bytes += len(e.frame)
	s.sent++
	for len(sess.buffer) > 1 && (len(sess.buffer) > s.cfg.BufferDispatches || sess.bytes > s.cfg.BufferBytes) {
		sess.bytes -= len(sess.buffer[0].frame)
		sess.buffer[0] = entry{}
		sess.buffer = sess.buffer[1:]
		sess.first++
	}
	if sess.conn != nil {
		sess.conn.poke()
	}
	s.notify()
}

// emit sends the dispatch that pick decides on in the session it decides on, and
// logs it. pick runs with s.mu held; a nil session sends nothing.
func (s *Server) emit(pick func() (sess *session, name string, d []byte)) (sequence int64) {
	if s.cfg.Log != nil {
		s.recording.Lock()
		defer s.recording.Unlock()
	}
	s.mu.Lock()
	sess, name, d := pick()
	if sess != nil {
		sequence = s.put(sess, name, d)
	}
	s.mu.Unlock()
	if sess != nil {
		s.record(sess, sequence, name, d)
	}
	return sequence
}

// record writes a dispatch to the log. s.recording is held, s.mu is not.
func (s *Server) record(sess *session, sequence int64, name string, d []byte) {
	if s.cfg.Log == nil || s.logErr != nil {
		return
	}
	if d == nil {
		d = []byte("null")
	}
	if bytes.IndexByte(d, '\n') >= 0 { // a line it must be
		var compact bytes.Buffer
		if json.Compact(&compact, d) == nil {
			d = compact.Bytes()
		}
	}
	line := make([]byte, 0, len(name)+len(d)+96)
	line = fmt.Appendf(line, `{"shard":%d,"session":"%s","s":%d,"t":`, sess.place.shard, sess.id, sequence)
	line = appendString(line, name)
	line = append(line, `,"d":`...)
	line = append(line, d...)
	line = append(line, '}', '\n')
	if _, err := s.cfg.Log.Write(line); err != nil {
		s.logErr = fmt.Errorf("gatewaytest: log: %w", err)
	}
}

// appendString appends text as a JSON string.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, _ := json.Marshal(text) // a string can always be marshalled
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
