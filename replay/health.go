package replay

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// remindAfter is how often a condition that lasts is logged again.
const remindAfter = time.Minute

// health holds what is wrong at the moment. Each condition is logged when it
// begins, once a minute while it lasts, and when it ends. Safe for concurrent use.
type health struct {
	log *slog.Logger

	mu sync.Mutex
	// Guarded by mu.
	wrong map[string]*condition
}

type condition struct {
	err          error
	since, again time.Time
	times        int
}

// fail notes that what is done under a name failed.
func (h *health) fail(name string, err error) {
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
