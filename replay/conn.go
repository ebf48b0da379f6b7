package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redisclient"
)

// A conn is a connection of the worker's own, spoken to in RESP2. go-redis
// connects, authenticates and selects; from there on it lies still, and what is
// read and written here costs no allocation but an entry's own bytes. It also
// gives what a pooled client can't: several commands in one write with a blocking
// one first, and a deadline per read.
//
// Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
type conn struct {
	id    int64  // CLIENT ID; 0: the server has none
	addr  string // of the server, for texts
	net   net.Conn
	out   []byte // commands not yet written
	bytes int64  // read so far

	in       []byte // read; what is between from and to was not looked at
	from, to int
}

const (
	readBuffer = 256 << 10
	ioTimeout  = 5 * time.Second // for answers that do not wait for entries
)

// dial connects to the server that opt describes.
func dial(ctx context.Context, opt redis.Options, buffer int) (*conn, error) {
	nc, err := redisclient.Take(ctx, &opt)
	if err != nil {
		return nil, err
	}
	c := &conn{addr: opt.Addr, net: nc, in: make([]byte, buffer)}
	c.command(2, "CLIENT")
	c.text("ID")
	if err = c.flush(ioTimeout); err == nil {
		c.id, err = c.want(':')
	}
	var reply replyError
	if errors.As(err, &reply) && strings.HasPrefix(string(reply), "ERR unknown ") {
		err = nil // the embedded server has none: its reads end by themselves
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) close() { c.net.Close() }

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

// need reads until n bytes are there, at most a whole buffer.
func (c *conn) need(n int) error {
	for c.to-c.from < n {
		if err := c.more(); err != nil {
			return err
		}
	}
	return nil
}

// more reads once. What was not looked at moves to the start of the buffer if
// there is no room behind it.
func (c *conn) more() error {
	if c.from == c.to {
		c.from, c.to = 0, 0
	}
	if c.to == len(c.in) {
		if c.from == 0 {
			return fmt.Errorf("%w: more than %d bytes", errReply, len(c.in))
		}
		c.to = copy(c.in, c.in[c.from:c.to])
		c.from = 0
	}
	n, err := c.net.Read(c.in[c.to:])
	c.to += n
	c.bytes += int64(n)
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// line reads up to the next line feed and returns what is before the line's end.
func (c *conn) line() ([]byte, error) {
	looked := 0
	for {
		if i := bytes.IndexByte(c.in[c.from+looked:c.to], '\n'); i >= 0 {
			end := c.from + looked + i
			if end == c.from || c.in[end-1] != '\r' {
				return nil, fmt.Errorf("%w: %.80q", errReply, c.in[c.from:end])
			}
			line := c.in[c.from : end-1]
			c.from = end + 1
			return line, nil
		}
		looked = c.to - c.from
		if err := c.more(); err != nil {
			return nil, err
		}
	}
}

// is reads a bulk string if it is there already and is the one expected, as
// it is sent: with its length and its ends.
func (c *conn) is(expected string) bool {
	if c.to-c.from < len(expected) || string(c.in[c.from:c.from+len(expected)]) != expected {
		return false
	}
	c.from += len(expected)
	return true
}

// head reads the first line of an answer. n is the number in it: a length, a
// count (-1: nil), or the integer itself.
func (c *conn) head() (kind byte, n int64, err error) {
	// Nearly all are a length of a few digits, and are there.
	if in := c.in[c.from:c.to]; len(in) > 8 {
		for i, d := range in[1:7] {
			if d -= '0'; d <= 9 {
				n = n*10 + int64(d)
				continue
			}
			if i > 0 && in[i+1] == '\r' && in[i+2] == '\n' && (in[0] == '$' || in[0] == '*' || in[0] == ':') {
				c.from += i + 3
				return in[0], n, nil
			}
			break
		}
	}
	line, err := c.line()
	if err != nil {
		return 0, 0, err
	}
	if len(line) == 0 {
		return 0, 0, fmt.Errorf("%w: an empty line", errReply)
	}
	kind, line = line[0], line[1:]
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
	size := int(n) + 2
	if c.to-c.from < size {
		if size > len(c.in) {
			return c.copied(int(n))
		}
		if err := c.need(size); err != nil {
			return nil, err
		}
	}
	b := c.in[c.from : c.from+size-2 : c.from+size-2]
	c.from += size
	return b, nil
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
	if n > 0 && c.to-c.from < n && n <= len(c.in) {
		if err := c.need(n); err != nil {
			return nil, err
		}
	}
	if c.to-c.from >= n {
		b := append([]byte(nil), c.in[c.from:c.from+n]...) // unlike make it zeroes nothing
		c.from += n
		return b[:n:n], c.drop(2)
	}
	b := make([]byte, n)
	have := copy(b, c.in[c.from:c.to])
	c.from += have
	if have < n {
		if _, err := io.ReadFull(c.net, b[have:]); err != nil {
			return nil, err
		}
		c.bytes += int64(n - have)
	}
	return b, c.drop(2)
}

// drop reads n bytes and forgets them.
func (c *conn) drop(n int) error {
	for {
		k := min(n, c.to-c.from)
		c.from += k
		if n -= k; n == 0 {
			return nil
		}
		if err := c.more(); err != nil {
			return err
		}
	}
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
			err = c.drop(int(n) + 2)
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

// elsewhere are the codes of errors by which a server says that it is not, or not
// yet, the one to be asked: after a failover it may have become a replica. To ask
// the right one takes a new connection.
var elsewhere = []string{"READONLY", "MASTERDOWN", "MOVED", "ASK", "CLUSTERDOWN", "LOADING"}

// usable reports whether a connection can be used on after err.
func usable(err error) bool {
	said, ok := errors.AsType[replyError](err)
	if !ok {
		return err == nil
	}
	code, _, _ := strings.Cut(string(said), " ")
	return !slices.Contains(elsewhere, code)
}
