package forward

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/resp"
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
	stock stock   // gets the batches that are confirmed

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
		c.stock.put(b)
	}
	return nil
}

// commitItems commits the items from up to to. What Redis will not take in one
// commit goes item by item; a single item it will not take shrinks.
func (c *committer) commitItems(ctx context.Context, b *batch, from, to int) error {
	for {
		commands := b.commands(from, to)
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

// command returns the record's update as a command.
func (u recordUpdate) command(key string, commit int64, now time.Time) []byte {
	words := []string{"HSET", key, wire.SessionCommit, strconv.FormatInt(commit, 10)}
	if u.sequence != 0 {
		words = append(words, wire.SessionSequence, strconv.FormatInt(u.sequence, 10), wire.SessionSaved, strconv.FormatInt(now.UnixMilli(), 10))
	}
	if u.session != nil {
		words = append(words, wire.SessionID, u.session.id, wire.SessionResumeURL, u.session.resumeURL, wire.SessionIntents, strconv.Itoa(u.intents))
	}
	return resp.AppendWords(nil, words...)
}

// write commits commands and the record's update, however long it takes. A
// command that fails inside EXEC goes first in the next commit, until it passes:
// the others stand, and what comes after it must not overtake it.
func (c *committer) write(ctx context.Context, commands part, update recordUpdate) error {
	failed, err := c.transact(ctx, commands, update)
	var wait backoff
	for err == nil && len(failed) > 0 {
		c.state.stall(fmt.Errorf("a command of the commit failed: %w", failed[0].err))
		if err := wait.wait(ctx); err != nil {
			return err
		}
		var again block
		for i := range failed {
			again.add(failed[i].command)
		}
		failed, err = c.transact(ctx, again.part(0, again.len()), recordUpdate{})
	}
	if err == nil {
		c.state.flows()
	}
	return err
}

// transact commits exactly once. It returns the commands that failed inside an
// executed transaction.
func (c *committer) transact(ctx context.Context, commands part, update recordUpdate) ([]failure, error) {
	var (
		wait backoff
		cuts int
		sent bool // an attempt's outcome is not known
		cut  bool // and it ended with the connection
	)
	last := update.command(c.keys.Session(), c.commit+1, time.Now())
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
		a := c.link.execute(ctx, commands, last)
		switch {
		case a.err != nil:
			c.disconnect()
			sent, cut = true, !isReply(a.err)
			c.state.stall(fmt.Errorf("commit of %d commands: %w", commands.len(), a.err))
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
			return a.failed, nil
		}
	}
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
func (c *committer) inspect(ctx context.Context, commands part) ([]failure, error) {
	c.state.metrics.recovered.Inc()
	appends := make(map[string][][]byte) // by key
	for i := range commands.len() {
		if words := commands.words(i); string(words[0]) == "XADD" {
			key := string(words[1])
			appends[key] = append(appends[key], commands.command(i))
		}
	}
	keys := slices.Sorted(maps.Keys(appends))
	for len(keys) > 0 {
		kinds, err := c.link.types(ctx, keys)
		if err == nil {
			var failed []failure
			for i, kind := range kinds {
				if kind == "stream" || kind == "none" {
					continue
				}
				for _, command := range appends[keys[i]] {
					failed = append(failed, failure{command: command, err: &typeError{key: keys[i], kind: kind}})
				}
			}
			return failed, nil
		}
		c.disconnect()
		if _, err := c.connect(ctx, false); err != nil {
			return nil, err
		}
	}
	return nil, nil
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
