package gateway

import "time"

// What the tests need of the inside.

// CloseRules are the lines of the close-code table: code, and what follows.
func CloseRules() map[int]string {
	rules := make(map[int]string)
	for _, r := range closeRules {
		rules[r.code] = [...]string{"resume", "identify", "fatal"}[r.verdict]
	}
	return rules
}

// A Machine is a shard's state machine, driven by hand.
type Machine struct {
	m   machine
	Now time.Time
}

// An Outcome is what a step told the shard to do.
type Outcome struct {
	Do      string
	Code    int
	Cause   string
	Ended   string
	Refused bool
	Err     error
}

const PlainURL = "wss://plain.example"

func NewMachine(s Session) *Machine {
	return &Machine{
		m:   machine{url: PlainURL, readyTimeout: time.Minute, session: s, intents: 1<<1 | 1<<15},
		Now: time.Unix(1_900_000_000, 0),
	}
}

func (m *Machine) step(e event) Outcome {
	e.now = m.Now
	a := m.m.step(e)
	return Outcome{
		Do:   [...]string{"", "redial", "greet", "beat", "doubt", "step over", "leave", "end"}[a.verb],
		Code: a.code, Cause: a.cause, Ended: a.ended, Refused: a.refused, Err: a.err,
	}
}

func (m *Machine) Target() string      { url, _ := m.m.target(); return url }
func (m *Machine) Session() Session    { return m.m.session }
func (m *Machine) Phase() string       { return m.m.phase.String() }
func (m *Machine) Failures() int       { return m.m.failures }
func (m *Machine) DialFailed() Outcome { return m.step(event{what: dialFailed}) }
func (m *Machine) Dialed() Outcome     { return m.step(event{what: dialed}) }
func (m *Machine) Hello() Outcome      { return m.step(event{what: hello}) }
func (m *Machine) Introduced() Outcome { return m.step(event{what: introduced}) }
func (m *Machine) Ready(s Session) Outcome {
	return m.step(event{what: dispatched, name: "READY", session: s, sequence: s.Sequence})
}
func (m *Machine) Dispatched(name string, sequence int64) Outcome {
	return m.step(event{what: dispatched, name: name, sequence: sequence})
}
func (m *Machine) Unreadable() Outcome     { return m.step(event{what: unreadable}) }
func (m *Machine) BeatRequested() Outcome  { return m.step(event{what: beatRequested}) }
func (m *Machine) ReconnectAsked() Outcome { return m.step(event{what: reconnectAsked}) }
func (m *Machine) Invalidated(resumable bool) Outcome {
	return m.step(event{what: invalidated, resumable: resumable})
}
func (m *Machine) Acked() Outcome { return m.step(event{what: acked}) }
func (m *Machine) Tick(alive, busy bool) Outcome {
	return m.step(event{what: tick, alive: alive, busy: busy})
}
func (m *Machine) Closed(code int) Outcome { return m.step(event{what: closed, code: code}) }

var Backoff = backoff

// ScanEnvelope is scanEnvelope with what it found.
func ScanEnvelope(message []byte) (op, seq int64, name, data []byte, err error) {
	var e envelope
	err = scanEnvelope(message, &e)
	return e.op, e.seq, e.name, e.data, err
}

// A Scanner scans envelopes without giving anything away, for benchmarks.
type Scanner struct{ e envelope }

func (s *Scanner) Scan(message []byte) error { return scanEnvelope(message, &s.e) }

// An Inflater inflates whole messages.
type Inflater struct{ f *inflater }

func NewInflater(limit int) Inflater { return Inflater{newInflater(limit)} }
func (i Inflater) Close()            { i.f.close() }

// Message feeds parts and returns what they inflated to, and whether they were a
// whole message and within the limit.
func (i Inflater) Message(parts ...[]byte) (out []byte, whole, over bool, err error) {
	i.f.reset(i.f.out)
	for _, p := range parts {
		if err := i.f.feed(p); err != nil {
			return nil, false, false, err
		}
	}
	return i.f.out, i.f.whole(), i.f.over, nil
}

// A Budget is a connection's.
type Budget struct{ b budget }

func (b *Budget) Take(now time.Time, heartbeat bool) time.Duration { return b.b.take(now, heartbeat) }

// Take is LocalPacer's, with its clock.
func (p *LocalPacer) Take(bucket int, now time.Time) time.Duration { return p.take(bucket, now) }

var (
	IdentifyPacket  = identifyPacket
	AppendHeartbeat = appendHeartbeat
)
