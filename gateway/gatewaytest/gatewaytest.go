// Package gatewaytest is Discord's gateway, in the process: a real HTTP and
// WebSocket server that shards identify to, with sessions that survive a lost
// connection, replay on RESUME, and end as Discord's do. It does not need the
// testing package, so it serves simulators as well as tests:
//
//	discord := gatewaytest.New(gatewaytest.Config{})
//	if err := discord.Start(); err != nil { … }
//	defer discord.Close()
//	info, err := gateway.Bot(ctx, nil, discord.URL(), "token")
//	// run a shard with info.URL, then:
//	err = discord.WaitConnected(ctx, 0)
//	_, err = discord.Send(0, "MESSAGE_CREATE", []byte(`{"id":"1"}`))
//
// What a client does wrong it is told as by Discord, with a close code: an
// unknown opcode, a message over 4096 bytes, more than 120 messages a minute, a
// wrong token, a shard that can't be, a second IDENTIFY.
//
// Everything that is ordered to be sent to a shard (dispatches, op 1, 7, 9, close
// codes) arrives in the order of the calls. A Server is safe for concurrent use.
package gatewaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Defaults of Config.
const (
	DefaultHeartbeatInterval = 41250 * time.Millisecond
	DefaultSessionTimeout    = 3 * time.Minute
	DefaultBufferDispatches  = 4 << 20
	DefaultBufferBytes       = 1 << 30
	DefaultKeepSessions      = 1024
	DefaultKeepRecords       = 1 << 17
)

// A Config describes a Server. The zero value is a gateway for one shard on a
// free port of 127.0.0.1 that takes any token.
type Config struct {
	Addr           string // to listen on; empty: 127.0.0.1, a free port
	Shards         int    // that GET /gateway/bot recommends; 0: 1
	MaxConcurrency int    // that it reports; 0: 1
	Token          string // the one that is accepted, without "Bot "; empty: any

	HeartbeatInterval time.Duration // in hello; 0: 41.25 s
	// IdentifyInterval is the least time between two IDENTIFYs of a bucket; an
	// earlier one gets op 9. 0: not enforced. Discord's is 5 s.
	IdentifyInterval time.Duration
	// SessionTimeout is how long a session lives without a connection; 0: 3 min.
	SessionTimeout time.Duration
	// ResumeURL is the resume_gateway_url in READY; empty: the server's own.
	ResumeURL string
	// SplitBytes cuts compressed messages into WebSocket messages of at most
	// that many bytes, as Discord may; 0: never.
	SplitBytes int

	// BufferDispatches and BufferBytes bound what one session keeps for replay
	// and for Sent; the oldest go first, and a RESUME from before them is
	// refused. 0: 4 Mi dispatches and 1 GiB.
	BufferDispatches, BufferBytes int
	// KeepSessions is how many sessions are known at once, the ended ones with
	// them; 0: 1024. The oldest ended ones are forgotten first.
	KeepSessions int
	// KeepRecords bounds each of Received, Identifies, Resumes and Closes, the
	// oldest going first; 0: 128 Ki.
	KeepRecords int

	// Ready makes the d of a shard's READY; session_id, resume_gateway_url and
	// shard are set in it by the server. A nil result withholds READY until
	// SetReady gives another. It must not call the server. nil: a plain READY
	// without guilds.
	Ready func(shard, shards int) json.RawMessage
	// Log, if not nil, gets every dispatch once, when it is sent first, as a line
	// {"shard","session","s","t","d"}, in one Write. Close returns its error.
	Log io.Writer
}

func (c Config) filled() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	if c.Addr == "" {
		c.Addr = "127.0.0.1:0"
	}
	set(&c.Shards, 1)
	set(&c.MaxConcurrency, 1)
	set(&c.BufferDispatches, DefaultBufferDispatches)
	set(&c.BufferBytes, DefaultBufferBytes)
	set(&c.KeepSessions, DefaultKeepSessions)
	set(&c.KeepRecords, DefaultKeepRecords)
	if c.HeartbeatInterval == 0 {
		c.HeartbeatInterval = DefaultHeartbeatInterval
	}
	if c.SessionTimeout == 0 {
		c.SessionTimeout = DefaultSessionTimeout
	}
	return c
}

// A Server is one Discord.
type Server struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
	done     sync.WaitGroup // the server's and its connections' goroutines

	// recording is held from a dispatch's place in its session to its line in
	// the log, which keeps the lines in order; it guards logErr. Taken before mu.
	recording sync.Mutex
	logErr    error

	mu         sync.Mutex // guards everything below, sessions and connections too
	closed     bool
	conns      map[*connection]struct{}
	sessions   []*session // as they began
	current    map[place]*session
	shards     int // of the last IDENTIFY or RESUME; 0: none yet
	ready      func(shard, shards int) json.RawMessage
	noAcks     bool
	identified map[int]time.Time // by bucket: the last IDENTIFY
	total      int               // IDENTIFYs taken
	sent       int               // dispatches put into sessions

	received   []Received
	identifies []Identify
	resumes    []Resume
	closes     []Close

	change chan struct{} // closed at the next change; nil: nobody waits
}

// A place is one shard of so many.
type place struct{ shard, shards int }

// New returns a server that Start starts.
func New(cfg Config) *Server {
	cfg = cfg.filled()
	return &Server{
		cfg:        cfg,
		ready:      cfg.Ready,
		conns:      make(map[*connection]struct{}),
		current:    make(map[place]*session),
		identified: make(map[int]time.Time),
	}
}

// Start listens and serves until Close.
func (s *Server) Start() error {
	listener, err := net.Listen("tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("gatewaytest: %w", err)
	}
	s.listener = listener
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	s.done.Go(func() { s.http.Serve(listener) }) // ends with Close
	return nil
}

// URL returns the API's base address, as discord.api_url wants it:
// <URL>/gateway/bot has the address of the gateway. Call it after Start.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + apiPath }

// Close stops serving, drops all connections and waits for what ran. The error
// is the log's.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.drop()
	s.notify()
	s.mu.Unlock()
	var err error
	if s.http != nil {
		err = s.http.Close()
		s.done.Wait()
	}
	s.recording.Lock()
	defer s.recording.Unlock()
	return errors.Join(err, s.logErr)
}

// notify wakes everybody who waits. s.mu is held.
func (s *Server) notify() {
	if s.change != nil {
		close(s.change)
		s.change = nil
	}
}

// changed returns what is closed at the next change. s.mu is held.
func (s *Server) changed() <-chan struct{} {
	if s.change == nil {
		s.change = make(chan struct{})
	}
	return s.change
}

// Wait returns nil when cond holds. cond is called again after each change of
// what the server has sent, received or seen; it may call the server. The error
// is ctx's, or says that the server was closed.
func (s *Server) Wait(ctx context.Context, cond func() bool) error {
	for {
		s.mu.Lock()
		change, closed := s.changed(), s.closed
		s.mu.Unlock()
		if cond() {
			return nil
		}
		if closed {
			return errClosed
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("gatewaytest: waiting: %w", context.Cause(ctx))
		}
	}
}

var errClosed = errors.New("gatewaytest: the server is closed")
