// Package embedded is a Redis inside the process, for trying Sluice out where
// there is none: nothing survives the process, and it is slower than a real one.
package embedded

import (
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tick is how often the server's clock is moved on: keys do not expire by
// themselves in it.
const tick = 20 * time.Millisecond

// A Server listens on one address. Create it with Start.
type Server struct {
	redis *miniredis.Miniredis
	stop  chan struct{}
	clock sync.WaitGroup
}

// Start starts a server on addr (host:port; port 0 picks one).
func Start(addr string) (*Server, error) {
	s := &Server{redis: miniredis.NewMiniRedis(), stop: make(chan struct{})}
	if err := s.redis.StartAddr(addr); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	s.clock.Go(s.run)
	return s, nil
}

// run moves the clock on until Close.
func (s *Server) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case now := <-ticker.C:
			s.redis.FastForward(now.Sub(last))
			last = now
		case <-s.stop:
			return
		}
	}
}

// Addr returns the address the server listens on.
func (s *Server) Addr() string { return s.redis.Addr() }

// Close ends the server and forgets everything.
func (s *Server) Close() {
	close(s.stop)
	s.clock.Wait()
	s.redis.Close()
}
