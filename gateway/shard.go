package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/rawjson"
)

// A Shard is one connection to the gateway, kept up for as long as Run runs.
type Shard struct {
	cfg      Config // filled
	handler  Handler
	identify []byte // the IDENTIFY message
	metrics  *metrics
	log      *slog.Logger

	running  atomic.Bool
	resuming atomic.Bool // a RESUME was sent and is not answered
	unheard  int         // dials in a row that found nobody; Run's goroutine only

	mu sync.Mutex // guards m and c
	m  machine
	c  *conn // nil: none
}

// New checks cfg and returns its shard. It does no I/O.
func New(cfg Config, h Handler) (*Shard, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, fmt.Errorf("gateway: no handler")
	}
	packet, err := identifyPacket(cfg)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return &Shard{
		cfg:      cfg,
		handler:  h,
		identify: packet,
		metrics:  newMetrics(cfg.Metrics, cfg.Shard),
		log:      cfg.Logger.With(slog.Int("shard", cfg.Shard)),
	}, nil
}

// Run keeps the shard connected until ctx ends: it then closes with 4000, which
// leaves the session alive, and returns nil. It begins with a RESUME of the
// given session, or an IDENTIFY if that is zero.
//
// It returns an error if the handler's or the pacer's ends it, or a *FatalError
// if Discord refuses the shard for good. Trouble with the network is none: the
// shard tries again. Run may be called again after it has returned.
func (s *Shard) Run(ctx context.Context, resume Session) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("gateway: shard %d is running already", s.cfg.Shard)
	}
	defer s.running.Store(false)
	s.mu.Lock()
	s.m = machine{
		shard: s.cfg.Shard, intents: s.cfg.Intents, url: s.cfg.URL, readyTimeout: s.cfg.ReadyTimeout,
		session: resume,
	}
	s.mu.Unlock()
	for {
		a, err := s.attempt(ctx)
		s.metrics.connected.Set(0)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a.verb == end {
			return a.err
		}
		s.metrics.disconnects.WithLabelValues(a.cause).Inc()
		if s.resuming.Swap(false) {
			result := resumeFailed
			if a.ended != "" {
				result = resumeRefused
			}
			s.metrics.resumes.WithLabelValues(result).Inc()
		}
		if a.ended != "" {
			s.handler.SessionEnded(ctx, a.ended)
		}
		wait := s.wait(a)
		if a.cause != "unreachable" {
			s.log.Info("shard disconnected", "cause", a.cause, "session_ended", a.ended != "", "retry_in", wait)
		}
		if sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// wait returns how long to stay away after a connection that ended with a.
func (s *Shard) wait(a action) time.Duration {
	if a.refused {
		most := s.cfg.InvalidSessionWait
		return most/5 + rand.N(most-most/5+1)
	}
	s.mu.Lock()
	failures := s.m.failures
	s.mu.Unlock()
	return backoff(failures, s.cfg.BackoffMin, s.cfg.BackoffMax, rand.Float64())
}

// step passes what happened on to the machine.
func (s *Shard) step(e event) action {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.step(e)
}

// attempt makes one connection and stays with it until its end.
func (s *Shard) attempt(ctx context.Context) (action, error) {
	if err := s.handler.Check(ctx); err != nil {
		return action{}, err
	}
	c, a := s.dial(ctx)
	if c == nil {
		return a, nil
	}
	s.mu.Lock()
	s.c = c
	s.mu.Unlock()

	l := &link{Shard: s, conn: c, verdicts: make(chan action, 1), packets: make(chan []byte), asked: make(chan struct{}, 1), intervals: make(chan time.Duration, 1)}
	a = l.serve(ctx)

	s.mu.Lock()
	s.m.phase, s.c = offline, nil
	s.mu.Unlock()
	return a, nil
}

// dial connects to where the session is, or where sessions begin. Without a
// connection the action says how to go on.
func (s *Shard) dial(ctx context.Context) (*conn, action) {
	for {
		s.mu.Lock()
		url, _ := s.m.target()
		s.mu.Unlock()
		c, err := dial(ctx, url, s.cfg.Compress, int(s.cfg.MaxFrameBytes), s.cfg.HandshakeTimeout)
		if err == nil {
			s.step(event{what: dialed, now: time.Now()})
			if s.unheard > 0 {
				s.log.Info("discord is reachable again", "attempts", s.unheard)
				s.unheard = 0
			}
			return c, action{}
		}
		if ctx.Err() != nil {
			return nil, action{}
		}
		if a := s.step(event{what: dialFailed}); a.verb != redial {
			if s.unheard++; s.unheard == 1 {
				s.log.Warn("discord is unreachable, trying on", "err", err)
			}
			return nil, a
		}
	}
}

// A link is a shard's work on one connection: the reader is the goroutine that
// calls serve; beside it are the writer and, until the session stands, the one
// that introduces it.
type link struct {
	*Shard
	conn *conn

	verdicts  chan action        // how others end the connection; the first counts
	packets   chan []byte        // IDENTIFY or RESUME for the writer
	asked     chan struct{}      // heartbeats out of turn; one waiting is as good as two
	intervals chan time.Duration // begins the heartbeats, once
}

// serve reads until the connection ends and returns how to go on.
func (l *link) serve(ctx context.Context) action {
	inner, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, l.conn.interrupt)()
	var wg sync.WaitGroup
	wg.Go(func() { l.writeAll(inner) }) // ends with inner, or when a write fails
	a := l.read(ctx, inner, &wg)
	cancel()
	l.conn.close(a.code)
	wg.Wait()
	return a
}

