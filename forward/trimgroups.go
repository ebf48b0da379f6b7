package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

const (
	// restartTime is how long a group may be without a worker before it is named:
	// its workers are being restarted.
	restartTime = time.Minute
	// remindAfter is how often a condition that lasts is logged again.
	remindAfter = time.Minute
)

// A ledger is what a shard's owner knows of the groups that read it: when a worker
// has last served each, where it stands, and what has been trimmed before it had
// it. What must outlast the process is in the hash Shard.Groups too.
type ledger struct {
	*trimmer
	groups map[string]*group
	loaded bool // the hash was read
}

// A group is one consumer group of the shard, over all its streams.
type group struct {
	served time.Time // Redis' time at which a live worker was last seen
	stored time.Time // served as it is in the hash
	named  bool      // that nobody serves it was logged
	given  bool      // that it is abandoned was logged

	losing missed    // not logged yet
	lost   missed    // since it began to lose entries
	since  time.Time // when that was; zero: it loses none
	again  time.Time // when it may be logged next
	latest time.Time // of its losses
}

func (l *ledger) begin(t *trimmer) {
	l.trimmer = t
	l.groups = make(map[string]*group)
	l.metrics.lengthLimit.Set(float64(l.cfg.MaxLength))
	l.metrics.bytesLimit.Set(float64(l.cfg.MaxBytes))
}

// end takes the groups' numbers back: they are the next owner's to tell.
func (l *ledger) end() {
	for name := range l.groups {
		l.metrics.groups.hide(name)
	}
	for _, gauge := range []prometheus.Gauge{l.metrics.streamLength, l.metrics.streamBytes, l.metrics.lengthLimit, l.metrics.bytesLimit} {
		gauge.Set(0)
	}
}

// load reads what is noted of the groups.
func (l *ledger) load(ctx context.Context) error {
	if l.loaded {
		return nil
	}
	notes, err := l.rdb.HGetAll(ctx, l.keys.Groups()).Result()
	if err != nil {
		return fmt.Errorf("notes of the groups: %w", err)
	}
	for field, value := range notes {
		name, ok := strings.CutPrefix(field, wire.GroupServed)
		ms, err := strconv.ParseInt(value, 10, 64)
		if ok && err == nil {
			l.groups[name] = &group{served: time.UnixMilli(ms), stored: time.UnixMilli(ms)}
		}
	}
	l.loaded = true
	return nil
}

// note takes in a look at all streams: which groups there are, who serves them, and
// how far behind they are.
func (l *ledger) note(ctx context.Context, looks map[int]look) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	standings := make(map[string]standing)
	var now time.Time
	for _, look := range looks {
		now = look.now
		for _, g := range look.groups {
			s := standings[g.name]
			s.add(&g, now)
			standings[g.name] = s
		}
	}
	living, err := l.living(ctx, standings, now)
	var writes []any
	for name, s := range standings {
		g := l.groups[name]
		if g == nil {
			g = &group{served: now} // from now on it is known whether it is served
			l.groups[name] = g
		}
		if living[name] {
			g.served = now
		}
		if now.Sub(g.served) < 0 { // Redis' clock has gone back
			g.served = now
		}
		if g.served.Sub(g.stored).Abs() >= time.Minute {
			writes = append(writes, wire.GroupServed+name, g.served.UnixMilli())
			g.stored = g.served
		}
		l.judge(name, g, now)
		l.metrics.groups.set(name, s, now.Sub(g.served), l.abandoned(name, now))
	}
	errs := []error{err}
	if len(writes) > 0 {
		if err := l.rdb.HSet(ctx, l.keys.Groups(), writes...).Err(); err != nil && !redis.HasErrorPrefix(err, "OOM") {
			errs = append(errs, fmt.Errorf("notes of the groups: %w", err))
		}
	}
	if len(looks) == len(l.streams) {
		errs = append(errs, l.forget(ctx, standings))
	}
	return errors.Join(errs...)
}

// living returns which groups have a worker that lives; one of which that can't be
// found out counts as served.
func (l *ledger) living(ctx context.Context, groups map[string]standing, now time.Time) (map[string]bool, error) {
	pipe := l.rdb.Pipeline()
	cmds := make(map[string]*redis.StringSliceCmd)
	for name := range groups {
		cmds[name] = pipe.HVals(ctx, wire.WorkersKey(l.cfg.Prefix, name))
	}
	if len(cmds) == 0 {
		return nil, nil
	}
	_, err := pipe.Exec(ctx)
	living := make(map[string]bool)
	for name, cmd := range cmds {
		living[name] = cmd.Err() != nil || slices.ContainsFunc(cmd.Val(), func(about string) bool {
			return wire.LivesUntil(about) > now.UnixMilli()
		})
	}
	if err != nil {
		return living, fmt.Errorf("workers of the groups: %w", err)
	}
	return living, nil
}

