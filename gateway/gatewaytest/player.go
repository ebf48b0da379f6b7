package gatewaytest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/rawjson"
)

// PlayOptions say how a recording is played.
type PlayOptions struct {
	// Rate is the number of dispatches a second, over all shards, sent whether
	// the clients keep up or not. 0: as fast as they read.
	Rate float64
	// Window bounds, at rate 0, the dispatches of a session that are not yet
	// written to its socket; 0: 1024.
	Window int
}

// DefaultWindow is the zero value of PlayOptions.Window.
const DefaultWindow = 1024

// Play sends a recorded session: lines of JSON as Discord sent them, with
// "t", "s", "op" and "d". It is read as it is played, so it may be of any length.
//
// A READY line becomes the READY of every session that begins from then on, with
// the guilds of the session's shard only (clients that may come before Play has
// read it wait for it if Config.Ready is Withhold). Play begins when all shards
// are connected, of as many as the last IDENTIFY said. Every other line goes to its guild's shard
// (without a guild to shard 0), in the order of the file, with a sequence of the
// session it is sent in. RESUMED lines and lines that are no dispatch are left
// out. Where a shard has no session, Play waits for it to identify: it then gets
// a READY and what is left of the recording.
//
// Play returns when every line is in a session, with the number of dispatches it
// sent. Errors are ctx's, the reader's, or name a line that is no envelope.
func (s *Server) Play(ctx context.Context, r io.Reader, o PlayOptions) (dispatches int, err error) {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	lines := lineReader{r: bufio.NewReaderSize(r, 64<<10)}
	var (
		begun time.Time
		f     dispatch.Fields
	)
	for {
		line, err := lines.next()
		if err == io.EOF {
			return dispatches, nil
		}
		if err != nil {
			return dispatches, fmt.Errorf("gatewaytest: line %d: %w", lines.number, err)
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		name, d, err := parseLine(line)
		if err != nil {
			return dispatches, fmt.Errorf("gatewaytest: line %d: %w", lines.number, err)
		}
		switch name {
		case "", "RESUMED":
			continue
		case "READY":
			template := bytes.Clone(d)
			s.SetReady(func(shard, shards int) json.RawMessage {
				return guildsOf(template, place{shard, shards})
			})
			continue
		}
		if begun.IsZero() {
			if err := s.Wait(ctx, s.allConnected); err != nil {
				return dispatches, err
			}
			begun = time.Now()
		}
		if o.Rate > 0 {
			due := begun.Add(time.Duration(float64(dispatches) / o.Rate * float64(time.Second)))
			if err := until(ctx, due); err != nil {
				return dispatches, err
			}
		}
		f.Scan(d) // of a d that is no object nothing is known: shard 0
		_, guild := dispatch.Lookup(name).Key(&f)
		if err := s.play(ctx, guild, name, d, o); err != nil {
			return dispatches, err
		}
		dispatches++
	}
}

// play sends one dispatch as soon as its shard has a session, and a place in the
// window.
func (s *Server) play(ctx context.Context, guild []byte, name string, d []byte, o PlayOptions) error {
	window := int64(o.Window)
	for {
		var change <-chan struct{}
		var closed bool
		sequence := s.emit(func() (*session, string, []byte) {
			sess := s.current[place{shardOf(guild, s.shards), s.shards}]
			if sess != nil && !s.closed && (o.Rate > 0 || sess.last()-sess.sent < window) {
				return sess, name, d
			}
			window = int64(max(1, o.Window/2)) // a full window is filled again by halves
			change, closed = s.changed(), s.closed
			return nil, "", nil
		})
		if sequence > 0 {
			return nil
		}
		if closed {
			return errClosed
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("gatewaytest: playing: %w", context.Cause(ctx))
		}
	}
}

// allConnected reports whether all shards there are to be are connected.
func (s *Server) allConnected() bool {
	s.mu.Lock()
	shards := s.shards
	s.mu.Unlock()
	for shard := range shards {
		if !s.Connected(shard) {
			return false
		}
	}
	return shards > 0
}

// until waits for a time; less than a millisecond is not worth it.
func until(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait < time.Millisecond {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gatewaytest: playing: %w", context.Cause(ctx))
	}
}

// parseLine returns the type and the d of an envelope; the type is empty if it
// is no dispatch.
func parseLine(line []byte) (name string, d []byte, err error) {
	op := int64(0)
	var o rawjson.Object
	o.Reset(line)
	for o.Next() {
		switch string(o.Key) {
		case "t":
			text, _ := rawjson.Text(o.Value)
			name = string(text)
		case "d":
			d = o.Value
		case "op":
			op, _ = rawjson.Int(o.Value)
		}
	}
	if op != 0 {
		name = ""
	}
	return name, d, o.Err()
}

// A lineReader reads lines of any length.
type lineReader struct {
	r      *bufio.Reader
	long   []byte
	number int
}

// next returns the next line, valid until it is called again, or io.EOF.
func (l *lineReader) next() ([]byte, error) {
	l.number++
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil && len(l.long) == 0:
			return part, nil
		case err == nil:
			l.long = append(l.long, part...)
			return l.long, nil
		case err == bufio.ErrBufferFull:
			l.long = append(l.long, part...)
		case err == io.EOF && len(l.long)+len(part) > 0:
			l.long = append(l.long, part...)
			return l.long, nil
		default:
			return nil, err
		}
	}
}
