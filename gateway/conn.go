package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

const (
	readBufferBytes = 32 << 10
	keepBytes       = 1 << 20          // a message buffer larger than this is not kept
	writeTimeout    = 10 * time.Second // of one message
	closeGrace      = time.Second      // for the closing handshake
)

// errTooLarge says that a message was read past for being larger than allowed.
var errTooLarge = errors.New("message larger than the frame limit")

// A conn is one WebSocket connection: it reads messages, inflated, and knows
// whether the other side lives. next is for one goroutine; every other method
// is safe for concurrent use.
type conn struct {
	ws    *websocket.Conn
	zlib  *inflater // nil: no transport compression
	limit int
	msg   []byte // the last message; next reuses it
	chunk []byte // compressed bytes on their way to zlib

	life atomic.Uint64 // grows with everything read
	busy atomic.Bool   // the reader is elsewhere: nobody reads

	patience atomic.Int64 // how long a read may wait, ns; 0: until deadline
	armed    time.Time    // when the read deadline was last set

	mu  sync.Mutex // guards cut, and the order of read deadlines
	cut bool       // reading is over
}

// dial connects within timeout; that is also how long the first read may take.
func dial(ctx context.Context, address, compress string, limit int, timeout time.Duration) (*conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("v", "10")
	q.Set("encoding", "json")
	if compress != CompressNone {
		q.Set("compress", compress)
	}
	u.RawQuery = q.Encode()
	if u.Path == "" {
		u.Path = "/"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := websocket.Dialer{
		Proxy:            http.ProxyFromEnvironment,
		HandshakeTimeout: timeout,
		ReadBufferSize:   readBufferBytes,
		WriteBufferSize:  maxSendBytes + 64,
	}
	start := time.Now()
	ws, resp, err := dialer.DialContext(ctx, u.String(), nil)
	if err != nil {
		if resp != nil {
			return nil, fmt.Errorf("dial %s: %w: status %s", u.Host, err, resp.Status)
		}
		return nil, fmt.Errorf("dial %s: %w", u.Host, err)
	}
	c := &conn{ws: ws, limit: limit, armed: start}
	if compress != CompressNone {
		c.zlib = newInflater(limit)
		c.chunk = make([]byte, readBufferBytes)
	}
	// A close frame is not echoed: an echoed 1000 would end the session.
	ws.SetCloseHandler(func(int, string) error { return nil })
	if err := ws.SetReadDeadline(start.Add(timeout)); err != nil {
		c.close(0)
		return nil, err
	}
	return c, nil
}

// next returns the next message, valid until it is called again. errTooLarge
// leaves the connection usable; every other error ends it.
func (c *conn) next() ([]byte, error) {
	if cap(c.msg) > keepBytes {
		c.msg = nil
	}
	c.msg = c.msg[:0]
	if c.zlib != nil {
		c.zlib.reset(c.msg)
	}
	for {
		c.arm()
		kind, r, err := c.ws.NextReader()
		if err != nil {
			return nil, err
		}
		if kind == websocket.BinaryMessage && c.zlib != nil {
			whole, err := c.inflate(r)
			if err != nil {
				return nil, err
			}
			if !whole {
				continue
			}
			c.msg = c.zlib.out
			if c.zlib.over {
				return nil, errTooLarge
			}
			return c.msg, nil
		}
		return c.plain(r)
	}
}

// inflate feeds one WebSocket message to zlib and reports whether it was the
// last part of a gateway message.
func (c *conn) inflate(r io.Reader) (whole bool, err error) {
	for {
		n, err := r.Read(c.chunk)
		if n > 0 {
			c.life.Add(1)
			if err := c.zlib.feed(c.chunk[:n]); err != nil {
				return false, err
			}
		}
		if err == io.EOF {
			return c.zlib.whole(), nil
		}
		if err != nil {
			return false, err
		}
		c.arm()
	}
}

// plain reads one WebSocket message as it is.
func (c *conn) plain(r io.Reader) ([]byte, error) {
	over := false
	for {
		c.msg = slices.Grow(c.msg, 1<<10)
		n, err := r.Read(c.msg[len(c.msg):cap(c.msg)])
		c.msg = c.msg[:len(c.msg)+n]
		if n > 0 {
			c.life.Add(1)
		}
		if len(c.msg) > c.limit {
			over, c.msg = true, c.msg[:0]
		}
		if err == io.EOF {
			if over {
				return nil, errTooLarge
			}
			return c.msg, nil
		}
		if err != nil {
			return nil, err
		}
		c.arm()
	}
}

// arm moves the read deadline on, if it is due: reads are many and deadlines cost.
func (c *conn) arm() {
	patience := time.Duration(c.patience.Load())
	if patience == 0 {
		return
	}
	now := time.Now()
	if now.Sub(c.armed) < patience/4 {
		return
	}
	c.armed = now
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.cut {
		c.ws.SetReadDeadline(now.Add(patience)) // an error shows at the read
	}
}

// interrupt ends the read under way and all that follow.
func (c *conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	c.ws.SetReadDeadline(time.Unix(1, 0)) // an error shows at the read
}

// write sends one message. Only one goroutine may.
func (c *conn) write(message []byte) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.TextMessage, message)
}

// close ends the connection; with a code it says so first, and waits a moment
// for Discord to hang up (a socket that is closed with bytes unread is reset,
// and the close frame may be lost with it). next must not be running.
func (c *conn) close(code int) {
	if code != 0 {
		deadline := time.Now().Add(closeGrace)
		if c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), deadline) == nil {
			raw := c.ws.NetConn()
			raw.SetReadDeadline(deadline)
			io.Copy(io.Discard, raw)
		}
	}
	c.ws.Close()
	if c.zlib != nil {
		c.zlib.close()
	}
}

// closeCode returns the code Discord closed with, 0 if err is something else.
func closeCode(err error) int {
	var e *websocket.CloseError
	if errors.As(err, &e) && e.Code != websocket.CloseAbnormalClosure && e.Code != websocket.CloseNoStatusReceived {
		return e.Code
	}
	return 0
}
