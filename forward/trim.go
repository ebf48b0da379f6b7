package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/internal/wire"
)

// A trimmer keeps a shard's streams within their bounds, on a timer of its own:
// XTRIM works when Redis is out of memory, and nothing inside MULTI does.
//
// An entry goes when it is older than Config.Keep and every group of its stream
// has acknowledged it. A stream without a group has no one who could have read
// it: only the hard bounds apply to it, so that a first worker finds what came
// before it. The hard bounds take the oldest, read or not.
type trimmer struct {
	rdb     redis.UniversalClient
	keys    wire.Shard
	cfg     Config
	metrics *metrics
	logger  *slog.Logger
	streams []string
	store   *cache.Store // its messages are bounded here too
	fence   string
}

// trimLimit bounds the entries one command takes, far above Redis's own default
// (100 nodes), which a busy lane outgrows.
const trimLimit = 1_000_000

func (t *trimmer) run(ctx context.Context) error {
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

// A look is what one pass sees of a stream.
type look struct {
	length *redis.IntCmd
	memory *redis.IntCmd
	groups *redis.XInfoGroupsCmd

	pending map[string]*redis.XPendingCmd
}

// pass looks at all streams in two round trips and trims them in a third.
func (t *trimmer) pass(ctx context.Context) error {
	pipe := t.rdb.Pipeline()
	clock := pipe.Time(ctx)
	looks := make([]look, len(t.streams))
	for i, key := range t.streams {
		looks[i] = look{length: pipe.XLen(ctx, key), memory: pipe.MemoryUsage(ctx, key), groups: pipe.XInfoGroups(ctx, key)}
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return fmt.Errorf("look at the streams: %w", err)
	}
	now, err := clock.Result()
	if err != nil {
		return fmt.Errorf("look at the streams: %w", err)
	}
	pipe = t.rdb.Pipeline()
	for i, key := range t.streams {
		looks[i].pending = make(map[string]*redis.XPendingCmd)
		for _, group := range looks[i].groups.Val() {
			looks[i].pending[group.Name] = pipe.XPending(ctx, key, group.Name)
		}
	}
	if pipe.Len() > 0 {
		if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
			return fmt.Errorf("look at the groups: %w", err)
		}
	}
	return t.trim(ctx, looks, now)
}

func (t *trimmer) trim(ctx context.Context, looks []look, now time.Time) error {
	var entries, bytes int64
	for i := range looks {
		entries += looks[i].length.Val()
		bytes += looks[i].memory.Val()
	}
	t.metrics.streamEntries.Set(float64(entries))
	t.metrics.streamBytes.Set(float64(bytes))
	// Over a hard bound every stream gives up the same part of its length.
	part := 1.0
	if entries > t.cfg.MaxLength {
		part = float64(t.cfg.MaxLength) / float64(entries)
	}
	if bytes > t.cfg.MaxBytes {
		part = min(part, float64(t.cfg.MaxBytes)/float64(bytes))
	}
	oldest := streamID{ms: uint64(now.Add(-t.cfg.Keep).UnixMilli())}
	pipe := t.rdb.Pipeline()
	for i, key := range t.streams {
		length := looks[i].length.Val()
		if length == 0 {
			continue
		}
		if floor, ok := looks[i].floor(); ok {
			pipe.XTrimMinIDApprox(ctx, key, least(floor, oldest).String(), trimLimit)
		}
		if part < 1 {
			pipe.XTrimMaxLenApprox(ctx, key, int64(float64(length)*part), trimLimit)
		}
	}
	if pipe.Len() == 0 {
		return nil
	}
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if n, ok := cmd.(*redis.IntCmd); ok && n.Err() == nil {
			t.metrics.trimmed.Add(float64(n.Val()))
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("trim: %w", err)
	}
	return nil
}

// floor returns the id below which every group has acknowledged everything. ok
// is false if there is no group, or one could not be looked at.
func (l *look) floor() (floor streamID, ok bool) {
	for i, group := range l.groups.Val() {
		id, err := parseStreamID(group.LastDeliveredID)
		if err != nil {
			return streamID{}, false
		}
		pending, err := l.pending[group.Name].Result()
		if err != nil {
			return streamID{}, false
		}
		if pending.Count > 0 {
			lowest, err := parseStreamID(pending.Lower)
			if err != nil {
				return streamID{}, false
			}
			id = least(id, lowest)
		}
		if i == 0 {
			floor = id
		}
		floor, ok = least(floor, id), true
	}
	return floor, ok
}

// A streamID is a stream's id, in the order of Redis.
type streamID struct{ ms, seq uint64 }

func (id streamID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func least(a, b streamID) streamID {
	if a.ms < b.ms || (a.ms == b.ms && a.seq < b.seq) {
		return a
	}
	return b
}

func parseStreamID(text string) (streamID, error) {
	ms, seq, _ := strings.Cut(text, "-")
	var (
		id  streamID
		err error
	)
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return streamID{}, fmt.Errorf("stream id %q: %w", text, err)
	}
	if seq != "" {
		if id.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
			return streamID{}, fmt.Errorf("stream id %q: %w", text, err)
		}
	}
	return id, nil
}
