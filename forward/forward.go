// Package forward takes what the gateway's shards receive into Redis: each
// dispatch once, in order, with the state its entity had before, and the cache
// and the session's sequence in the same transaction.
//
// A [Forwarder] runs the shards of one process. A shard is owned by one process
// at a time; whoever takes it over gets its session record and a fence, a fresh
// random token without which nothing can be committed any more.
//
// The way of a dispatch: the shard's reader puts it into a queue; one goroutine
// scans it, looks up what was known, and adds it to a batch; another commits
// batches, one MULTI/EXEC each. While a commit is under way the next batch
// grows, so batches are as large as the load makes them.
package forward

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// Defaults of Config.
const (
	DefaultPrefix       = "sluice"
	DefaultKeep         = 10 * time.Minute
	DefaultAbandonAfter = 24 * time.Hour
	DefaultMaxLength    = 400_000
	DefaultMaxBytes     = 512 << 20
	DefaultMaxPayload   = 4 << 20
	DefaultBufferBytes  = 64 << 20
	DefaultOwnerTTL     = 5 * time.Second
	DefaultDrainTimeout = 25 * time.Second
	DefaultTrimEvery    = 5 * time.Second
)

// A batch is committed when it has this much, however busy Redis is.
const (
	maxBatch      = 256
	maxBatchBytes = 256 << 10
)

// Config of a Forwarder. Topology must be set (see Establish); the zero value
// of every other field works.
type Config struct {
	// Prefix of all keys; empty: DefaultPrefix.
	Prefix string
	// Topology as Establish returned it.
	Topology Topology
	// ShardIDs are the shards this process may hold; empty: all of the topology.
	ShardIDs []int
	// Process identifies this process as an owner; empty: host, pid and a random part.
	Process string

	// Events are patterns of the events that become entries; empty: all. The
	// cache sees every dispatch.
	Events []string
	// Codec of payload and state, wire.JSON or wire.Msgpack; empty: JSON. A value
	// that msgpack can't hold exactly goes as JSON: entries describe themselves.
	Codec string
	// Keep is the age below which an entry is not trimmed for being acked; 0:
	// DefaultKeep.
	Keep time.Duration
	// AbandonAfter is how long a group may be without a live worker before entries
	// are no longer kept for it; 0: DefaultAbandonAfter.
	AbandonAfter time.Duration
	// MaxLength and MaxBytes bound a shard's streams together, approximately;
	// 0: DefaultMaxLength entries, DefaultMaxBytes.
	MaxLength, MaxBytes int64
	// MaxPayload is the size in bytes above which an entry is slim; 0:
	// DefaultMaxPayload.
	MaxPayload int
	// BufferBytes bounds what waits for Redis, over all shards of the process;
	// when it is full the sockets are not read. 0: DefaultBufferBytes.
	BufferBytes int64
	// OwnerTTL is how long a shard stays a dead process's; 0: DefaultOwnerTTL.
	OwnerTTL time.Duration
	// DrainTimeout bounds the commits after a stop; 0: DefaultDrainTimeout.
	DrainTimeout time.Duration
	// TrimEvery is the time between two looks at the streams' bounds; 0:
	// DefaultTrimEvery.
	TrimEvery time.Duration

	// StartLimit asks Discord how many identifies are left of those allowed in a
	// day, how many those are, and when the count starts over. Near the end of
	// them shards wait for that. nil: nobody is asked.
	StartLimit func(context.Context) (remaining, total int, resetAfter time.Duration, err error)

	// Cache of each shard; its MemoryBytes are for the whole process.
	Cache cache.Config

	Logger  *slog.Logger          // nil: slog.Default()
	Metrics prometheus.Registerer // nil: none
}

// A Forwarder runs shards. Create it with New.
type Forwarder struct {
	cfg    Config
	shards []*shard
	rdb    redis.UniversalClient
	crew   *crew
}

// New returns a forwarder for the shards in cfg. Shard, Shards, Pacer, Logger
// and Metrics of gw are set for each of them. It does no I/O.
func New(rdb redis.UniversalClient, gw gateway.Config, cfg Config) (*Forwarder, error) {
	cfg, events, err := cfg.filled()
	if err != nil {
		return nil, fmt.Errorf("forward: %w", err)
	}
	f := &Forwarder{cfg: cfg, rdb: rdb, crew: newCrew(rdb, cfg)}
	buffer := newBudget(cfg.BufferBytes)
	if gw.Pacer == nil {
		gw.Pacer = &redisPacer{rdb: rdb, prefix: cfg.Prefix, limit: cfg.StartLimit, remaining: newIdentifyRemaining(cfg.Metrics), logger: cfg.Logger}
	}
	perShard := cfg.Cache
	perShard.Metrics = cfg.Metrics
	if perShard.MemoryBytes == 0 {
		perShard.MemoryBytes = cache.DefaultMemoryBytes
	}
	perShard.MemoryBytes = max(perShard.MemoryBytes/int64(len(cfg.ShardIDs)), 1)
	for _, id := range cfg.ShardIDs {
		s, err := newShard(rdb, gw, cfg, perShard, id, events, buffer, f.crew)
		if err != nil {
			return nil, fmt.Errorf("forward: shard %d: %w", id, err)
		}
		f.shards = append(f.shards, s)
	}
	return f, nil
}

