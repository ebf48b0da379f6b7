package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/resp"
	"github.com/sluicehq/sluice/internal/wire"
)

// A trimmer keeps a shard's streams within their bounds, on a timer of its own:
// XTRIM works when Redis is out of memory, and nothing inside MULTI does.
//
// An entry goes when it is older than Config.Keep and every group of its stream
// has acknowledged it and all before it. Where Redis has no room, or the streams
// are over a hard bound, its age does not matter; if that is not enough for the
// bound, the oldest go, read or not, and each group's loss is told.
//
// A group that no worker has served for Config.AbandonAfter counts as if it did
// not exist. A stream without a group has no one who could have read it: only the
// hard bounds apply to it, so that a first worker finds what came before it.
type trimmer struct {
	rdb     redis.UniversalClient
	keys    wire.Shard
	cfg     Config
	metrics *metrics
	logger  *slog.Logger
	streams []string
	store   *cache.Store // its messages are bounded here too
	fence   string
	stalled func() error // why commits do not get through

	groups ledger
}

// maxCut is how many entries a call of cutScript takes at most: it holds Redis up
// meanwhile.
const maxCut = 10_000

func (t *trimmer) run(ctx context.Context) error {
	t.groups.begin(t)
	defer t.groups.end()
	ticker := time.NewTicker(t.cfg.TrimEvery)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := errors.Join(t.pass(ctx), t.store.Trim(ctx, t.rdb, t.fence))
		if err != nil && !failing && ctx.Err() == nil {
			t.logger.Warn("can't trim the streams; trying again", "err", err)
		}
		failing = err != nil
		t.metrics.trimPasses.Inc()
	}
}

// pass trims the streams as far as they have to be. A stream that can't be looked
// at, or trimmed, does not keep the others from it.
func (t *trimmer) pass(ctx context.Context) error {
	looks, err := t.look(ctx)
	errs := []error{err, t.groups.note(ctx, looks)}
	if len(looks) == 0 {
		return errors.Join(errs...)
	}
	errs = append(errs, t.cut(ctx, t.toFloors(looks, t.cfg.Keep)))
	if t.share(looks) < 1 || isFull(t.stalled()) {
		if err = t.cut(ctx, t.toFloors(looks, 0)); err == nil {
			looks, err = t.look(ctx)
		}
		errs = append(errs, err)
		if share := t.share(looks); share < 1 && err == nil {
			cuts := make(map[int]target)
			for i, l := range looks {
				cuts[i] = target{keep: int64(float64(l.entries) * share)}
			}
			errs = append(errs, t.cut(ctx, cuts))
		}
	}
	t.groups.tell()
	return errors.Join(errs...)
}

// isFull reports whether err is Redis' word for that it is out of memory.
func isFull(err error) bool {
	var reply resp.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "OOM")
}

// look looks at all streams. It returns those it could look at, by their index.
func (t *trimmer) look(ctx context.Context) (map[int]look, error) {
	all := make([]int, len(t.streams))
	for i := range all {
		all[i] = i
	}
	looks := make(map[int]look)
	err := t.scripts(ctx, lookScript, all, func(i int) ([]string, []any) {
		return []string{t.streams[i]}, nil
	}, func(i int, reply []any) (err error) {
		l, err := parseLook(reply)
		if err == nil {
			looks[i] = l
		}
		return err
	})
	if err != nil {
		return looks, fmt.Errorf("look at the streams: %w", err)
	}
	return looks, nil
}

// share returns the part of their entries that the streams may keep under the hard
// bounds: every stream gives up the same part. It is 1 if they are within them.
func (t *trimmer) share(looks map[int]look) float64 {
	var entries, bytes int64
	for _, l := range looks {
		entries += l.entries
		bytes += l.bytes
	}
	t.metrics.streamLength.Set(float64(entries))
	t.metrics.streamBytes.Set(float64(bytes))
	share := 1.0
	if entries > t.cfg.MaxLength {
		share = float64(t.cfg.MaxLength) / float64(entries)
	}
	if bytes > t.cfg.MaxBytes {
		share = min(share, float64(t.cfg.MaxBytes)/float64(bytes))
	}
	return share
}

// A target is how far a stream is to be cut.
type target struct {
	keep  int64    // entries that stay in any case
	below streamID // only entries below go; zero: any
}

// toFloors returns the targets for what all groups that count have acknowledged and
// that is older than keep.
func (t *trimmer) toFloors(looks map[int]look, keep time.Duration) map[int]target {
	targets := make(map[int]target)
	for i, l := range looks {
		floor, served := streamID{ms: math.MaxUint64}, false
		for _, g := range l.groups {
			if !t.groups.abandoned(g.name, l.now) {
				floor, served = least(floor, g.floor()), true
			}
		}
		if served && l.entries > 0 {
			targets[i] = target{below: least(floor, streamID{ms: uint64(l.now.Add(-keep).UnixMilli())})}
		}
	}
	return targets
}

// cut cuts streams to their targets. What groups have lost by it is entered in the
// ledger.
func (t *trimmer) cut(ctx context.Context, targets map[int]target) error {
	for len(targets) > 0 {
		todo := make([]int, 0, len(targets))
		for i := range targets {
			todo = append(todo, i)
		}
		err := t.scripts(ctx, cutScript, todo, func(i int) ([]string, []any) {
			below := ""
			if targets[i].below != (streamID{}) {
				below = targets[i].below.String()
			}
			return []string{t.streams[i], t.keys.Groups()}, []any{targets[i].keep, below, maxCut}
		}, func(i int, reply []any) error {
			c, err := parseCut(reply)
			if err != nil {
				return err
			}
			t.metrics.trimmed.Add(float64(c.went))
			t.groups.enter(c)
			if c.went < maxCut {
				delete(targets, i)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("trim: %w", err)
		}
	}
	return nil
}
