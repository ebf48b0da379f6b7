package listener

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// Discard returns an error that ends the listener's work on the event: no run
// follows, and the event becomes a dead letter once all its listeners have ended.
// It wraps err. Discard(nil) is nil.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return &discarded{err}
}

type discarded struct{ err error }

func (e *discarded) Error() string { return e.err.Error() }
func (e *discarded) Unwrap() error { return e.err }

// RetryAfter returns an error that asks for the next run after d, in place of the
// worker's backoff; the worker cuts it to replay.backoff_max. The run counts as
// failed. It wraps err, which may be nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("asked for another run after %v", d)
	}
	return &retryAfter{d: d, err: err}
}

type retryAfter struct {
	d   time.Duration
	err error
}

func (e *retryAfter) Error() string { return e.err.Error() }
func (e *retryAfter) Unwrap() error { return e.err }

// ErrGoexit is what a listener fails with that ends its goroutine.
var ErrGoexit = errors.New("listener: the listener ended its goroutine (runtime.Goexit)")

// A PanicError is what a listener fails with that panics. It unwraps to the value
// it panicked with if that is an error.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked, at most MaxStackBytes
	text  string
}

// MaxStackBytes bounds the stack of a PanicError.
const MaxStackBytes = 16 << 10

// newPanicError must be called by the function that recovers. The value's text is
// made here, because its methods may panic themselves: fmt contains that.
func newPanicError(value any) *PanicError {
	stack := debug.Stack()
	if len(stack) > MaxStackBytes {
		stack = stack[:MaxStackBytes:MaxStackBytes]
	}
	return &PanicError{Value: value, Stack: stack, text: fmt.Sprint(value)}
}

// Error returns what the listener panicked with, without the stack.
func (e *PanicError) Error() string { return "listener: panic: " + e.text }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A DecodeError says that a payload does not have the shape of its kind's Go
// type. No further run can help.
type DecodeError struct {
	Type  string // of the event
	Field string // path of the member at fault, members[3].joined_at; empty: the payload itself
	Err   error
}

func (e *DecodeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("listener: decode %s: %v", e.Type, e.Err)
	}
	return fmt.Sprintf("listener: decode %s: field %s: %v", e.Type, e.Field, e.Err)
}

// Unwrap returns what encoding/json or a type's own decoder said.
func (e *DecodeError) Unwrap() error { return e.Err }
