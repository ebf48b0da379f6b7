package replay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// remindAfter is how often a condition that lasts is logged again.
const remindAfter = time.Minute

// health holds what is wrong at the moment. Each condition is logged when it
// begins, once a minute while it lasts, and when it ends. Safe for concurrent use.
type health struct {
	log    *slog.Logger
	errors prometheus.Counter

	mu sync.Mutex
	// Guarded by mu.
	wrong map[string]*condition
}

type condition struct {
	err          error
	since, again time.Time
	times        int
}

// linesAMinute bounds what is logged of single entries.
const linesAMinute = 60

// A sparing logger writes so many lines a minute and counts the others. Safe for
// concurrent use.
type sparing struct {
	mu sync.Mutex
	// Guarded by mu.
	since   time.Time
	lines   int
	omitted int
}

// log writes a line, unless there were enough; the next minute's first line tells
// how many.
func (s *sparing) log(log *slog.Logger, level slog.Level, text string, attrs ...slog.Attr) {
	s.mu.Lock()
	now := time.Now()
	omitted := 0
	if now.Sub(s.since) >= time.Minute {
		omitted = s.omitted
		s.since, s.lines, s.omitted = now, 0, 0
	}
	s.lines++
	over := s.lines > linesAMinute
	if over {
		s.omitted++
	}
	s.mu.Unlock()
	if over {
		return
	}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("lines_omitted", omitted))
	}
	log.LogAttrs(context.Background(), level, text, attrs...)
}

// fail notes that what is done under a name failed.
func (h *health) fail(name string, err error) {
	h.errors.Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	c := h.wrong[name]
	if c == nil {
		if h.wrong == nil {
			h.wrong = make(map[string]*condition)
		}
		c = &condition{since: now, again: now}
		h.wrong[name] = c
	}
	c.err = err
	c.times++
	if now.Before(c.again) {
		return
	}
	c.again = now.Add(remindAfter)
	h.log.Warn("worker is impaired", "at", name, "err", err, "since", c.since, "times", c.times)
}

// ok notes that what is done under a name works.
func (h *health) ok(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.wrong[name]
	if c == nil {
		return
	}
	delete(h.wrong, name)
	h.log.Info("worker has recovered", "at", name, "after", time.Since(c.since).Round(time.Millisecond), "times", c.times)
}

// err returns what is wrong, nil if nothing is.
func (h *health) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.wrong))
	for name := range h.wrong {
		names = append(names, name)
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		errs = append(errs, fmt.Errorf("%s: %w", name, h.wrong[name].err))
	}
	return errors.Join(errs...)
}
