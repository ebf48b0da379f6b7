package forward

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// errCut says that a transaction was never executed and its connection was cut
// twice: the way Redis answers a value over proto-max-bulk-len.
var errCut = errors.New("redis cut the connection twice without executing the commit")

// A committer writes batches, one after another. It knows the number of the
// last commit that is confirmed, and finds out what became of one whose reply
// did not come: it was executed if and only if the record has its number.
type committer struct {
	rdb   redis.UniversalClient
	keys  wire.Shard
	state *state
	items entries // builds entries anew when one must shrink

	fence  string
	commit int64
	link   *link // nil: to be made; else watching the record as last confirmed
}

// run commits batches until in is closed. It returns errFenced or errWentBack
// when the shard can't go on under this fence.
func (c *committer) run(ctx context.Context, in <-chan *batch) error {
	defer c.disconnect()
	for b := range in {
		begun := time.Now()
		if err := c.commitItems(ctx, b, 0, len(b.items)); err != nil {
			return err
		}
		c.state.confirmed(b, time.Since(begun))
	}
	return nil
}

// commitItems commits the items from up to to. What Redis will not take in one
// commit goes item by item; a single item it will not take shrinks.
func (c *committer) commitItems(ctx context.Context, b *batch, from, to int) error {
	for {
		commands := b.commands[b.items[from].from:b.items[to-1].to]
		if to-from == 1 && b.items[from].commands != nil {
			commands = b.items[from].commands
		}
		err := c.write(ctx, commands, recordUpdate{
			sequence: sequenceOf(b.items[from:to]),
			session:  b.sessionIn(from, to),
			intents:  c.state.intents,
		})
		if !errors.Is(err, errCut) {
			return err
		}
		if to-from > 1 {
			for i := from; i < to; i++ {
				if err := c.commitItems(ctx, b, i, i+1); err != nil {
					return err
				}
			}
			return nil
		}
		c.items.shrink(&b.items[from], commands)
	}
}

// A recordUpdate is what a commit changes in the session record beyond its number.
type recordUpdate struct {
	sequence int64       // 0: stays
	session  *newSession // nil: stays
	intents  int
}

// args returns the record's update as a command.
func (u recordUpdate) args(key string, commit int64, now time.Time) []any {
	args := []any{"HSET", key, wire.SessionCommit, commit}
	if u.sequence != 0 {
		args = append(args, wire.SessionSequence, u.sequence, wire.SessionSaved, now.UnixMilli())
	}
	if u.session != nil {
		args = append(args, wire.SessionID, u.session.id, wire.SessionResumeURL, u.session.resumeURL, wire.SessionIntents, u.intents)
	}
	return args
}

// write commits commands and the record's update, however long it takes. A
// command that fails inside EXEC goes first in the next commit, until it passes:
// the others stand, and what comes after it must not overtake it.
func (c *committer) write(ctx context.Context, commands [][]any, update recordUpdate) error {
	failed, err := c.transact(ctx, commands, update)
	var wait backoff
	for err == nil && len(failed) > 0 {
		c.state.stall(fmt.Errorf("a command of the commit failed: %w", failed[0].err))
		if err := wait.wait(ctx); err != nil {
			return err
		}
		again := make([][]any, len(failed))
		for i := range failed {
			again[i] = failed[i].args
		}
		failed, err = c.transact(ctx, again, recordUpdate{})
	}
	if err == nil {
		c.state.flows()
	}
	return err
}

// A failure is a command that failed inside EXEC.
type failure struct {
	args []any
	err  error
}

