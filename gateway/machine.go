package gateway

import "time"

// A machine is a shard's state: what it knows of its session, and where its
// connection stands. It is a plain value: step takes what happened and returns
// what to do, and everything else (sockets, clocks, chance) is the caller's.
type machine struct {
	shard, intents int
	url            string
	readyTimeout   time.Duration

	session Session // zero: identify
	avoid   bool    // the session's own address could not be dialled

	failures int // connections in a row that did not serve, for the backoff

	malformed struct {
		sequence int64 // the one it came after
		tries    int
	}

	// Of the connection.
	phase    phase
	served   bool      // it brought something: a dispatch, or an ack once ready
	asked    bool      // IDENTIFY or RESUME has gone out
	heard    time.Time // the last dispatch, or that sending
	unacked  bool      // a heartbeat waits for its ack
	doubted  bool      // and nothing was received when the next one was due
	beatSent time.Time
	lastAck  time.Time
	latency  time.Duration
}

// maxMalformed is how often a message that can't be read is received before it
// is stepped over.
const maxMalformed = 3

// A phase is how far a connection has come.
type phase uint8

const (
	offline   phase = iota
	connected       // Discord's hello has not come yet
	greeted         // IDENTIFY or RESUME is due, or under way
	ready           // READY or RESUMED has been handed over
)

func (p phase) String() string {
	return [...]string{"offline", "connected", "greeted", "ready"}[p]
}

// A happening is what step reacts to.
type happening uint8

const (
	dialFailed     happening = iota
	dialed                   // the socket is open
	hello                    // op 10
	introduced               // IDENTIFY or RESUME has gone out
	dispatched               // op 0, and the handler has taken it
	unreadable               // a message that can't be scanned
	beatRequested            // op 1
	reconnectAsked           // op 7
	invalidated              // op 9
	acked                    // op 11
	tick                     // a heartbeat is due
	closed                   // the connection is gone
)

type event struct {
	what happening
	now  time.Time

	name      string  // dispatched: its type
	session   Session // dispatched, READY: the new session, without its sequence
	sequence  int64   // dispatched
	resumable bool    // invalidated
	alive     bool    // tick: something was received since the last, or nobody was listening
	busy      bool    // tick: the handler blocks
	code      int     // closed: Discord's code; 0: lost without one
}

// A verb is what the caller has to do.
type verb uint8

const (
	carryOn  verb = iota
	redial        // dial again at once: target has changed
	greet         // start heartbeats, then identify or resume
	beat          // send a heartbeat
	doubt         // tick again a little later
	stepOver      // count, log and forget the message
	leave         // close the socket, wait, connect again
	end           // close the socket, Run ends with err
)

type action struct {
	verb    verb
	code    int    // leave, end: to close with; 0: Discord has closed
	cause   string // leave: a word or two for logs and metrics
	ended   string // why the session has ended; empty: it has not
	refused bool   // leave: wait as after a refused session
	err     error  // end
}

// target is the address to dial.
func (m *machine) target() (url string, own bool) {
	if m.session.ID != "" && m.session.ResumeURL != "" && !m.avoid {
		return m.session.ResumeURL, true
	}
	return m.url, false
}

// step changes the machine by what happened. Once a connection is left, nothing
// more of it changes anything: one connection gives one leave or end.
func (m *machine) step(e event) action {
	switch e.what {
	case dialFailed:
		return m.dialFailed()
	case dialed:
		if m.avoid { // the plain address answers where the session's own did not
			m.session.ResumeURL, m.avoid = "", false
		}
		m.phase, m.served, m.asked, m.unacked, m.doubted = connected, false, false, false, false
		m.beatSent, m.heard = time.Time{}, e.now
		return action{}
	}
	if m.phase == offline {
		return action{}
	}
	switch e.what {
	case hello:
		if m.phase != connected {
			return action{}
		}
		m.phase = greeted
		return action{verb: greet}
	case introduced:
		m.asked, m.heard = true, e.now
	case dispatched:
		m.dispatched(e)
	case unreadable:
		return m.unreadable()
	case beatRequested:
		if !m.unacked {
			m.unacked, m.beatSent = true, e.now
		}
		return action{verb: beat}
	case reconnectAsked:
		return m.leave(action{code: closeResumable, cause: "reconnect"})
	case invalidated:
		if e.resumable && m.session.ID != "" {
			return m.leave(action{code: closeResumable, cause: "invalid"})
		}
		return m.leave(action{code: closeResumable, cause: "invalid", refused: true,
			ended: m.endSession("Discord declared the session invalid")})
	case acked:
		m.acked(e.now)
	case tick:
		return m.tick(e)
	case closed:
		return m.closed(e.code)
	}
	return action{}
}

