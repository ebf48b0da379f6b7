package redisclient

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Denied returns the commands among calls that the client's user may not run, in
// their order, each once: "XADD", and "XINFO GROUPS" of a container. Each call is
// a command with its arguments, made so that it does nothing (on keys that do not
// exist, say), because it is run. What can't be found out is not held against the
// server: other errors count as allowed.
//
// Redis checks rights before anything else, a command's keys included, so a call
// should be on a key of the kind that is meant.
func Denied(ctx context.Context, client redis.Cmdable, calls [][]any) (denied []string) {
	pipe := client.Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, args := range calls {
		cmds[i] = pipe.Do(ctx, args...)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	seen := make(map[string]bool)
	for i, cmd := range cmds {
		if !redis.HasErrorPrefix(cmd.Err(), "NOPERM") {
			continue
		}
		name := fmt.Sprint(calls[i][0])
		switch name {
		case "XGROUP", "XINFO", "CLIENT", "MEMORY", "SCRIPT":
			name += " " + fmt.Sprint(calls[i][1])
		}
		if !seen[name] {
			seen[name] = true
			denied = append(denied, name)
		}
	}
	return denied
}
