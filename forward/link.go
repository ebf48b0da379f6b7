package forward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/internal/wire"
)

// ioTimeout bounds one round trip on a link; what is being written may be a
// guild of 30 MB.
const ioTimeout = 10 * time.Second

// A link is the one connection that a shard commits on. It belongs to the shard
// alone, because a WATCH belongs to its connection, and nothing on it is ever
// sent again unasked. After any error it is closed and made anew. go-redis has
// set it up; from there on it is spoken to directly, since all that is wanted of
// most replies is that they are no errors.
type link struct {
	conn net.Conn
	in   *resp.Reader
	tail []byte // ends each transaction: EXEC, and the guard of the next
}

// dial connects to the node that has key, the session record's.
func dial(ctx context.Context, rdb redis.UniversalClient, key string) (*link, error) {
	node, err := redisclient.NodeOf(ctx, rdb, key)
	if err != nil {
		return nil, err
	}
	conn, err := redisclient.Take(ctx, node)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, in: resp.NewReader(conn, 64<<10)}
	l.tail = appendGuard(resp.AppendWords(nil, "EXEC"), key)
	return l, nil
}

func appendGuard(dst []byte, key string) []byte {
	dst = resp.AppendWords(dst, "WATCH", key)
	return resp.AppendWords(dst, "HMGET", key, wire.SessionFence, wire.SessionCommit)
}

func (l *link) close() { l.conn.Close() }

// send writes what is given in one go. Until the returned function is called a
// ctx that ends cuts the round trip short, and so does ioTimeout.
func (l *link) send(ctx context.Context, texts ...[]byte) (done func() bool, err error) {
	if err := l.conn.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return nil, err
	}
	done = context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	buffers := net.Buffers(texts)
	if _, err := buffers.WriteTo(l.conn); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// A guard is what the session record says of who may commit next, read behind a
// WATCH that holds until the next EXEC.
type guard struct {
	fence  string // empty: there is no record
	commit int64
}

// readGuard reads the replies to what appendGuard has written.
func (l *link) readGuard() (g guard, err error) {
	if err := l.in.Skip(); err != nil {
		return guard{}, err
	}
	n, err := l.in.Array()
	if err != nil {
		return guard{}, err
	}
	if n != 2 {
		return guard{}, fmt.Errorf("%w: guard of %d fields, want 2", resp.ErrProtocol, n)
	}
	if g.fence, _, err = l.in.Text(); err != nil {
		return guard{}, err
	}
	commit, ok, err := l.in.Text()
	if err != nil {
		return guard{}, err
	}
	if ok {
		if g.commit, err = strconv.ParseInt(commit, 10, 64); err != nil {
			return guard{}, fmt.Errorf("field %q is %q, want a decimal number", wire.SessionCommit, commit)
		}
	}
	return g, nil
}

// watch arms the guard and reads it.
func (l *link) watch(ctx context.Context, key string) (guard, error) {
	done, err := l.send(ctx, appendGuard(nil, key))
	if err != nil {
		return guard{}, err
	}
	defer done()
	return l.readGuard()
}

// An answer is what became of a transaction.
type answer struct {
	executed bool
	failed   []failure // commands that failed inside an executed transaction
	refused  bool      // EXEC answered nil: the guard had changed
	next     guard     // read in the same round trip
	armed    bool      // next is valid, and watched
	err      error     // anything else: whether it was executed is not known
}

// A failure is a command that failed inside EXEC.
type failure struct {
	command []byte
	err     error
}

var multi = resp.AppendWords(nil, "MULTI")

// execute sends commands as one transaction, and arms the next guard in the same
// round trip.
func (l *link) execute(ctx context.Context, commands part, last []byte) (a answer) {
	done, err := l.send(ctx, multi, commands.bytes, last, l.tail)
	if err != nil {
		return answer{err: err}
	}
	defer done()
	// MULTI and each command are answered before EXEC is. The first that was
	// refused says more than the EXECABORT that follows.
	var refusal error
	for range 1 + commands.len() + 1 {
		switch err := l.in.Skip(); {
		case err == nil:
		case !isReply(err):
			return answer{err: err}
		case refusal == nil:
			refusal = err
		}
	}
	n, err := l.in.Array()
	switch {
	case err != nil:
		if refusal != nil && isReply(err) {
			err = refusal
		}
		return answer{err: err}
	case n < 0:
		a.refused = true
	default:
		a.executed = true
		for i := range n {
			err := l.in.Skip()
			if isReply(err) && i < commands.len() {
				a.failed = append(a.failed, failure{command: commands.command(i), err: err})
			} else if err != nil {
				return answer{err: err}
			}
		}
	}
	if a.next, err = l.readGuard(); err == nil {
		a.armed = true
	}
	return a
}

// types asks for the types of keys.
func (l *link) types(ctx context.Context, keys []string) (kinds []string, err error) {
	var text []byte
	for _, key := range keys {
		text = resp.AppendWords(text, "TYPE", key)
	}
	done, err := l.send(ctx, text)
	if err != nil {
		return nil, err
	}
	defer done()
	for range keys {
		kind, _, err := l.in.Text()
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// isReply reports whether err is Redis's own answer, not the connection's failure.
func isReply(err error) bool {
	var reply resp.Error
	var other redis.Error
	return errors.As(err, &reply) || errors.As(err, &other)
}

// A backoff is a growing wait with jitter. The zero value begins at 50 ms.
type backoff struct{ next time.Duration }

const (
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second
)

func (b *backoff) wait(ctx context.Context) error {
	b.next = min(max(2*b.next, backoffMin), backoffMax)
	timer := time.NewTimer(b.next/2 + rand.N(b.next/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
