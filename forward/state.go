package forward

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// state is what the goroutines of a tenure share.
type state struct {
	logger  *slog.Logger
	metrics *metrics
	queue   *queue
	intents int

	sequence atomic.Int64 // the last committed one of the recorded session
	saved    atomic.Int64 // unix ms of its last commit; 0: none
	fresh    atomic.Bool  // a session has begun whose READY is not committed

	mu         sync.Mutex    // guards what follows
	number     uint64        // the last confirmed batch
	changed    chan struct{} // closed and replaced when number rises
	stalledAt  time.Time     // zero: commits flow
	stalledFor error
	attempts   int
}

func newState(logger *slog.Logger, m *metrics, q *queue, intents int, r record) *state {
	s := &state{logger: logger, metrics: m, queue: q, intents: intents, changed: make(chan struct{})}
	s.sequence.Store(r.sequence)
	if !r.saved.IsZero() {
		s.saved.Store(r.saved.UnixMilli())
	}
	return s
}

// confirmed notes that a batch is committed.
func (s *state) confirmed(b *batch, took time.Duration) {
	s.queue.release(b.cost)
	if seq := sequenceOf(b.items); seq != 0 {
		s.saved.Store(time.Now().UnixMilli())
		s.sequence.Store(seq)
	}
	if b.session != nil {
		s.fresh.Store(false)
	}
	s.metrics.commits.Inc()
	s.metrics.commitSeconds.Observe(took.Seconds())
	s.metrics.batchItems.Observe(float64(len(b.items)))
	if oldest := b.items[0].entry.Received; oldest > 0 {
		s.metrics.publishSeconds.Observe(float64(max(0, time.Now().UnixMilli()-oldest)) / 1000)
	}
	s.mu.Lock()
	s.number = b.number
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// last returns the last confirmed batch.
func (s *state) last() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number
}

// await returns when batch n is confirmed.
func (s *state) await(ctx context.Context, n uint64) error {
	for {
		s.mu.Lock()
		number, changed := s.number, s.changed
		s.mu.Unlock()
		if number >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stall notes that commits do not get through, and why. The first one in a row
// is logged.
func (s *state) stall(err error) {
	s.mu.Lock()
	first := s.stalledAt.IsZero()
	if first {
		s.stalledAt = time.Now()
	}
	s.stalledFor = err
	s.attempts++
	s.mu.Unlock()
	if first {
		s.metrics.stalled.Set(1)
		s.logger.Error("commits are stalled; dispatches wait in the buffer", "err", err)
	}
}

// flows notes that a commit got through.
func (s *state) flows() {
	s.mu.Lock()
	since, attempts := s.stalledAt, s.attempts
	s.stalledAt, s.stalledFor, s.attempts = time.Time{}, nil, 0
	s.mu.Unlock()
	if !since.IsZero() {
		s.metrics.stalled.Set(0)
		s.logger.Info("commits flow again", "after", time.Since(since).Round(time.Millisecond), "attempts", attempts)
	}
}

// stalled returns why commits do not get through, nil if they do.
func (s *state) stalled() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalledFor
}

// retry calls f, which asks Redis something, until it succeeds or ctx ends.
func (s *state) retry(ctx context.Context, f func() error) error {
	var wait backoff
	for {
		err := f()
		if err == nil {
			if wait.next != 0 {
				s.flows()
			}
			return nil
		}
		s.stall(err)
		if err := wait.wait(ctx); err != nil {
			return err
		}
	}
}
