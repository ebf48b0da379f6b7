package forward

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

// ErrRights is wrapped by Establish's error for a Redis whose user may not do
// what a gateway has to. The text names the commands.
var ErrRights = errors.New("the user that the gateway connects to redis as may not run")

// checkRights returns an error that wraps ErrRights if commands are denied that a
// gateway sends. A right that is taken away later does not end a gateway: it
// waits, is not ready, and goes on when it has it again.
func checkRights(ctx context.Context, rdb redis.Cmdable, prefix string) error {
	// A shard that no topology has: nothing is at its keys.
	shard := wire.NewShard(prefix, 0, 0)
	stream, hash, list, set, owner := shard.Stream(0), shard.Session(), shard.Cache("check"), shard.Cache("unavailable"), shard.Owner()
	denied := redisclient.Denied(ctx, rdb, [][]any{
		{"WATCH", hash}, {"EXEC"},
		{"HGETALL", wire.TopologyKey(prefix)},
		{"EVALSHA", strings.Repeat("0", 40), 1, hash},
		{"HVALS", wire.WorkersKey(prefix, "check")}, {"HINCRBY", shard.Groups(), "a", "no number"},
		{"HMGET", hash, "a"}, {"HGET", hash, "a"}, {"HGETALL", list}, {"HKEYS", list}, {"HLEN", list}, {"HDEL", list, "a"},
		{"XTRIM", stream, "MAXLEN", 0}, {"XADD", stream, "NOMKSTREAM", "*", "a", "b"}, {"XLEN", stream}, {"XRANGE", stream, "-", "-"},
		{"XINFO", "GROUPS", stream}, {"XPENDING", stream, "check"}, {"MEMORY", "USAGE", stream}, {"TYPE", stream},
		{"SMEMBERS", set}, {"SREM", set, "a"},
		{"ZRANGE", list, 0, 0}, {"ZREM", list, "a"}, {"ZCARD", list}, {"ZREMRANGEBYSCORE", list, 1, 0},
		{"GET", owner}, {"SET", owner, "a", "XX", "PX", 1}, {"PEXPIRE", owner, 1}, {"PTTL", owner}, {"DEL", owner}, {"UNLINK", owner},
		{"TIME"},
	})
	if len(denied) == 0 {
		return nil
	}
	return fmt.Errorf("forward: %w %s (ACL LIST shows the rules, docs/operating.md what is needed; keys begin with %s: or {%s:)",
		ErrRights, strings.Join(denied, ", "), prefix, prefix)
}
