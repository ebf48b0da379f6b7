package replay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A conn is a connection of the worker's own, spoken to in RESP2. go-redis
// connects, authenticates and selects; from there on it lies still, and what is
// read and written here costs no allocation but an entry's own bytes. It also
// gives what a pooled client can't: several commands in one write with a blocking
// one first, and a deadline per read.
//
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
type conn struct {
	id    int64  // CLIENT ID
	addr  string // of the server, for texts
	net   net.Conn
	rd    *bufio.Reader
	out   []byte // commands not yet written
	bytes int64  // read so far

	client *redis.Client
	pinned *redis.Conn
}

const (
	readBuffer = 256 << 10
	ioTimeout  = 5 * time.Second // for answers that do not wait for entries
)

// dial connects to the server that opt describes.
func dial(ctx context.Context, opt redis.Options, buffer int) (*conn, error) {
	c := &conn{addr: opt.Addr}
	var link socket
	plain := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := plain(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := link.set(nc); err != nil {
			return nil, err
		}
		return nc, nil
	}
	opt.Protocol = 2
	opt.MaxRetries = -1
	opt.DialerRetries = 1
	opt.PoolSize, opt.MaxActiveConns, opt.MinIdleConns, opt.PipelinePoolSize = 1, 1, 0, -1
	opt.ConnMaxLifetime = 0
	unshare(&opt)
	c.client = redis.NewClient(&opt)
	c.pinned = c.client.Conn()
	id, err := c.pinned.ClientID(ctx).Result()
	c.net = link.get()
	if err != nil {
		c.close()
		return nil, err
	}
	c.id = id
	c.rd = bufio.NewReaderSize(counter{c}, buffer)
	return c, nil
}

// A socket is what go-redis has dialled. It dials on a goroutine of its own, which
// may go on when nobody waits any more.
type socket struct {
	mu sync.Mutex
	// Guarded by mu.
	conn net.Conn
	used bool // what comes now is too late
}

func (s *socket) set(nc net.Conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		nc.Close()
		return net.ErrClosed
	}
	s.conn = nc
	return nil
}

func (s *socket) get() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = true
	return s.conn
}

// unshare takes out of a copy of a client's options what is that client's own.
func unshare(opt *redis.Options) {
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCache, opt.ClientSideCacheConfig = nil, nil
}

type counter struct{ c *conn }

func (r counter) Read(p []byte) (int, error) {
	n, err := r.c.net.Read(p)
	r.c.bytes += int64(n)
	return n, err
}

func (c *conn) close() {
	if c.net != nil {
		c.net.Close() // first: go-redis is not to say goodbye on it
	}
	c.pinned.Close()
	c.client.Close()
}

// command begins a command of n words, its name included.
func (c *conn) command(n int, name string) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(n), 10)
	c.out = append(c.out, '\r', '\n')
	c.text(name)
}

func (c *conn) text(word string) {
	c.out = append(c.out, '$')
	c.out = strconv.AppendInt(c.out, int64(len(word)), 10)
	c.out = append(c.out, '\r', '\n')
	c.out = append(c.out, word...)
	c.out = append(c.out, '\r', '\n')
}

func (c *conn) int(n int64) {
	var buf [20]byte
	c.bulk(strconv.AppendInt(buf[:0], n, 10))
}

func (c *conn) entry(id entryID) {
	var buf [48]byte
	c.bulk(id.append(buf[:0]))
}

func (c *conn) bulk(word []byte) {
	c.out = append(c.out, '$')
	c.out = strconv.AppendInt(c.out, int64(len(word)), 10)
	c.out = append(c.out, '\r', '\n')
	c.out = append(c.out, word...)
	c.out = append(c.out, '\r', '\n')
}

