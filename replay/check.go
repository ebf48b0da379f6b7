package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

// ErrServer is wrapped by Run's error for a Redis that can't serve a worker: it is
// too old, or the user that the worker connects as may not do what it has to.
var ErrServer = errors.New("this Redis can't serve a worker")

// check returns an error that wraps ErrServer if a worker can't work with the
// server. What it can't find out it does not hold against it.
func (w *Worker) check(ctx context.Context, t wire.Topology) error {
	if info, err := w.control.Info(ctx, "server").Result(); err == nil {
		if version, old := tooOld(info); old {
			return fmt.Errorf("replay: %w: it is version %s, want 6.2 or later", ErrServer, version)
		}
	}
	denied := w.denied(ctx, t)
	if len(denied) > 0 {
		return fmt.Errorf("replay: %w: its user may not run %s (ACL LIST shows the rules; keys begin with %s or {%s:)",
			ErrServer, strings.Join(denied, ", "), w.config.Prefix+":", w.config.Prefix)
	}
	return nil
}

// tooOld reports whether an INFO names a version before 6.2. Valkey says there
// which Redis it is compatible with.
func tooOld(info string) (version string, old bool) {
	for line := range strings.Lines(info) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:")
		if !ok {
			continue
		}
		var major, minor int
		if n, _ := fmt.Sscanf(text, "%d.%d", &major, &minor); n == 2 {
			return text, major < 6 || major == 6 && minor < 2
		}
	}
	return "", false
}

// denied returns the commands, and the script commands, that the user may not run.
// Each is called so that it does nothing: on keys that do not exist.
func (w *Worker) denied(ctx context.Context, t wire.Topology) []string {
	shard := wire.NewShard(w.config.Prefix, 0, t.Shards)
	group := w.config.Group
	stream, hash, lease := shard.Stream(t.Lanes), shard.Progress(group, t.Lanes, false), shard.Lease(group, t.Lanes)
	calls := [][]any{
		{"XREADGROUP", "GROUP", group, "check", "COUNT", 1, "STREAMS", stream, ">"},
		{"XACK", stream, group, "0-1"},
		{"XPENDING", stream, group},
		{"XCLAIM", stream, group, "check", 0, "0-1", "JUSTID"},
		{"XRANGE", stream, "-", "-"},
		{"XGROUP", "CREATE", stream, group, "0"}, // without MKSTREAM
		{"XINFO", "CONSUMERS", stream, group},
		{"XADD", stream, "NOMKSTREAM", "*", "a", "b"},
		{"XTRIM", stream, "MAXLEN", 0},
		{"HGETALL", wire.TopologyKey(w.config.Prefix)},
		{"HMGET", hash, "a"},
		{"HGET", hash, "a"},
		{"HLEN", hash},
		{"HDEL", hash, "a"},
		{"GET", lease},
		{"SET", lease, "a", "XX", "PX", 1},
		{"PEXPIRE", lease, 1},
		{"DEL", lease},
		{"EVAL", "return 1", 0},
		{"EVALSHA", strings.Repeat("0", 40), 1, lease},
		{"CLIENT", "ID"},
		{"CLIENT", "UNBLOCK", 0},
		{"TIME"},
	}
	return redisclient.Denied(ctx, w.control, calls)
}
