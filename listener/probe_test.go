package listener_test

import (
	"context"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/listener"
)

// A probe makes listeners of one kind that show what they are called with.
type probe struct {
	name   string
	listen func(name string, saw func(seen)) listener.Listener
}

type seen struct {
	listener.Delivery
	payload, previous any
	merged            func() (any, error)
}

func probeOf[T, P any](k listener.Kind[T, P]) probe {
	return probe{string(k), func(name string, saw func(seen)) listener.Listener {
		return k.Handle(name, func(_ context.Context, e *listener.Event[T, P]) error {
			saw(seen{e.Delivery, e.New, e.Old, func() (any, error) { return e.Merged() }})
			return nil
		})
	}}
}

// probeFor returns the probe of a type; nil if there is none.
func probeFor(eventType string) *probe {
	for i := range probes {
		if probes[i].name == eventType {
			return &probes[i]
		}
	}
	return nil
}

// run runs a listener for d and returns how it ended.
func run(tb testing.TB, l listener.Listener, d listener.Delivery, shared *listener.Decoded) error {
	tb.Helper()
	r := listener.New()
	r.Add(l)
	all := r.Match(d.Type)
	if len(all) != 1 {
		tb.Fatalf("Match(%q) = %d listeners, want 1", d.Type, len(all))
	}
	return runBound(tb, all[0], d, shared)
}

func runBound(tb testing.TB, b *listener.Bound, d listener.Delivery, shared *listener.Decoded) error {
	tb.Helper()
	var ended []error
	b.Run(tb.Context(), &d, shared, func(err error) { ended = append(ended, err) })
	if len(ended) != 1 {
		tb.Fatalf("Run called ended %d times, want once", len(ended))
	}
	return ended[0]
}

// see decodes payload and previous as eventType and returns what a typed listener
// is called with.
func see(tb testing.TB, d listener.Delivery) (seen, error) {
	tb.Helper()
	p := probeFor(d.Type)
	if p == nil {
		tb.Fatalf("no kind %q", d.Type)
	}
	var got seen
	err := run(tb, p.listen("probe", func(s seen) { got = s }), d, nil)
	return got, err
}

// payload returns the payload of the recorded dispatch of a type.
func payload(eventType string) []byte {
	p, ok := payloads()[eventType]
	if !ok {
		panic("no dispatch of type " + eventType)
	}
	return p
}

var payloads = sync.OnceValue(func() map[string][]byte {
	m := make(map[string][]byte)
	for _, e := range corpus.Dispatches() {
		m[e.Type] = e.Payload
	}
	return m
})
