// Worker prints what a worker gets: a line for each dispatch, decoded by a typed
// listener of its kind, with what an edited or deleted message was before. It
// shows that a deployment works, and how it is read.
//
// It is configured as the gateway is, by a file, the environment and flags (see
// --help and docs/configuration.md), and needs no token. SIGINT and SIGTERM stop
// it cleanly. It ends with 0 after a clean stop, 1 after a failure, 2 if it is
// configured wrongly.
package main

import (
	"context"
	"os"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/listener"
)

func main() {
	sluice.Worker(func(_ context.Context, env *sluice.Env) error {
		out := &printer{out: os.Stdout}
		for i, l := range typed(out) { // one for each type of the table, in its order
			forwarded, err := forwards(env.Events, dispatch.Types[i].Name)
			if err != nil {
				return err
			}
			if forwarded {
				env.Add(l)
			}
		}
		env.Add(listener.Handle("notices", "sluice.>", out.notice))
		return nil
	})
}

// forwards reports whether one of the patterns is for a type; none is for all.
func forwards(patterns []string, eventType string) (bool, error) {
	for _, text := range patterns {
		pattern, err := dispatch.Compile(text)
		if err != nil {
			return false, err
		}
		if pattern.Match(eventType) {
			return true, nil
		}
	}
	return len(patterns) == 0, nil
}
