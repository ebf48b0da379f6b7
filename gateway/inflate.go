package gateway

import (
	"bufio"
	"errors"
	"io"
	"iter"

	"github.com/klauspost/compress/flate"
)

// An inflater turns a connection's zlib-stream back into messages. There is one
// for each connection; after an error it is of no more use.
//
// The decompressor runs as a coroutine that feed resumes with new bytes and that
// suspends itself when it needs more. So it never sees an end of input, which it
// could not recover from: a flate reader that meets one in the wrong moment
// (a message that ends where the window wraps) keeps the error for ever.
type inflater struct {
	in    []byte // fed and not taken yet
	tail  [4]byte
	out   []byte
	limit int
	over  bool // out has been cut: the message is larger than limit
	err   error

	next func() (struct{}, bool)
	stop func()
}

var (
	errHeader = errors.New("zlib-stream: not a zlib header")
	errFinal  = errors.New("zlib-stream: it has ended")
)

// syncMarker ends every message.
// Source: https://discord.com/developers/docs/events/gateway#transport-compression
var syncMarker = [4]byte{0, 0, 0xff, 0xff}

func newInflater(limit int) *inflater {
	f := &inflater{limit: limit}
	f.next, f.stop = iter.Pull(f.run)
	return f
}

// close ends the coroutine.
func (f *inflater) close() { f.stop() }

// reset begins a message, appended to out[:0].
func (f *inflater) reset(out []byte) { f.out, f.over = out[:0], false }

// feed takes the next bytes of the stream and appends what they give to out.
func (f *inflater) feed(p []byte) error {
	for _, c := range p[max(0, len(p)-4):] {
		f.tail[0], f.tail[1], f.tail[2], f.tail[3] = f.tail[1], f.tail[2], f.tail[3], c
	}
	f.in = p
	if _, ok := f.next(); !ok {
		return f.err
	}
	return nil
}

// whole reports whether the bytes fed so far end a message.
func (f *inflater) whole() bool { return f.tail == syncMarker }

// run is the coroutine: it inflates until an error or until it is stopped.
func (f *inflater) run(yield func(struct{}) bool) {
	src := bufio.NewReaderSize(&suspending{f: f, yield: yield}, 4<<10)
	var header [2]byte
	if _, err := io.ReadFull(src, header[:]); err != nil {
		f.err = err
		return
	}
	// The checksum behind the header is at the stream's end, which never comes.
	if header[0]&0x0f != 8 || header[1]&0x20 != 0 || (int(header[0])<<8|int(header[1]))%31 != 0 {
		f.err = errHeader
		return
	}
	// WriteTo and not Read: a Read that waits here would put the next message
	// where the last one's buffer was.
	_, f.err = flate.NewReader(src).(io.WriterTo).WriteTo(inflated{f})
	if f.err == nil {
		f.err = errFinal
	}
}

// inflated is the decompressor's output.
type inflated struct{ f *inflater }

func (w inflated) Write(p []byte) (int, error) {
	f := w.f
	if f.over = f.over || len(f.out)+len(p) > f.limit; f.over {
		f.out = f.out[:0]
	} else {
		f.out = append(f.out, p...)
	}
	return len(p), nil
}

// suspending is the decompressor's input: where it is used up, the coroutine
// waits for feed.
type suspending struct {
	f     *inflater
	yield func(struct{}) bool
}

func (s *suspending) Read(p []byte) (int, error) {
	for len(s.f.in) == 0 {
		if !s.yield(struct{}{}) {
			return 0, io.EOF
		}
	}
	n := copy(p, s.f.in)
	s.f.in = s.f.in[n:]
	return n, nil
}
