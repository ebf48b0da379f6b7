package listener_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/listener"
)

// awkward panics when it is asked what it is.
type awkward struct{}

func (awkward) Error() string { panic("no words") }

func TestPanicsBecomeErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	tests := []struct {
		name string
		fn   func()
		text string
		is   error
	}{
		{"a string", func() { panic("boom") }, "boom", nil},
		{"an error", func() { panic(fmt.Errorf("wrapped: %w", cause)) }, "wrapped: cause", cause},
		{"nil", func() { panic(nil) }, "nil", nil},
		{"a nil map", func() { store(nil) }, "nil map", nil},
		{"a nil pointer", func() { var d *listener.Delivery; _ = d.ID }, "nil pointer", nil},
		{"an error that panics", func() { panic(awkward{}) }, "PANIC=", nil},
		{"an endless stack", deep(500), "deep", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := listener.Handle("a", ">", func(context.Context, *listener.Delivery) error { test.fn(); return nil })
			err := run(t, l, listener.Delivery{Type: "READY"}, nil)
			p, ok := errors.AsType[*listener.PanicError](err)
			if !ok {
				t.Fatalf("error %v, want a PanicError", err)
			}
			if !strings.Contains(p.Error(), test.text) || strings.Contains(p.Error(), "\n") {
				t.Errorf("text %q, want one line with %q", p.Error(), test.text)
			}
			if !strings.Contains(string(p.Stack), "runtime_test.go") || len(p.Stack) > listener.MaxStackBytes {
				t.Errorf("stack of %d bytes does not name the listener's file:\n%s", len(p.Stack), p.Stack)
			}
			if test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("errors.Is(%v, %v) = false", err, test.is)
			}
			if listener.Discarded(err) {
				t.Error("Discarded = true: it would not be tried again")
			}
		})
	}
}

func store(m map[string]int) { m["a"] = 1 }

func deep(n int) func() {
	return func() {
		if n == 0 {
			panic("deep")
		}
		deep(n - 1)()
	}
}

func TestGoexitIsReported(t *testing.T) {
	t.Parallel()
	r := listener.New()
	r.Add(listener.Handle("a", ">", func(context.Context, *listener.Delivery) error { runtime.Goexit(); return nil }))
	ended := make(chan error, 2)
	left := make(chan bool, 1)
	go func() { // ends by Goexit
		returned := false
		defer func() { left <- returned }()
		r.All()[0].Run(t.Context(), &listener.Delivery{}, nil, func(err error) { ended <- err })
		returned = true
	}()
	if <-left {
		t.Error("Run returned")
	}
	if err := <-ended; !errors.Is(err, listener.ErrGoexit) || len(ended) != 0 {
		t.Errorf("ended with %v and %d more", err, len(ended))
	}
}

func TestRunHandsOn(t *testing.T) {
	t.Parallel()
	fails := errors.New("no")
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "value")
	r := listener.New()
	r.Add(listener.Handle("a", ">", func(ctx context.Context, d *listener.Delivery) error {
		if ctx.Value(key{}) != "value" || d.Attempt != 2 || d.Listener != "a" {
			t.Errorf("called with %v, %+v", ctx.Value(key{}), d)
		}
		return fails
	}))
	for _, shared := range []*listener.Decoded{nil, {}} {
		var got error
		r.All()[0].Run(ctx, &listener.Delivery{Listener: "a", Attempt: 2}, shared, func(err error) { got = err })
		if got != fails {
			t.Errorf("ended with %v, want %v", got, fails)
		}
	}
}

func TestDiscardAndRetryAfter(t *testing.T) {
	t.Parallel()
	if listener.Discard(nil) != nil {
		t.Error("Discard(nil) is an error")
	}
	tests := []struct {
		name      string
		err       error
		discarded bool
		delay     time.Duration
		ok        bool
		is        error
	}{
		{"nil", nil, false, 0, false, nil},
		{"plain", io.EOF, false, 0, false, io.EOF},
		{"discarded", listener.Discard(io.EOF), true, 0, false, io.EOF},
		{"wrapped discarded", fmt.Errorf("a: %w", listener.Discard(io.EOF)), true, 0, false, io.EOF},
		{"joined", errors.Join(io.ErrNoProgress, listener.Discard(io.EOF)), true, 0, false, io.ErrNoProgress},
		{"retry", listener.RetryAfter(time.Second, io.EOF), false, time.Second, true, io.EOF},
		{"wrapped retry", fmt.Errorf("a: %w", listener.RetryAfter(time.Second, io.EOF)), false, time.Second, true, io.EOF},
		{"retry without an error", listener.RetryAfter(time.Second, nil), false, time.Second, true, nil},
		{"negative", listener.RetryAfter(-time.Second, io.EOF), false, 0, true, io.EOF},
		{"decode", &listener.DecodeError{Type: "READY", Err: io.EOF}, true, 0, false, io.EOF},
	}
	for _, test := range tests {
		if got := listener.Discarded(test.err); got != test.discarded {
			t.Errorf("%s: Discarded = %v, want %v", test.name, got, test.discarded)
		}
		if d, ok := listener.RetryDelay(test.err); d != test.delay || ok != test.ok {
			t.Errorf("%s: RetryDelay = %v, %v, want %v, %v", test.name, d, ok, test.delay, test.ok)
		}
		if test.is != nil && !errors.Is(test.err, test.is) {
			t.Errorf("%s: errors.Is(%v, %v) = false", test.name, test.err, test.is)
		}
	}
	if text := listener.RetryAfter(time.Second, nil).Error(); !strings.Contains(text, "1s") {
		t.Errorf("RetryAfter(1s, nil) = %q", text)
	}
	if got, want := listener.Discard(io.EOF).Error(), "EOF"; got != want {
		t.Errorf("Discard(EOF) = %q, want %q", got, want)
	}
}
