package gatewaytest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zlib"

	"github.com/sluicehq/sluice/internal/rawjson"
)

const (
	batchFrames    = 64
	batchBytes     = 256 << 10
	maxClientBytes = 4096
	maxClientSends = 120             // in a minute
	hangUp         = 5 * time.Second // for a client that was told to
)

// A connection is one client's socket. What is below ws and zlib is guarded by
// Server.mu.
type connection struct {
	srv        *Server
	ws         *websocket.Conn
	host, path string
	zlib       *zlib.Writer // nil: no compression; the writer's
	packed     bytes.Buffer // where zlib writes

	wake chan struct{} // there may be something to send; one waiting is as good as two
	done chan struct{} // closed when reading has ended

	session *session // nil: none yet
	cursor  int64    // the next sequence to write
	orders  []order
	closing int // the code the server closes with; 0: none
	sends   []time.Time
}

// An order is something other than a dispatch to write.
type order struct {
	after int64  // not before the dispatch with this sequence
	frame []byte // nil: close
	code  int    // to close with
}

func newConnection(s *Server, ws *websocket.Conn, host, path, compress string) *connection {
	c := &connection{
		srv: s, ws: ws, host: host, path: path,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if compress != "" {
		c.zlib, _ = zlib.NewWriterLevel(&c.packed, zlib.BestSpeed) // fails for unknown levels only
	}
	ms := s.cfg.HeartbeatInterval.Milliseconds()
	hello := `{"t":null,"s":null,"op":10,"d":{"heartbeat_interval":` + strconv.FormatInt(max(ms, 1), 10) + `}}`
	c.orders = append(c.orders, order{frame: []byte(hello)})
	c.poke()
	return c
}

// poke tells the writer that there may be something to write.
func (c *connection) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// order queues something behind what is to be sent so far. srv.mu is held.
func (c *connection) order(o order) {
	if c.session != nil {
		o.after = c.session.last()
	}
	c.orders = append(c.orders, o)
	c.poke()
}

// write is the writer: it sends what is due until the socket is closed.
func (c *connection) write() {
	var batch []order
	var out []byte
	for {
		batch = c.due(batch[:0])
		if len(batch) == 0 {
			select {
			case <-c.wake:
				continue
			case <-c.done:
				return
			}
		}
		out = out[:0]
		for _, o := range batch {
			if o.frame != nil {
				out = c.append(out, o.frame)
				continue
			}
			out = appendFrame(out, websocket.CloseMessage, websocket.FormatCloseMessage(o.code, ""))
			c.ws.SetReadDeadline(time.Now().Add(hangUp)) // then read ends
		}
		if _, err := c.ws.NetConn().Write(out); err != nil {
			c.ws.Close() // read notices
			return
		}
		if cap(out) > 4*batchBytes {
			out = nil
		}
	}
}

// due takes what is to be written next: orders and dispatches in their order.
func (c *connection) due(batch []order) []order {
	s := c.srv
	s.mu.Lock()
	defer s.mu.Unlock()
	size := 0
	for len(batch) < batchFrames && size < batchBytes {
		if len(c.orders) > 0 && (c.session == nil || c.orders[0].after < c.cursor) {
			batch = append(batch, c.orders[0])
			c.orders = c.orders[1:]
			continue
		}
		if c.session == nil {
			break
		}
		e := c.session.at(c.cursor)
		if e == nil {
			break
		}
		batch = append(batch, order{frame: e.frame})
		size += len(e.frame)
		if c.cursor > c.session.sent {
			c.session.sent = c.cursor
			s.notify()
		}
		c.cursor++
	}
	return batch
}

// append appends a message as the client wants it.
func (c *connection) append(out, frame []byte) []byte {
	if c.zlib == nil {
		return appendFrame(out, websocket.TextMessage, frame)
	}
	c.packed.Reset()
	c.zlib.Write(frame) // into memory: neither fails
	c.zlib.Flush()
	packed := c.packed.Bytes()
	if split := c.srv.cfg.SplitBytes; split > 0 {
		for len(packed) > split {
			out = appendFrame(out, websocket.BinaryMessage, packed[:split])
			packed = packed[split:]
		}
	}
	return appendFrame(out, websocket.BinaryMessage, packed)
}

// appendFrame appends an unmasked WebSocket frame. The server frames by hand so
// that many messages go out in one write.
// Source: https://www.rfc-editor.org/rfc/rfc6455#section-5.2
func appendFrame(b []byte, opcode byte, payload []byte) []byte {
	b = append(b, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n <= 0xffff:
		b = append(b, 126)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b = append(b, 127)
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return append(b, payload...)
}

// read takes the client's messages until the socket is closed.
func (c *connection) read() {
	s := c.srv
	var err error
	for {
		var message []byte
		if _, message, err = c.ws.ReadMessage(); err != nil {
			break
		}
		c.take(message)
	}
	c.ws.Close()
	close(c.done)
	code := websocket.CloseAbnormalClosure
	var closed *websocket.CloseError
	if errors.As(err, &closed) {
		code = closed.Code
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	record := Close{Shard: -1, Code: code, Server: c.closing, At: time.Now()}
	if sess := c.session; sess != nil {
		record.Shard, record.Session = sess.place.shard, sess.id
		if sess.conn == c {
			sess.conn, sess.detached = nil, time.Now()
			if code == websocket.CloseNormalClosure || code == websocket.CloseGoingAway {
				s.end(sess)
			}
		}
	}
	s.closes = keep(s.closes, record, s.cfg.KeepRecords)
	s.notify()
}

// take handles one message of the client's.
func (c *connection) take(message []byte) {
	s := c.srv
	var m struct {
		Op *int            `json:"op"`
		D  json.RawMessage `json:"d"`
	}
	err := json.Unmarshal(message, &m)
	s.mu.Lock()
	switch {
	case c.closing != 0:
	case len(message) > maxClientBytes || err != nil || m.Op == nil:
		c.close(4002)
	case !c.within(time.Now()):
		c.close(4008)
	default:
		c.note(*m.Op, m.D)
		s.mu.Unlock()
		c.handle(*m.Op, m.D)
		return
	}
	s.mu.Unlock()
}

// within reports whether one more message is allowed. srv.mu is held.
func (c *connection) within(now time.Time) bool {
	c.sends = append(c.sends, now)
	if len(c.sends) <= maxClientSends {
		return true
	}
	first := c.sends[0]
	c.sends = c.sends[1:]
	return now.Sub(first) > time.Minute
}

func (c *connection) note(op int, d json.RawMessage) {
	r := Received{Shard: -1, Op: op, Data: d, At: time.Now()}
	if c.session != nil {
		r.Shard, r.Session = c.session.place.shard, c.session.id
	}
	c.srv.received = keep(c.srv.received, r, c.srv.cfg.KeepRecords)
	c.srv.notify()
}

// close orders a close frame; the client then hangs up. srv.mu is held.
func (c *connection) close(code int) {
	c.closing = code
	c.order(order{code: code})
	if c.session != nil && ends[code] {
		c.srv.end(c.session)
	}
}

// ends are the close codes after which Discord does not resume.
var ends = map[int]bool{
	1000: true, 4003: true, 4004: true, 4006: true, 4007: true, 4009: true,
	4010: true, 4011: true, 4012: true, 4013: true, 4014: true,
}

// handle answers one message.
func (c *connection) handle(op int, d json.RawMessage) {
	s := c.srv
	switch op {
	case 1:
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.noAcks {
			c.order(order{frame: []byte(`{"t":null,"s":null,"op":11,"d":null}`)})
		}
	case 2:
		c.identify(d)
	case 6:
		c.resume(d)
	case 3, 4, 8, 31, 43: // presence, voice state, members, soundboard, channel info: noted
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.session == nil {
			c.close(4003)
		}
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		c.close(4001)
	}
}

// allowed reports whether an IDENTIFY or RESUME with a token may come now, and
// closes if not. srv.mu is held.
func (c *connection) allowed(token string) bool {
	switch bare, _ := strings.CutPrefix(token, "Bot "); {
	case c.session != nil:
		c.close(4005)
	case c.srv.cfg.Token != "" && bare != c.srv.cfg.Token, bare == "":
		c.close(4004)
	default:
		return true
	}
	return false
}

func (c *connection) identify(d json.RawMessage) {
	s := c.srv
	var m struct {
		Token   string          `json:"token"`
		Intents *int            `json:"intents"`
		Shard   *[2]int         `json:"shard"`
		Props   json.RawMessage `json:"properties"`
	}
	err := json.Unmarshal(d, &m)
	s.emit(func() (*session, string, []byte) {
		p := place{0, 1}
		if m.Shard != nil {
			p = place{m.Shard[0], m.Shard[1]}
		}
		switch {
		case err != nil || !rawjson.IsObject(m.Props):
			c.close(4002)
			return nil, "", nil
		case !c.allowed(m.Token):
			return nil, "", nil
		case p.shards < 1 || p.shard < 0 || p.shard >= p.shards:
			c.close(4010)
			return nil, "", nil
		case m.Intents == nil || *m.Intents < 0:
			c.close(4013)
			return nil, "", nil
		}
		now := time.Now()
		s.total++
		bucket := p.shard % s.cfg.MaxConcurrency
		early := now.Sub(s.identified[bucket]) < s.cfg.IdentifyInterval
		s.identified[bucket] = now
		record := Identify{Shard: p.shard, Shards: p.shards, Intents: *m.Intents, Path: c.path, Data: d, At: now}
		if early {
			s.identifies = keep(s.identifies, record, s.cfg.KeepRecords)
			c.order(order{frame: invalidSession(false)})
			s.notify()
			return nil, "", nil
		}
		s.shards = p.shards
		sess := s.begin(p)
		record.Session = sess.id
		s.identifies = keep(s.identifies, record, s.cfg.KeepRecords)
		c.attach(sess, 1)
		s.notify()
		sess.host, sess.token, sess.awaits = c.host, m.Token, true
		return s.readyOf(sess)
	})
}

func (c *connection) resume(d json.RawMessage) {
	s := c.srv
	var m struct {
		Token     string `json:"token"`
		SessionID string `json:"session_id"`
		Seq       int64  `json:"seq"`
	}
	err := json.Unmarshal(d, &m)
	s.emit(func() (*session, string, []byte) {
		if err != nil {
			c.close(4002)
			return nil, "", nil
		}
		if !c.allowed(m.Token) {
			return nil, "", nil
		}
		record := Resume{Session: m.SessionID, Sequence: m.Seq, Shard: -1, Path: c.path, At: time.Now()}
		sess := s.find(m.SessionID)
		switch {
		case sess == nil || m.Seq < sess.first-1:
			c.order(order{frame: invalidSession(false)})
		case m.Seq > sess.last():
			record.Shard = sess.place.shard
			c.close(4007)
			s.end(sess)
		default:
			record.Shard, record.OK = sess.place.shard, true
			s.shards = sess.place.shards
			c.attach(sess, m.Seq+1)
		}
		s.resumes = keep(s.resumes, record, s.cfg.KeepRecords)
		s.notify()
		if !record.OK {
			return nil, "", nil
		}
		return sess, "RESUMED", []byte(`{"_trace":["[\"gatewaytest\",{\"micros\":1}]"]}`)
	})
}

// attach makes c the session's connection, from a sequence on. srv.mu is held.
func (c *connection) attach(sess *session, from int64) {
	if old := sess.conn; old != nil {
		old.ws.Close()
	}
	sess.conn, c.session, c.cursor = c, sess, from
	c.poke()
}

func invalidSession(resumable bool) []byte {
	return []byte(`{"t":null,"s":null,"op":9,"d":` + strconv.FormatBool(resumable) + `}`)
}
