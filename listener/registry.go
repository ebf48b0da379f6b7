package listener

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bwmarrin/discordgo"

	"github.com/sluicehq/sluice/internal/dispatch"
)

// A Registry is a set of listeners. It is filled first and run then: once a
// worker has asked it for its listeners, nothing can be added. Safe for
// concurrent use.
type Registry struct {
	mu sync.Mutex
	// Guarded by mu.
	listeners []Listener
	use       []Middleware
	session   *discordgo.Session // for handlers of AddHandler

	bound atomic.Pointer[[]*Bound] // nil: not yet in use

	matching sync.RWMutex
	matches  map[string][]*Bound // by event type; guarded by matching
}

// New returns an empty registry.
func New() *Registry { return &Registry{} }

// Add adds listeners. Like http.ServeMux it panics, and says why, on what only a
// mistake in the program can be: a nil function, a name that another listener
// has, a bad name or pattern, a registry already in use. None is added then.
func (r *Registry) Add(ls ...Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add("Add", ls...)
}

// add is Add by whatever name it was called, with r.mu held.
func (r *Registry) add(caller string, ls ...Listener) {
	if r.bound.Load() != nil {
		panic("listener: " + caller + ": the registry is in use; add all listeners before the worker runs")
	}
	all := slices.Clip(r.listeners)
	for _, l := range ls {
		if err := l.check(); err != nil {
			panic(fmt.Sprintf("listener: %s: %v", caller, err))
		}
		if i := slices.IndexFunc(all, func(have Listener) bool { return have.name == l.name }); i >= 0 {
			panic(fmt.Sprintf("listener: %s: the name %q is twice, for %s and for %s; their successes could not be told apart", caller, l.name, all[i].pattern, l.pattern))
		}
		all = append(all, l)
	}
	r.listeners = all
}

// Use wraps all listeners of the registry, whether added before or after, except
// for those that take batches. The first middleware is the outermost, and all of
// them are outside a listener's own. It panics if one is nil or if the registry
// is in use.
func (r *Registry) Use(mw ...Middleware) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bound.Load() != nil {
		panic("listener: Use: the registry is in use; call it before the worker runs")
	}
	if slices.ContainsFunc(mw, func(mw Middleware) bool { return mw == nil }) {
		panic("listener: Use: nil Middleware")
	}
	r.use = slices.Concat(r.use, mw)
}

// bind makes the registry ready to run, once.
func (r *Registry) bind() []*Bound {
	if all := r.bound.Load(); all != nil {
		return *all
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.bound.Load(); all != nil {
		return *all
	}
	all := make([]*Bound, 0, len(r.listeners))
	for i := range r.listeners {
		all = append(all, newBound(&r.listeners[i], r.use, r.session))
	}
	r.bound.Store(&all)
	return all
}

// maxMatches bounds the event types whose listeners are remembered. Discord has
// far fewer; names of custom events are anybody's, and so is their length.
const maxMatches = 4096

func (r *Registry) match(eventType string) []*Bound {
	r.matching.RLock()
	found, known := r.matches[eventType]
	r.matching.RUnlock()
	if known {
		return found
	}
	for _, b := range r.bind() {
		if b.Matches(eventType) {
			found = append(found, b)
		}
	}
	if len(eventType) > dispatch.MaxSubjectBytes {
		return found
	}
	r.matching.Lock()
	defer r.matching.Unlock()
	if r.matches == nil {
		r.matches = make(map[string][]*Bound)
	}
	if len(r.matches) < maxMatches {
		r.matches[strings.Clone(eventType)] = found // it may be a part of a large reply
	}
	return found
}