func (m *machine) dialFailed() action {
	if _, own := m.target(); own {
		m.avoid = true
		return action{verb: redial}
	}
	m.avoid = false
	m.failures++
	return action{verb: leave, cause: "unreachable"}
}

func (m *machine) dispatched(e event) {
	m.heard = e.now
	switch {
	case e.name == "READY":
		m.session = e.session
		m.session.Sequence = e.sequence
		m.phase = ready
		return
	case e.name == "RESUMED":
		m.phase = ready
	case m.phase == ready:
		m.served = true
	}
	if m.session.ID != "" {
		m.session.Sequence = max(m.session.Sequence, e.sequence)
	}
}

func (m *machine) unreadable() action {
	if m.malformed.sequence != m.session.Sequence {
		m.malformed.sequence, m.malformed.tries = m.session.Sequence, 0
	}
	if m.malformed.tries++; m.malformed.tries < maxMalformed {
		return m.leave(action{code: closeResumable, cause: "malformed"})
	}
	return action{verb: stepOver}
}

func (m *machine) acked(now time.Time) {
	if m.unacked {
		m.latency = now.Sub(m.beatSent)
	}
	m.unacked, m.lastAck = false, now
	if m.phase == ready {
		m.served = true
	}
}

// tick judges the connection before the next heartbeat: without an ack, or any
// other sign of life, since the last one it is a zombie. It is asked twice: after
// the process was frozen a tick may come before the reader has had its turn.
func (m *machine) tick(e event) action {
	switch {
	case m.phase == connected:
		return action{}
	case m.unacked && !e.alive && !m.doubted:
		m.doubted = true
		return action{verb: doubt}
	case m.unacked && !e.alive:
		return m.leave(action{code: closeResumable, cause: "zombie"})
	case m.phase == greeted && m.asked && !e.busy && e.now.Sub(m.heard) > m.readyTimeout:
		return m.leave(action{code: closeResumable, cause: "silent"})
	}
	m.unacked, m.doubted, m.beatSent = true, false, e.now
	return action{verb: beat}
}

func (m *machine) closed(code int) action {
	r := ruleOf(code)
	switch r.verdict {
	case fatal:
		m.phase = offline
		return action{verb: end, err: fatalError(r, m.shard, m.intents)}
	case identify:
		return m.leave(action{cause: r.meaning, ended: m.endSession("Discord closed the connection: " + r.meaning)})
	}
	return m.leave(action{cause: r.meaning})
}

func (m *machine) leave(a action) action {
	m.phase = offline
	if m.served {
		m.failures = 0
	} else {
		m.failures++
	}
	a.verb = leave
	return a
}

// endSession forgets the session and returns the reason if there was one.
func (m *machine) endSession(reason string) string {
	if m.session.ID == "" {
		reason = ""
	}
	m.session, m.avoid = Session{}, false
	return reason
}

// backoff returns the wait after so many failed connections, for a chance from
// 0 up to 1.
func backoff(failures int, least, most time.Duration, chance float64) time.Duration {
	if failures == 0 {
		return 0
	}
	d := most
	if shift := failures - 1; shift < 30 && least<<shift>>shift == least {
		d = min(most, least<<shift)
	}
	return d - time.Duration(chance*float64(d)/2)
}
