package config

import (
	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/replay"
)

// GatewayConfig returns the part of a shard's configuration that all shards
// share. The caller sets URL, Shard, Shards, MaxConcurrency and Pacer, and
// Logger and Metrics.
func (c *Config) GatewayConfig() gateway.Config {
	return gateway.Config{
		Token:         c.Discord.Token,
		Intents:       c.Discord.Intents,
		Compress:      c.Discord.Compress,
		Presence:      c.Discord.Presence,
		MaxFrameBytes: c.Gateway.MaxFrameBytes,
	}
}

// CacheConfig returns the cache's configuration; MemoryBytes is for all shards of
// the process.
func (c *Config) CacheConfig() cache.Config {
	return cache.Config{
		Off:                c.Cache.Off,
		MemoryBytes:        c.Cache.MemoryBytes,
		MessageAge:         c.Cache.MessageAge,
		MessagesPerChannel: c.Cache.MessagesPerChannel,
	}
}

// ForwardConfig returns the pipeline's configuration, cache included. The caller
// sets Topology, Logger and Metrics.
func (c *Config) ForwardConfig() forward.Config {
	return forward.Config{
		Prefix:       c.Redis.Prefix,
		ShardIDs:     c.Discord.ShardIDs,
		Events:       c.Forward.Events,
		Codec:        c.Forward.Codec,
		Keep:         c.Forward.Keep,
		AbandonAfter: c.Forward.AbandonAfter,
		MaxLength:    c.Forward.MaxLength,
		MaxBytes:     c.Forward.MaxBytes,
		MaxPayload:   int(c.Forward.MaxPayload),
		BufferBytes:  c.Forward.BufferBytes,
		Cache:        c.CacheConfig(),
	}
}

// ReplayConfig returns a worker's configuration. The caller sets Logger and
// Metrics.
func (c *Config) ReplayConfig() replay.Config {
	return replay.Config{
		Prefix:          c.Redis.Prefix,
		Group:           c.Replay.Group,
		Start:           c.Replay.Start,
		Concurrency:     c.Replay.Concurrency,
		MaxInHand:       c.Replay.MaxInHand,
		MaxDeliveries:   c.Replay.MaxDeliveries,
		Backoff:         c.Replay.Backoff,
		BackoffMax:      c.Replay.BackoffMax,
		ListenerTimeout: c.Replay.ListenerTimeout,
		Lease:           c.Replay.Lease,
		DrainTimeout:    c.Replay.DrainTimeout,
		DeadLength:      c.Replay.DeadLength,
		DeadAge:         c.Replay.DeadAge,
		Expire:          c.Replay.Expire,
		Off:             c.Replay.Off,
		Events:          c.Forward.Events,
	}
}
