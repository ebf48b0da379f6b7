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

	"github.com/google/go-cmp/cmp"

	"github.com/sluicehq/sluice/listener"
)

func nothingMuch(context.Context, []*listener.Delivery) error { return nil }

func TestBatchOptions(t *testing.T) {
	t.Parallel()
	tests := []struct{ give, want listener.BatchOptions }{
		{listener.BatchOptions{}, listener.BatchOptions{MaxSize: 100, MaxWait: time.Second}},
		{listener.BatchOptions{MaxSize: 1}, listener.BatchOptions{MaxSize: 1, MaxWait: time.Second}},
		{listener.BatchOptions{MaxSize: 10_000, MaxWait: time.Minute}, listener.BatchOptions{MaxSize: 10_000, MaxWait: time.Minute}},
	}
	for _, test := range tests {
		r := listener.New()
		r.Add(
			listener.HandleBatch("batch", "orders.*", test.give, nothingMuch).With(listener.Options{MaxAttempts: 2}),
			listener.Handle("single", ">", nothing),
		)
		b := r.All()[0]
		if got, ok := b.Batch(); !ok || got != test.want {
			t.Errorf("%+v: Batch() = %+v, %v, want %+v", test.give, got, ok, test.want)
		}
		if diff := cmp.Diff(listener.Options{MaxAttempts: 2, Unordered: true}, b.Options()); diff != "" {
			t.Errorf("options (-want +got):\n%s", diff)
		}
		if !b.Matches("orders.created") || b.Matches("READY") {
			t.Error("it listens to something else")
		}
		single := r.All()[1]
		if o, ok := single.Batch(); ok {
			t.Errorf("a listener of single events: Batch() = %+v", o)
		}
		if got := panics(func() { single.RunBatch(t.Context(), nil, func(error) {}) }); !strings.Contains(got, "single does not take batches") {
			t.Errorf("RunBatch of it panics with %q", got)
		}
	}
}

func TestRunBatch(t *testing.T) {
	t.Parallel()
	gone := listener.Discard(errors.New("gone"))
	tests := []struct {
		name   string
		fails  error
		events [3]error // what becomes of each
	}{
		{"success", nil, [3]error{}},
		{"an error", io.EOF, [3]error{io.EOF, io.EOF, io.EOF}},
		{"an error each", listener.BatchError{0: io.EOF, 2: gone}, [3]error{io.EOF, nil, gone}},
		{"an error for none", listener.BatchError{}, [3]error{}},
		{"nil errors", listener.BatchError{0: nil, 7: nil}, [3]error{}},
		{"a nil error among others", listener.BatchError{0: nil, 1: io.EOF}, [3]error{nil, io.EOF, nil}},
	}
	for _, test := range tests {
		r := listener.New()
		var got []*listener.Delivery
		r.Use(func(listener.Func) listener.Func {
			return func(context.Context, *listener.Delivery) error { return errors.New("middleware was called") }
		})
		r.Add(listener.HandleBatch("a", ">", listener.BatchOptions{}, func(_ context.Context, ds []*listener.Delivery) error {
			got = append(got, ds...)
			clear(ds)
			return test.fails
		}))
		b := r.All()[0]
		ds := []*listener.Delivery{{ID: "1"}, {ID: "2"}, {ID: "3"}}
		want := append([]*listener.Delivery(nil), ds...)
		var ended []error
		b.RunBatch(t.Context(), ds, func(err error) { ended = append(ended, err) })
		if len(ended) != 1 {
			t.Fatalf("%s: ended %d times", test.name, len(ended))
		}
		for i, want := range test.events {
			if got := listener.EventError(ended[0], i); got != want {
				t.Errorf("%s: event %d ended with %v, want %v", test.name, i, got, want)
			}
		}
		if (ended[0] == nil) != (test.events == [3]error{}) {
			t.Errorf("%s: the batch ended with %v", test.name, ended[0])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the batch (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestRunMakesABatchOfOne(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{nil, io.EOF, listener.BatchError{0: io.EOF}} {
		r := listener.New()
		r.Add(listener.HandleBatch("a", ">", listener.BatchOptions{}, func(_ context.Context, ds []*listener.Delivery) error {
			if len(ds) != 1 || ds[0].ID != "1" {
				t.Errorf("called with %v", ds)
			}
			return fails
		}))
		want := fails
		if fails != nil {
			want = io.EOF
		}
		if err := runBound(t, r.All()[0], listener.Delivery{ID: "1"}, nil); err != want {
			t.Errorf("%v: ended with %v, want %v", fails, err, want)
		}
	}
}

func TestBatchErrorThatCanNotBeFailsAll(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{
		listener.BatchError{3: io.EOF},
		listener.BatchError{-1: io.EOF},
		fmt.Errorf("wrapped: %w", listener.BatchError{0: io.EOF}),
		errors.Join(listener.BatchError{0: io.EOF}, io.ErrNoProgress),
	} {
		r := listener.New()
		r.Add(listener.HandleBatch("a", ">", listener.BatchOptions{}, func(context.Context, []*listener.Delivery) error { return fails }))
		var err error
		r.All()[0].RunBatch(t.Context(), make([]*listener.Delivery, 3), func(e error) { err = e })
		for i := range 3 {
			if listener.EventError(err, i) == nil {
				t.Errorf("%v: event %d has succeeded", fails, i)
			}
		}
	}
	text := listener.BatchError{2: io.EOF, 0: errors.New("full"), 1: nil}.Error()
	if want := "event 0: full\nevent 2: EOF"; text != want {
		t.Errorf("Error() = %q, want %q", text, want)
	}
}

func TestBatchThatPanicsOrEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	r := listener.New()
	r.Add(
		listener.HandleBatch("panics", ">", listener.BatchOptions{}, func(context.Context, []*listener.Delivery) error { panic("boom") }),
		listener.HandleBatch("exits", ">", listener.BatchOptions{}, func(context.Context, []*listener.Delivery) error { runtime.Goexit(); return nil }),
	)
	var err error
	r.All()[0].RunBatch(t.Context(), []*listener.Delivery{{}}, func(e error) { err = e })
	if _, ok := errors.AsType[*listener.PanicError](listener.EventError(err, 0)); !ok {
		t.Errorf("ended with %v, want a PanicError", err)
	}
	ended := make(chan error, 2)
	go r.All()[1].RunBatch(t.Context(), []*listener.Delivery{{}}, func(err error) { ended <- err }) // ends by Goexit
	if err := <-ended; !errors.Is(err, listener.ErrGoexit) {
		t.Errorf("ended with %v, want ErrGoexit", err)
	}
}