// flush writes the commands. Answers must come within wait.
func (c *conn) flush(wait time.Duration) error {
	now := time.Now()
	if err := c.net.SetWriteDeadline(now.Add(ioTimeout)); err != nil {
		return err
	}
	if err := c.net.SetReadDeadline(now.Add(wait)); err != nil {
		return err
	}
	_, err := c.net.Write(c.out)
	if cap(c.out) > 1<<20 {
		c.out = nil
	}
	c.out = c.out[:0]
	return err
}

// A replyError is an error the server answered; the connection is still good.
type replyError string

func (e replyError) Error() string { return string(e) }

// errReply is wrapped by what says that an answer is not what was asked for; the
// connection can't be used on.
var errReply = errors.New("unexpected answer")

// head reads the first line of an answer. n is the number in it: a length, a
// count (-1: nil), or the integer itself.
func (c *conn) head() (kind byte, n int64, err error) {
	line, err := c.rd.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, 0, fmt.Errorf("%w: %.80q", errReply, line)
	}
	kind, line = line[0], line[1:len(line)-2]
	switch kind {
	case '-':
		return kind, 0, replyError(line)
	case '+':
		return kind, 0, nil
	case ':', '$', '*':
		negative := len(line) > 0 && line[0] == '-'
		if negative {
			line = line[1:]
		}
		u, rest, ok := digits(line)
		if !ok || len(rest) > 0 || u > 1<<62 {
			return 0, 0, fmt.Errorf("%w: %c%.80q", errReply, kind, line)
		}
		if n = int64(u); negative {
			n = -n
		}
		return kind, n, nil
	}
	return 0, 0, fmt.Errorf("%w: %c%.80q", errReply, kind, line)
}

// want reads the first line of an answer of a certain kind.
func (c *conn) want(kind byte) (n int64, err error) {
	got, n, err := c.head()
	if err == nil && got != kind {
		err = fmt.Errorf("%w: %c, want %c", errReply, got, kind)
	}
	return n, err
}

// array reads the head of an array; nil counts as -1, whichever way it is said.
func (c *conn) array() (n int, err error) {
	kind, m, err := c.head()
	if err == nil && kind != '*' && !(kind == '$' && m == -1) {
		err = fmt.Errorf("%w: %c, want an array", errReply, kind)
	}
	return int(m), err
}

// word reads a bulk string. What it returns is good until the next read if it
// fits the buffer, else a copy; nil is nil.
func (c *conn) word() ([]byte, error) {
	n, err := c.want('$')
	if err != nil || n < 0 {
		return nil, err
	}
	if int(n)+2 > c.rd.Size() {
		return c.copied(int(n))
	}
	b, err := c.rd.Peek(int(n) + 2)
	if err != nil {
		return nil, err
	}
	c.rd.Discard(int(n) + 2)
	return b[:n:n], nil
}

// own reads a bulk string into memory of its own; empty is nil.
func (c *conn) own() ([]byte, error) {
	n, err := c.want('$')
	if err != nil || n < 0 {
		return nil, err
	}
	return c.copied(int(n))
}

func (c *conn) copied(n int) ([]byte, error) {
	var b []byte
	if n > 0 {
		b = make([]byte, n)
	}
	if _, err := io.ReadFull(c.rd, b); err != nil {
		return nil, err
	}
	_, err := c.rd.Discard(2)
	return b, err
}

// skip reads an answer of any kind and forgets it. An error inside it, as the
// server says them, is returned once all of it is read.
func (c *conn) skip() error {
	kind, n, err := c.head()
	if err != nil {
		return err
	}
	switch kind {
	case '$':
		if n >= 0 {
			_, err = c.rd.Discard(int(n) + 2)
		}
	case '*':
		var said error
		for range n {
			if err := c.skip(); err != nil {
				if _, ok := errors.AsType[replyError](err); !ok {
					return err
				}
				said = err
			}
		}
		err = said
	}
	return err
}

// usable reports whether a connection can be used on after err.
func usable(err error) bool {
	_, ok := errors.AsType[replyError](err)
	return err == nil || ok
}