// settle ends the connection from another goroutine than the reader.
func (l *link) settle(a action) {
	select {
	case l.verdicts <- a:
	default:
	}
	l.conn.interrupt()
}

// read is the reader: it takes messages until something ends the connection.
func (l *link) read(ctx, inner context.Context, wg *sync.WaitGroup) action {
	var e envelope
	for {
		message, err := l.conn.next()
		now := time.Now()
		if err == errTooLarge {
			l.metrics.tooLarge.Inc()
			l.log.Error("a message is larger than the frame limit and is left out: raise gateway.max_frame_bytes",
				"limit_bytes", l.cfg.MaxFrameBytes, "after_seq", l.session().Sequence)
			continue
		}
		if err != nil {
			return l.lost(ctx, err)
		}
		l.metrics.bytes.Add(float64(len(message)))
		var a action
		if err := scanEnvelope(message, &e); err != nil {
			a = l.step(event{what: unreadable, now: now})
			l.complain(a, err, len(message))
		} else if e.op == opDispatch {
			if err := l.dispatch(ctx, &e, now); err != nil {
				return action{verb: end, code: closeResumable, err: err}
			}
		} else {
			a = l.control(&e, now)
		}
		switch a.verb {
		case greet:
			interval := heartbeatInterval(e.data)
			if interval <= 0 {
				l.log.Error("discord's hello has no heartbeat interval")
				a := l.step(event{what: closed, now: now})
				a.code = closeResumable
				return a
			}
			l.conn.patience.Store(int64(3 * interval)) // the writer judges sooner
			l.intervals <- interval
			wg.Go(func() { l.introduce(inner) }) // ends with inner, or when it is done
		case beat:
			select {
			case l.asked <- struct{}{}:
			default:
			}
		case leave, end:
			return a
		}
	}
}

// lost says how to go on when reading has failed with err.
func (l *link) lost(ctx context.Context, err error) action {
	if ctx.Err() != nil {
		return action{verb: end, code: closeResumable}
	}
	select {
	case a := <-l.verdicts:
		return a
	default:
	}
	code := closeCode(err)
	a := l.step(event{what: closed, code: code})
	if a.verb == carryOn { // the writer has left and is about to say so
		return <-l.verdicts
	}
	l.log.Debug("connection lost", "err", err)
	if code == 0 {
		a.code = closeResumable
	}
	return a
}