// Run holds the shards until ctx is cancelled, then commits what is still
// buffered, hands the shards back and returns nil. A shard that Discord will not
// have (*gateway.FatalError) is given up, logged and told by Ready; Run returns
// an error once no shard is left, and at once for a fault of its own. It is called
// once.
func (f *Forwarder) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	living, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	group.Go(func() error { return f.crew.run(living) })
	ended := make(chan error, len(f.shards))
	for _, s := range f.shards {
		group.Go(func() error {
			err := s.run(ctx)
			var refused *gateway.FatalError
			if errors.As(err, &refused) {
				// The others go on: what Discord has against one it may not have
				// against them.
				s.refuse(err)
				ended <- err
				return nil
			}
			ended <- nil
			return err
		})
	}
	group.Go(func() error {
		defer leave() // it lives for as long as it may hold a shard
		var errs []error
		for range f.shards {
			errs = append(errs, <-ended)
		}
		return errors.Join(errs...)
	})
	return group.Wait()
}

// Ready reports why the process is not ready: Redis does not answer, or a shard
// it holds is not connected or stalled. A process that holds no shard is ready.
// Safe for concurrent use.
func (f *Forwarder) Ready(ctx context.Context) error {
	if err := f.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis does not answer: %w", err)
	}
	var errs []error
	for _, s := range f.shards {
		errs = append(errs, s.ready())
	}
	return errors.Join(errs...)
}

func (c Config) filled() (Config, []dispatch.Pattern, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		bad("prefix is %q, want one without braces: they are the cluster's hash tag", c.Prefix)
	}
	if c.Topology.Shards < 1 || c.Topology.Lanes < 1 {
		bad("topology has %d shards of %d lanes, want at least 1 of each", c.Topology.Shards, c.Topology.Lanes)
	}
	if len(c.ShardIDs) == 0 {
		for id := range c.Topology.Shards {
			c.ShardIDs = append(c.ShardIDs, id)
		}
	}
	for _, id := range c.ShardIDs {
		if id < 0 || id >= c.Topology.Shards {
			bad("shard id is %d, want one below the %d shards of the topology", id, c.Topology.Shards)
		}
	}
	if c.Process == "" {
		c.Process = processID()
	}
	switch c.Codec {
	case "":
		c.Codec = wire.JSON
	case wire.JSON, wire.Msgpack:
	default:
		bad("codec is %q, want %q or %q", c.Codec, wire.JSON, wire.Msgpack)
	}
	var events []dispatch.Pattern
	for _, text := range c.Events {
		pattern, err := dispatch.Compile(text)
		if err != nil {
			bad("events: %w", err)
			continue
		}
		events = append(events, pattern)
	}
	for _, n := range []struct {
		name  string
		value *int64
		zero  int64
	}{
		{"max length", &c.MaxLength, DefaultMaxLength},
		{"max bytes", &c.MaxBytes, DefaultMaxBytes},
		{"buffer bytes", &c.BufferBytes, DefaultBufferBytes},
		{"keep", (*int64)(&c.Keep), int64(DefaultKeep)},
		{"abandon after", (*int64)(&c.AbandonAfter), int64(DefaultAbandonAfter)},
		{"owner ttl", (*int64)(&c.OwnerTTL), int64(DefaultOwnerTTL)},
		{"drain timeout", (*int64)(&c.DrainTimeout), int64(DefaultDrainTimeout)},
		{"trim every", (*int64)(&c.TrimEvery), int64(DefaultTrimEvery)},
	} {
		if *n.value == 0 {
			*n.value = n.zero
		}
		if *n.value < 0 {
			bad("%s is %d, want a positive value", n.name, *n.value)
		}
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.MaxPayload < 0 {
		bad("max payload is %d, want a positive number of bytes", c.MaxPayload)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, events, errors.Join(errs...)
}

func processID() string {
	host, err := os.Hostname()
	if err != nil {
		host = runtime.GOOS
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}
