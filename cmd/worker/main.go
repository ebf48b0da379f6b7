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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/admin"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := config.Load(args)
	var usage *config.UsageError
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprint(stdout, "worker prints the dispatches that a gateway forwards.\n\n", config.Usage())
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, err)
		return usage.ExitCode()
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	logger := cfg.Log.Logger(stderr)
	redisclient.LogTo(logger)
	for _, warning := range cfg.Warnings {
		logger.Warn(warning)
	}
	if err := serve(ctx, cfg, logger, stdout); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return 0 // stopped while it was starting
		}
		logger.Error("the worker ends", "err", err)
		return 1
	}
	logger.Info("stopped")
	return 0
}

// serve runs the worker until ctx is cancelled.
func serve(ctx context.Context, cfg *config.Config, logger *slog.Logger, stdout io.Writer) error {
	metrics := admin.NewRegistry()
	group, ctx := errgroup.WithContext(ctx)
	var worker atomic.Pointer[replay.Worker]
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	if cfg.Admin.Addr != "" {
		server, err := admin.Listen(cfg.Admin.Addr, metrics, func(context.Context) error {
			w := worker.Load()
			if w == nil {
				return errors.New("starting: waiting for Redis")
			}
			return w.Ready()
		})
		if err != nil {
			return err
		}
		logger.Info("serving metrics and health", "addr", server.Addr())
		group.Go(func() error { return server.Run(serving) })
	}
	group.Go(func() error {
		defer stopServing() // answers until the last acknowledgement
		rdb, err := redisclient.New(cfg.Redis.URL)
		if err != nil {
			return err
		}
		if err := redisclient.Check(ctx, rdb, logger); err != nil {
			return err
		}
		registry := listener.New()
		p := &printer{out: stdout}
		registry.Add(typed(p)...)
		registry.Add(listener.Handle("notices", "sluice.>", p.notice))
		settings := cfg.ReplayConfig()
		settings.Logger, settings.Metrics = logger, metrics
		w, err := replay.New(rdb, registry, settings)
		if err != nil {
			return err
		}
		worker.Store(w)
		return w.Run(ctx)
	})
	return group.Wait()
}
