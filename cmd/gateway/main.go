// Gateway holds a bot's connections to Discord and forwards every dispatch into
// Redis streams, from which workers take them.
//
// It is configured by a file, the environment and flags (see --help and
// docs/configuration.md). Several processes with the same configuration stand by
// for each other. SIGINT and SIGTERM stop it cleanly: what was received is
// committed, and the sessions stay resumable. It ends with 0 after a clean stop,
// 1 after a failure, 2 if it is configured wrongly.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/sluicehq/sluice/internal/program"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(program.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, program.Program{
		About:      "gateway forwards a bot's dispatches from Discord into Redis streams.",
		NeedsToken: true,
		Run:        run,
	}))
}

func run(ctx context.Context, p *program.Process) error {
	rdb, err := p.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	forwarder, err := p.Forwarder(ctx, rdb)
	if err != nil {
		return err
	}
	p.SetReady(forwarder.Ready)
	return forwarder.Run(ctx)
}
