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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/admin"
	"github.com/sluicehq/sluice/internal/redisclient"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := config.Load(args)
	if err == nil {
		err = cfg.RequireToken()
	}
	var usage *config.UsageError
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprint(stdout, "gateway forwards a bot's dispatches from Discord into Redis streams.\n\n", config.Usage())
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
	if err := serve(ctx, cfg, logger); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return 0 // stopped while it was starting
		}
		logger.Error("the gateway ends", "err", err)
		return 1
	}
	logger.Info("stopped")
	return 0
}

// serve runs the gateway until ctx is cancelled.
func serve(ctx context.Context, cfg *config.Config, logger *slog.Logger) error {
	registry := admin.NewRegistry()
	group, ctx := errgroup.WithContext(ctx)
	var forwarder atomic.Pointer[forward.Forwarder]
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	if cfg.Admin.Addr != "" {
		server, err := admin.Listen(cfg.Admin.Addr, registry, func(ctx context.Context) error {
			f := forwarder.Load()
			if f == nil {
				return errors.New("starting: waiting for Redis or Discord")
			}
			return f.Ready(ctx)
		})
		if err != nil {
			return err
		}
		logger.Info("serving metrics and health", "addr", server.Addr())
		group.Go(func() error { return server.Run(serving) })
	}
	group.Go(func() error {
		defer stopServing() // answers until the last commit
		f, err := start(ctx, cfg, logger, registry)
		if err != nil {
			return err
		}
		forwarder.Store(f)
		return f.Run(ctx)
	})
	return group.Wait()
}

// start waits for Redis and Discord, and agrees on the topology.
func start(ctx context.Context, cfg *config.Config, logger *slog.Logger, registry prometheus.Registerer) (*forward.Forwarder, error) {
	application, err := gateway.ApplicationID(cfg.Discord.Token)
	if err != nil {
		return nil, err
	}
	rdb, err := redisclient.New(cfg.Redis.URL)
	if err != nil {
		return nil, err
	}
	if err := redisclient.Check(ctx, rdb, logger); err != nil {
		return nil, err
	}
	info, err := discord(ctx, cfg, logger)
	if err != nil {
		return nil, err
	}
	topology, err := forward.Establish(ctx, rdb, forward.Plan{
		Prefix: cfg.Redis.Prefix, Application: application, Shards: cfg.Discord.Shards, Lanes: cfg.Forward.Lanes, Logger: logger,
		Recommend: func(context.Context) (int, error) { return info.Shards, nil },
	})
	if err != nil {
		return nil, err
	}
	logger.Info("topology", "application", topology.Application, "shards", topology.Shards, "lanes", topology.Lanes)
	shard := cfg.GatewayConfig()
	shard.URL, shard.MaxConcurrency = info.URL, info.MaxConcurrency
	pipeline := cfg.ForwardConfig()
	pipeline.Topology, pipeline.Logger, pipeline.Metrics = topology, logger, registry
	return forward.New(rdb, shard, pipeline)
}

// discord asks Discord how to connect, and waits while it can't be reached.
func discord(ctx context.Context, cfg *config.Config, logger *slog.Logger) (gateway.BotInfo, error) {
	wait, failing := time.Second, false
	for {
		info, err := gateway.Bot(ctx, nil, cfg.Discord.APIURL, cfg.Discord.Token)
		switch {
		case err == nil:
			if failing {
				logger.Info("discord answers")
			}
			return info, nil
		case ctx.Err() != nil:
			return info, ctx.Err()
		case errors.Is(err, gateway.ErrToken):
			return info, err
		case !failing:
			failing = true
			logger.Error("discord does not answer; trying again", "err", err)
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return info, ctx.Err()
		}
		wait = min(2*wait, time.Minute)
	}
}
