package forward

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// crewScript says that a process lives, and counts those that do.
//
//	KEYS  gateways
//	ARGV  process, ttl (ms)
//	→ processes that live, the caller among them
//
// The clock is the server's. TIME in a script that writes needs Redis 5.
var crewScript = redis.NewScript(`
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return redis.call('ZCARD', KEYS[1])`)

// A crew is the processes that may hold the same shards. It sees to it that each
// takes at most its even share while the others live. It gives nothing back that
// is held: a shard moves when its holder ends.
type crew struct {
	rdb     redis.UniversalClient
	key     string
	process string
	shards  int
	ttl     time.Duration
	logger  *slog.Logger
	known   chan struct{} // closed once live is known

	mu   sync.Mutex // guards what follows
	live int        // processes; 0: not known yet
	held int        // shards held, or being taken over
}

func newCrew(rdb redis.UniversalClient, cfg Config) *crew {
	h := fnv.New64a()
	for _, id := range cfg.ShardIDs {
		fmt.Fprintf(h, "%d,", id)
	}
	return &crew{
		rdb: rdb, key: wire.GatewaysKey(cfg.Prefix, strconv.FormatUint(h.Sum64(), 36)), process: cfg.Process,
		shards: len(cfg.ShardIDs), ttl: cfg.OwnerTTL, logger: cfg.Logger,
		known: make(chan struct{}),
	}
}

// run says that this process lives, until ctx is cancelled.
func (c *crew) run(ctx context.Context) error {
	ticker := time.NewTicker(c.ttl / 3)
	defer ticker.Stop()
	failing := false
	for {
		live, err := crewScript.Run(ctx, c.rdb, []string{c.key}, c.process, c.ttl.Milliseconds()).Int()
		switch {
		case ctx.Err() != nil:
			c.leave(ctx)
			return nil
		case err == nil:
			c.count(live)
		case !failing:
			c.logger.Warn("can't tell the other gateways that this one lives; trying again", "err", err)
		}
		failing = err != nil
		select {
		case <-ticker.C:
		case <-ctx.Done():
			c.leave(ctx)
			return nil
		}
	}
}

// count notes how many processes live.
func (c *crew) count(live int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == 0 {
		close(c.known)
	}
	c.live = live
}

func (c *crew) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	c.rdb.ZRem(ctx, c.key, c.process) // else it runs out by itself
}

// reserve asks for a place for one shard more. urgent is set for a shard that
// nobody has taken for a while: then the share does not count.
func (c *crew) reserve(urgent bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == 0 {
		return false
	}
	if share := (c.shards + c.live - 1) / c.live; c.held >= share && !urgent {
		return false
	}
	c.held++
	return true
}

// release gives a place back.
func (c *crew) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held--
}
