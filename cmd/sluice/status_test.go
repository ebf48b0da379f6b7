package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/wire"
)

// TestStatusCheck ends with what the worst is that it has found.
func TestStatusCheck(t *testing.T) {
	t.Parallel()
	rdb, prefix := redistest.Client(t), redistest.Prefix(t)
	if err := establish(t, rdb, prefix); err != nil {
		t.Fatal(err)
	}
	for id := range 2 {
		shard := wire.NewShard(prefix, id, 2)
		rdb.Set(t.Context(), shard.Owner(), "gateway-1", time.Hour)
		rdb.HSet(t.Context(), shard.Session(), wire.SessionID, "secret")
	}
	check := func(code int, want string) {
		t.Helper()
		var stdout, stderr output
		args := []string{"status", "--check", "--redis.url=redis://" + redistest.Addr(t), "--redis.prefix=" + prefix}
		got := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
		if got != code || stdout.String() != want || stderr.String() != "" {
			t.Errorf("status --check = %d, want %d; it says\n%s%s\nwant\n%s", got, code, stdout.String(), stderr.String(), want)
		}
	}
	check(0, "")
	if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: wire.NewShard(prefix, 0, 2).Stream(0), Values: []any{"event", "X"}}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.XGroupCreate(t.Context(), wire.NewShard(prefix, 0, 2).Stream(0), "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	check(exitWarning, "warning: group g has no worker\n")
	rdb.Del(t.Context(), wire.NewShard(prefix, 1, 2).Owner())
	check(exitCritical, "critical: shard 1 is held by no gateway\nwarning: group g has no worker\n")
}
