package forward

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/sluicehq/sluice/internal/wire"
)

// A link is the one connection that a shard commits on. go-redis must not retry
// on it and must not swap it for another: a resent transaction is a doubled one,
// and a WATCH belongs to its connection. After any error it is closed and made
// anew.
type link struct {
	client *redis.Client
	conn   *redis.Conn
}

// dial prepares a link to the node that has key. It connects with the first command.
func dial(ctx context.Context, rdb redis.UniversalClient, key string) (*link, error) {
	var from *redis.Client
	switch c := rdb.(type) {
	case *redis.Client:
		from = c
	case *redis.ClusterClient:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("find the node of %q: %w", key, err)
		}
		from = node
	default:
		return nil, fmt.Errorf("a %T can't be committed on: want a *redis.Client or a *redis.ClusterClient", rdb)
	}
	options := *from.Options()
	options.MaxRetries = -1
	options.Protocol = 2 // nothing is pushed on it that would have to be looked for between replies
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	options.PoolSize = 1
	options.MinIdleConns = 0
	options.ReadBufferSize = max(options.ReadBufferSize, 128<<10)
	options.WriteBufferSize = max(options.WriteBufferSize, 128<<10)
	client := redis.NewClient(&options)
	return &link{client: client, conn: client.Conn()}, nil
}

func (l *link) close() {
	l.conn.Close()
	l.client.Close()
}

// A guard is what the session record says of who may commit next, read behind a
// WATCH that holds until the next EXEC.
type guard struct {
	fence  string // empty: there is no record
	commit int64
}

func parseGuard(values []any) (guard, error) {
	if len(values) != 2 {
		return guard{}, fmt.Errorf("guard has %d fields, want 2", len(values))
	}
	var g guard
	g.fence, _ = values[0].(string)
	if text, ok := values[1].(string); ok {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return guard{}, fmt.Errorf("field %q is %q, want a decimal number", wire.SessionCommit, text)
		}
		g.commit = n
	}
	return g, nil
}

// watch arms the guard and reads it.
func (l *link) watch(ctx context.Context, key string) (guard, error) {
	pipe := l.conn.Pipeline()
	pipe.Do(ctx, "WATCH", key)
	read := pipe.HMGet(ctx, key, wire.SessionFence, wire.SessionCommit)
	if _, err := pipe.Exec(ctx); err != nil {
		return guard{}, err
	}
	return parseGuard(read.Val())
}

// An answer is what became of a transaction.
type answer struct {
	results []any // one for each command, errors among them; nil if it was not executed
	refused bool  // EXEC answered nil: the guard had changed
	next    guard // read in the same round trip
	armed   bool  // next is valid, and watched
	err     error // anything else: whether it was executed is not known
}

// execute sends commands as one transaction, and arms the next guard in the
// same round trip.
func (l *link) execute(ctx context.Context, key string, commands [][]any, last []any) answer {
	cmds := make([]redis.Cmder, 0, len(commands)+5)
	cmds = append(cmds, redis.NewStatusCmd(ctx, "MULTI"))
	for _, args := range commands {
		cmds = append(cmds, redis.NewStatusCmd(ctx, args...))
	}
	exec := redis.NewSliceCmd(ctx, "EXEC")
	watch := redis.NewStatusCmd(ctx, "WATCH", key)
	read := redis.NewSliceCmd(ctx, "HMGET", key, wire.SessionFence, wire.SessionCommit)
	cmds = append(cmds, redis.NewStatusCmd(ctx, last...), exec, watch, read)

	pipe := l.conn.Pipeline()
	pipe.BatchProcess(ctx, cmds...)
	pipe.Exec(ctx) // each command has its own error

	var a answer
	switch execErr := exec.Err(); {
	case execErr == nil:
		a.results = exec.Val()
	case errors.Is(execErr, redis.Nil):
		a.refused = true
	default:
		// The first command that was refused says more than EXECABORT does.
		for _, cmd := range cmds[:len(cmds)-3] {
			if cmd.Err() != nil {
				execErr = cmd.Err()
				break
			}
		}
		a.err = execErr
		return a
	}
	if watch.Err() == nil && read.Err() == nil {
		next, err := parseGuard(read.Val())
		a.next, a.armed = next, err == nil
	}
	return a
}

// isReply reports whether err is Redis's own answer, not the connection's failure.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
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