// transact commits exactly once. It returns the commands that failed inside an
// executed transaction.
func (c *committer) transact(ctx context.Context, commands [][]any, update recordUpdate) ([]failure, error) {
	var (
		wait backoff
		cuts int
		sent bool // an attempt's outcome is not known
		cut  bool // and it ended with the connection
	)
	last := update.args(c.keys.Session(), c.commit+1, time.Now())
	for {
		if c.link == nil {
			executed, err := c.connect(ctx, sent)
			if err != nil {
				return nil, err
			}
			if executed {
				c.commit++
				return c.inspect(ctx, commands)
			}
			if sent && cut {
				if cuts++; cuts >= 2 {
					return nil, errCut
				}
			}
			sent = false
		}
		a := c.link.execute(ctx, c.keys.Session(), commands, last)
		switch {
		case a.err != nil:
			c.disconnect()
			sent, cut = true, !isReply(a.err)
			c.state.stall(fmt.Errorf("commit of %d commands: %w", len(commands), a.err))
			if err := wait.wait(ctx); err != nil {
				return nil, err
			}
		case a.refused:
			// Someone has written to the record. Under our fence and number it is
			// still ours, and nothing was executed.
			if !a.armed {
				c.disconnect()
			} else if _, err := c.judge(a.next, false); err != nil {
				return nil, err
			}
			c.state.metrics.refused.Inc()
		default:
			c.commit++
			if !a.armed || a.next != (guard{fence: c.fence, commit: c.commit}) {
				c.disconnect() // the next commit finds out why
			}
			return failures(commands, a.results), nil
		}
	}
}

func failures(commands [][]any, results []any) (failed []failure) {
	for i, result := range results {
		if err, ok := result.(error); ok && i < len(commands) {
			failed = append(failed, failure{args: commands[i], err: err})
		}
	}
	return failed
}

// connect makes the link, waits for as long as Redis does not answer, and
// reports whether the commit that was sent last was executed.
func (c *committer) connect(ctx context.Context, sent bool) (executed bool, err error) {
	var wait backoff
	for {
		l, err := dial(ctx, c.rdb, c.keys.Session())
		if err == nil {
			var g guard
			if g, err = l.watch(ctx, c.keys.Session()); err == nil {
				c.link = l
				executed, err := c.judge(g, sent)
				if err != nil {
					c.disconnect()
				}
				return executed, err
			}
			l.close()
		}
		c.state.stall(fmt.Errorf("connect: %w", err))
		if err := wait.wait(ctx); err != nil {
			return false, err
		}
	}
}

// judge compares the record with what is confirmed. sent says that one commit
// more may have been executed.
func (c *committer) judge(g guard, sent bool) (executed bool, err error) {
	switch {
	case g.fence == "":
		return false, errWentBack
	case g.fence != c.fence:
		return false, errFenced
	case g.commit == c.commit:
		return false, nil
	case g.commit == c.commit+1 && sent:
		return true, nil
	case g.commit < c.commit:
		return false, errWentBack
	}
	return false, errFenced // commits under our fence that are not ours
}

// inspect finds the commands that failed in a transaction whose reply was lost:
// those that append to what is no stream.
func (c *committer) inspect(ctx context.Context, commands [][]any) ([]failure, error) {
	c.state.metrics.recovered.Inc()
	keys := make(map[any]struct{})
	for _, args := range commands {
		if args[0] == "XADD" {
			keys[args[1]] = struct{}{}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	for {
		pipe := c.link.conn.Pipeline()
		types := make(map[any]*redis.StatusCmd, len(keys))
		for key := range keys {
			types[key] = pipe.Type(ctx, key.(string))
		}
		_, err := pipe.Exec(ctx)
		if err == nil {
			var failed []failure
			for _, args := range commands {
				if args[0] != "XADD" {
					continue
				}
				if kind := types[args[1]].Val(); kind != "stream" && kind != "none" {
					failed = append(failed, failure{args: args, err: &typeError{key: args[1].(string), kind: kind}})
				}
			}
			return failed, nil
		}
		c.disconnect()
		if _, err := c.connect(ctx, false); err != nil {
			return nil, err
		}
	}
}

// A typeError names a key that should be a stream.
type typeError struct{ key, kind string }

func (e *typeError) Error() string {
	return fmt.Sprintf("key %q is a %s, want a stream: rename or delete it", e.key, e.kind)
}

func (c *committer) disconnect() {
	if c.link != nil {
		c.link.close()
		c.link = nil
	}
}
