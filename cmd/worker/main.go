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
	"os/signal"
	"syscall"

	"github.com/sluicehq/sluice/internal/program"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(program.Main(ctx, os.Args[1:], os.Stdout, os.Stderr, program.Program{
		About: "worker prints the dispatches that a gateway forwards.",
		Run:   run,
	}))
}

func run(ctx context.Context, p *program.Process) error {
	rdb, err := p.Redis(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	registry := listener.New()
	out := &printer{out: p.Stdout}
	registry.Add(typed(out)...)
	registry.Add(listener.Handle("notices", "sluice.>", out.notice))
	settings := p.Config.ReplayConfig()
	settings.Logger, settings.Metrics = p.Log, p.Metrics
	worker, err := replay.New(rdb, registry, settings)
	if err != nil {
		return err
	}
	p.SetReady(func(context.Context) error { return worker.Ready() })
	return worker.Run(ctx)
}
