package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/wire"
)

// A Publisher appends events of one's own to a deployment's streams, where
// listeners take them like Discord's. Safe for concurrent use.
type Publisher struct {
	rdb      redis.UniversalClient
	prefix   string
	topology Topology
}

// NewPublisher returns a publisher for a deployment: the prefix of its keys
// (empty: DefaultPrefix) and its topology, which must be recorded already.
func NewPublisher(rdb redis.UniversalClient, prefix string, topology Topology) (*Publisher, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if rdb == nil || topology.Shards < 1 || topology.Lanes < 1 {
		return nil, fmt.Errorf("forward: publisher for %d shards of %d lanes: want a client, and at least 1 of each", topology.Shards, topology.Lanes)
	}
	return &Publisher{rdb: rdb, prefix: prefix, topology: topology}, nil
}

// Publish appends an event and returns its id: <shard>/<lane>/<stream id>. name
// is a dotted subject of one's own ("orders.created"), not a Discord type and
// not below "sluice". Events with the same key are in the same lane, in the
// order in which their calls returned; with a guild's id as the key they are in
// the lane of the guild's dispatches. payload is marshalled as JSON;
// json.RawMessage goes as it is.
//
// The event is appended at least once: while Redis does not answer Publish tries
// again until ctx ends, and a reply that is lost may leave two of it.
func (p *Publisher) Publish(ctx context.Context, name, key string, payload any) (id string, err error) {
	if err := dispatch.ValidSubject(name); err != nil {
		return "", fmt.Errorf("forward: publish: %w", err)
	}
	if _, discord := dispatch.TypeOf(name); discord || dispatch.IsType(name) {
		return "", fmt.Errorf("forward: publish %q: that is a dispatch of Discord's; choose a name of your own", name)
	}
	if name == strings.TrimSuffix(wire.EventSpecialPrefix, ".") || strings.HasPrefix(name, wire.EventSpecialPrefix) {
		return "", fmt.Errorf("forward: publish %q: names below %q are the gateway's", name, wire.EventSpecialPrefix)
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return "", fmt.Errorf("forward: publish %q: payload: %w", name, err)
	}
	shard := wire.NewShard(p.prefix, p.shardOf(key), p.topology.Shards)
	lane := wire.Lane([]byte(key), p.topology.Lanes)
	entry := &wire.Entry{Event: name, Payload: text, Shard: shard.ID, Received: time.Now().UnixMilli(), Codec: wire.JSON}
	args := entry.AppendArgs([]any{"XADD", shard.Stream(lane), "*"})
	var wait backoff
	for {
		id, err := p.rdb.Do(ctx, args...).Text()
		if err == nil {
			return strconv.Itoa(shard.ID) + "/" + strconv.Itoa(lane) + "/" + id, nil
		}
		if isReply(err) && !passing(err) {
			return "", fmt.Errorf("forward: publish %q: %w", name, err)
		}
		if wait.wait(ctx) != nil {
			return "", fmt.Errorf("forward: publish %q: %w", name, errors.Join(ctx.Err(), err))
		}
	}
}

// passing reports whether Redis will take later what it refuses now.
func passing(err error) bool {
	for _, prefix := range [...]string{"LOADING", "READONLY", "OOM", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// shardOf returns the shard of a key: a guild's own, and for another key one
// that depends on its text alone.
func (p *Publisher) shardOf(key string) int {
	if shard, ok := wire.ShardOf(key, p.topology.Shards); ok {
		return shard
	}
	if key == "" {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(key))
	return int(h.Sum64() % uint64(p.topology.Shards))
}