// abandoned reports whether entries are no longer kept for a group.
func (l *ledger) abandoned(name string, now time.Time) bool {
	g := l.groups[name]
	return g != nil && now.Sub(g.served) >= l.cfg.AbandonAfter
}

// judge names a group that nobody serves.
func (l *ledger) judge(name string, g *group, now time.Time) {
	idle := now.Sub(g.served)
	attrs := []any{"group", name, "unserved", idle.Round(time.Second), "abandon_after", l.cfg.AbandonAfter}
	switch {
	case idle >= l.cfg.AbandonAfter:
		if !g.given {
			l.logger.Warn("group is abandoned: no worker serves it, and entries are no longer kept for it; remove it, or start a worker", attrs...)
		}
		g.named, g.given = true, true
	case idle >= restartTime:
		if !g.named {
			l.logger.Warn("no worker serves the group; entries are kept for it", attrs...)
		}
		g.named = true
	case g.named:
		l.logger.Info("the group is served again", "group", name)
		g.named, g.given = false, false
	}
}

// forget drops what is known of groups that are in no stream any more.
func (l *ledger) forget(ctx context.Context, standings map[string]standing) error {
	var fields []string
	for name := range l.groups {
		if _, ok := standings[name]; ok {
			continue
		}
		delete(l.groups, name)
		l.metrics.groups.forget(name)
		for _, field := range []string{wire.GroupServed, wire.GroupUnread, wire.GroupUnacked, wire.GroupTrimmed} {
			fields = append(fields, field+name)
		}
	}
	if len(fields) == 0 {
		return nil
	}
	if err := l.rdb.HDel(ctx, l.keys.Groups(), fields...).Err(); err != nil {
		return fmt.Errorf("notes of groups that are gone: %w", err)
	}
	return nil
}

// enter takes in what groups have lost by a cut.
func (l *ledger) enter(c cut) {
	for name, n := range c.losses {
		l.metrics.groups.lost(name, n)
		g := l.groups[name]
		if g == nil { // it has come since the look
			g = &group{served: time.Now()}
			l.groups[name] = g
		}
		g.losing = g.losing.plus(n)
	}
}

// tell logs what groups have lost.
func (l *ledger) tell() {
	now := time.Now()
	for name, g := range l.groups {
		if g.given { // that is said already
			g.losing = missed{}
			continue
		}
		attrs := func(of missed) []any {
			return []any{slog.String("group", name), slog.Int64("unread", of.unread), slog.Int64("unacked", of.unacked)}
		}
		if g.losing != (missed{}) {
			g.latest = now
			if g.since.IsZero() {
				g.since, g.lost, g.again = now, missed{}, now
			}
		}
		switch {
		case g.since.IsZero():
		case g.losing != (missed{}) && !now.Before(g.again):
			g.lost = g.lost.plus(g.losing)
			g.again = now.Add(remindAfter)
			l.logger.Error("entries were trimmed before the group had acknowledged them: it is too far behind for forward.max_length or forward.max_bytes",
				append(attrs(g.losing), "since", g.since)...)
			g.losing = missed{}
		case now.Sub(g.latest) >= remindAfter:
			g.lost = g.lost.plus(g.losing)
			l.logger.Info("no more entries were trimmed before the group had acknowledged them", append(attrs(g.lost), "since", g.since, "last", g.latest)...)
			g.losing, g.since = missed{}, time.Time{}
		}
	}
}

// A standing is how far behind a group is, over the streams of a shard.
type standing struct {
	lag, pending   int64         // lag -1: not known
	behind, oldest time.Duration // since the oldest entry not read, the oldest pending one
}

func (s *standing) add(g *groupLook, now time.Time) {
	age := func(id streamID) time.Duration {
		if id == (streamID{}) {
			return 0
		}
		return max(0, now.Sub(time.UnixMilli(int64(id.ms))))
	}
	if s.lag < 0 || g.lag < 0 {
		s.lag = -1
	} else {
		s.lag += g.lag
	}
	s.pending += g.pending
	s.behind = max(s.behind, age(g.next))
	s.oldest = max(s.oldest, age(g.oldest))
}