// control handles everything that is no dispatch.
func (l *link) control(e *envelope, now time.Time) action {
	switch e.op {
	case opHello:
		return l.step(event{what: hello, now: now})
	case opHeartbeat:
		return l.step(event{what: beatRequested, now: now})
	case opReconnect:
		return l.step(event{what: reconnectAsked, now: now})
	case opInvalidSession:
		return l.step(event{what: invalidated, now: now, resumable: rawjson.IsTrue(e.data)})
	case opAck:
		a := l.step(event{what: acked, now: now})
		l.metrics.ping.Set(l.Status().Latency.Seconds())
		return a
	}
	l.log.Debug("unknown op", "op", e.op)
	return action{}
}

// dispatch hands one dispatch over.
func (l *link) dispatch(ctx context.Context, e *envelope, now time.Time) error {
	done := event{what: dispatched, now: now, name: typeName(e.name), sequence: e.seq}
	d := Dispatch{Type: done.name, Sequence: e.seq, Received: now.UnixMilli()}
	if e.data != nil {
		d.Data = make([]byte, len(e.data))
		copy(d.Data, e.data)
	}
	if d.Type == "READY" {
		done.session = Session{ID: textOf(e.data, "session_id"), ResumeURL: textOf(e.data, "resume_gateway_url")}
		d.SessionID = done.session.ID
	} else {
		d.SessionID = l.session().ID
	}
	l.conn.busy.Store(true)
	err := l.handler.Dispatch(ctx, d)
	l.conn.life.Add(1) // what came meanwhile has yet to be read
	l.conn.busy.Store(false)
	if err != nil {
		return err
	}
	l.metrics.dispatches.Inc()
	if d.Type == "READY" || d.Type == "RESUMED" {
		// The wait for the handler is not Discord's silence.
		done.now = time.Now()
		l.metrics.connected.Set(1)
		if l.resuming.Swap(false) {
			l.metrics.resumes.WithLabelValues(resumed).Inc()
		}
		l.log.Info("shard connected", "by", d.Type, "seq", e.seq)
	}
	l.step(done)
	return nil
}

func (s *Shard) session() Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.session
}

// complain tells of a message that could not be scanned. Its text is not logged:
// it may be anything.
func (l *link) complain(a action, err error, size int) {
	after := l.session().Sequence
	if a.verb == stepOver {
		l.metrics.malformed.Inc()
		l.log.Error("a message can't be read and is left out", "after_seq", after, "bytes", size, "times", maxMalformed, "err", err)
		return
	}
	l.log.Warn("a message can't be read, asking for it again", "after_seq", after, "bytes", size, "err", err)
}

// introduce identifies or resumes, when it may.
func (l *link) introduce(ctx context.Context) {
	session := l.session()
	if session.ID == "" {
		if err := l.cfg.Pacer.Wait(ctx, l.cfg.Shard%l.cfg.MaxConcurrency); err != nil {
			l.quit(ctx, err)
			return
		}
	}
	if err := l.handler.Check(ctx); err != nil {
		l.quit(ctx, err)
		return
	}
	packet, how := l.identify, "identify"
	if session.ID != "" {
		how = "resume"
		var err error
		if packet, err = resumePacket(l.cfg.Token, session); err != nil {
			l.quit(ctx, fmt.Errorf("gateway: %w", err))
			return
		}
	}
	l.resuming.Store(session.ID != "")
	select {
	case l.packets <- packet:
		l.metrics.connects.WithLabelValues(how).Inc()
	case <-ctx.Done():
		l.resuming.Store(false)
	}
}

// quit ends Run with err, unless err is only the connection's end.
func (l *link) quit(ctx context.Context, err error) {
	if ctx.Err() == nil {
		l.settle(action{verb: end, code: closeResumable, err: err})
	}
}

// heartbeatInterval reads hello's d.
func heartbeatInterval(d []byte) time.Duration {
	ms, ok := rawjson.Int(rawjson.Get(d, "heartbeat_interval"))
	if !ok || ms > int64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
