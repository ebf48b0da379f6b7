package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/internal/resp"
)

// Codecs of payload and state.
const (
	JSON    = "json"
	Msgpack = "msgpack"
)

// Events that the gateway itself writes.
const (
	EventSessionLost   = "sluice.session.lost"
	EventSequenceGap   = "sluice.sequence.gap"
	EventDispatchShed  = "sluice.dispatch.shed"
	EventSpecialPrefix = "sluice."
)

// Fields are the fields of an entry in the order they are written. Redis stores
// the names of consecutive entries once if they are the same.
var Fields = [...]string{
	"event", "payload", "state", "shard", "sequence", "session", "received", "codec", "flags", "trace", "target",
}

// Flags of an entry.
type Flags uint8

// The flags, in the order they are written.
const (
	Sync      Flags = 1 << iota // GUILD_CREATE that a READY announced or that ends an outage
	Synthetic                   // made by the gateway
	Slim                        // bulky arrays left out
	Partial                     // state known only in part
)

var flagNames = [...]string{"sync", "synthetic", "slim", "partial"}

// String returns the flags as the wire has them: names separated by commas.
func (f Flags) String() string {
	switch f { // the common ones without allocating
	case 0:
		return ""
	case Sync:
		return "sync"
	}
	var b strings.Builder
	for i, name := range flagNames {
		if f&(1<<i) != 0 {
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			b.WriteString(name)
		}
	}
	return b.String()
}

// ParseFlags reads the wire's form. Names it does not know are passed over: a
// newer gateway may write more.
func ParseFlags(text string) Flags {
	var f Flags
	for name := range strings.SplitSeq(text, ",") {
		for i, known := range flagNames {
			if name == known {
				f |= 1 << i
			}
		}
	}
	return f
}

// An Entry is one entry of a lane.
type Entry struct {
	Event    string
	Payload  []byte // in Codec
	State    []byte // in Codec; empty: not known
	Shard    int
	Sequence int64
	Session  string // see ShortSession
	Received int64  // unix ms
	Codec    string
	Flags    Flags
	Trace    string // W3C traceparent, or empty
	Target   string // group and listeners of a redriven entry, or empty
}

// AppendArgs appends the entry's fields and values as arguments of XADD. They
// point into the entry, which must stay as it is until they are written: boxing
// each value would cost an allocation.
func (e *Entry) AppendArgs(args []any) []any {
	return append(args,
		boxed[0], &e.Event,
		boxed[1], value(e.Payload),
		boxed[2], value(e.State),
		boxed[3], &e.Shard,
		boxed[4], &e.Sequence,
		boxed[5], &e.Session,
		boxed[6], &e.Received,
		boxed[7], &e.Codec,
		boxed[8], e.Flags.String(),
		boxed[9], &e.Trace,
		boxed[10], &e.Target,
	)
}

// AppendRESP appends the entry's fields and values, the same as AppendArgs, as
// the words of an XADD in Redis's protocol: FieldWords of them.
func (e *Entry) AppendRESP(dst []byte) []byte {
	dst = resp.AppendBulk(append(dst, encoded[0]...), e.Event)
	dst = resp.AppendBulk(append(dst, encoded[1]...), e.Payload)
	dst = resp.AppendBulk(append(dst, encoded[2]...), e.State)
	dst = resp.AppendInt(append(dst, encoded[3]...), int64(e.Shard))
	dst = resp.AppendInt(append(dst, encoded[4]...), e.Sequence)
	dst = resp.AppendBulk(append(dst, encoded[5]...), e.Session)
	dst = resp.AppendInt(append(dst, encoded[6]...), e.Received)
	dst = resp.AppendBulk(append(dst, encoded[7]...), e.Codec)
	dst = resp.AppendBulk(append(dst, encoded[8]...), e.Flags.String())
	dst = resp.AppendBulk(append(dst, encoded[9]...), e.Trace)
	return resp.AppendBulk(append(dst, encoded[10]...), e.Target)
}

// FieldWords is the number of words that AppendRESP appends.
const FieldWords = 2 * len(Fields)

// encoded are Fields as words of Redis's protocol.
var encoded = func() (names [len(Fields)]string) {
	for i, name := range Fields {
		names[i] = string(resp.AppendBulk(nil, name))
	}
	return names
}()

// boxed are Fields as arguments.
var boxed = func() (names [len(Fields)]any) {
	for i, name := range Fields {
		names[i] = name
	}
	return names
}()

func value(text []byte) any {
	if len(text) == 0 {
		return ""
	}
	return text
}

// ErrEntry is wrapped by Decode's errors.
var ErrEntry = errors.New("not an entry of this format")

// Decode reads an entry from the values go-redis returns for it. Fields it does
// not know are passed over; the error names the first that is missing or wrong.
// The entry aliases no memory of values but the strings'.
func Decode(values map[string]any) (Entry, error) {
	var (
		e   Entry
		err error
	)
	text := func(field string) string {
		s, ok := values[field].(string)
		if !ok && err == nil {
			err = fmt.Errorf("%w: field %q is missing", ErrEntry, field)
		}
		return s
	}
	number := func(field string) int64 {
		s := text(field)
		n, bad := strconv.ParseInt(s, 10, 64)
		if bad != nil && err == nil {
			err = fmt.Errorf("%w: field %q is %q, want a decimal number", ErrEntry, field, s)
		}
		return n
	}
	e.Event = text("event")
	e.Payload = []byte(text("payload"))
	e.State = []byte(text("state"))
	e.Shard = int(number("shard"))
	e.Sequence = number("sequence")
	e.Session = text("session")
	e.Received = number("received")
	e.Codec = text("codec")
	e.Flags = ParseFlags(text("flags"))
	e.Trace = text("trace")
	e.Target = text("target")
	if err == nil && e.Codec != JSON && e.Codec != Msgpack {
		err = fmt.Errorf("%w: codec is %q, want %q or %q", ErrEntry, e.Codec, JSON, Msgpack)
	}
	return e, err
}
