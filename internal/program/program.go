// Package program is what Sluice's programs have in common: they read one
// configuration, log in one way, serve metrics and health, and end with the same
// exit codes.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/admin"
	"github.com/sluicehq/sluice/internal/embedded"
	"github.com/sluicehq/sluice/internal/redisclient"
)

// A Program is one of Sluice's, or a user's.
type Program struct {
	// About begins the help: what the program does, in a sentence.
	About string
	// NeedsToken is set if it can't run without the bot's token.
	NeedsToken bool
	// Run does the work until ctx is cancelled. It returns nil after a clean stop.
	Run func(ctx context.Context, p *Process) error
}

// A Process is a program that runs.
type Process struct {
	Config  *config.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Stdout  io.Writer

	ready    atomic.Pointer[func(context.Context) error]
	embedded *embedded.Server // nil: none; it ends with Run
}

// SetReady gives the answer to /readyz; until then the process is not ready.
func (p *Process) SetReady(ready func(context.Context) error) { p.ready.Store(&ready) }

func (p *Process) isReady(ctx context.Context) error {
	if ready := p.ready.Load(); ready != nil {
		return (*ready)(ctx)
	}
	return errors.New("starting")
}

// ballast is memory that is reserved and never touched, so that it costs nothing
// but makes the collector wait until there is as much garbage. What is live in
// these programs is often a few MiB, and the collector would run after every few
// MiB of dispatches: up to a quarter of a worker's time.
const ballast = 64 << 20

// Main runs a program with its arguments (without its name) until it ends, or
// until ctx is cancelled, and returns its exit code: 0 after a clean stop, 1
// after a failure, config.ExitCode if it is configured or called wrongly.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, program Program) int {
	cfg, err := config.Load(args)
	if err == nil && program.NeedsToken {
		err = cfg.RequireToken()
	}
	var usage *config.UsageError
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprintf(stdout, "%s\n\n%s", program.About, config.Usage())
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, err)
		return usage.ExitCode()
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 1
	}
	reserved := make([]byte, ballast)
	defer runtime.KeepAlive(reserved)
	p := &Process{Config: cfg, Log: cfg.Log.Logger(stderr), Metrics: admin.NewRegistry(), Stdout: stdout}
	redisclient.LogTo(p.Log)
	for _, warning := range cfg.Warnings {
		p.Log.Warn(warning)
	}
	if err := p.serve(ctx, program); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return 0 // stopped while it was starting
		}
		if errors.As(err, &usage) { // what only the program itself could tell
			fmt.Fprintln(stderr, err)
			return usage.ExitCode()
		}
		p.Log.Error("the program ends", "err", err)
		return 1
	}
	p.Log.Info("stopped")
	return 0
}

// serve runs the program, and the admin server for as long as it runs.
func (p *Process) serve(ctx context.Context, program Program) error {
	group, ctx := errgroup.WithContext(ctx)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if addr := p.Config.Admin.Addr; addr != "" {
		server, err := admin.Listen(addr, p.Metrics, p.isReady)
		if err != nil {
			return err
		}
		p.Log.Info("serving metrics and health", "addr", server.Addr())
		group.Go(func() error { return server.Run(serving) })
	}
	group.Go(func() error {
		defer stop() // it answers until the work is done
		defer p.closeEmbedded()
		return program.Run(ctx, p)
	})
	return group.Wait()
}

// Redis returns a client of the configured Redis once it answers and is fit for
// use. The caller closes it. If the configuration says so, the server is one in
// the process, which is started by the call and ends behind Run; it is called
// once.
func (p *Process) Redis(ctx context.Context) (redis.UniversalClient, error) {
	if p.Config.Redis.Embedded() {
		return p.startEmbedded()
	}
	rdb, err := redisclient.New(p.Config.Redis.URL)
	if err != nil {
		return nil, err
	}
	if err := redisclient.Check(ctx, rdb, p.Log); err != nil {
		rdb.Close()
		return nil, err
	}
	return rdb, nil
}

func (p *Process) startEmbedded() (redis.UniversalClient, error) {
	server, err := embedded.Start(p.Config.Redis.EmbeddedAddr)
	if err != nil {
		return nil, fmt.Errorf("redis.embedded_addr: %w", err)
	}
	p.embedded = server
	p.Log.Warn("redis is embedded in this process, for trying out: nothing survives it", "addr", server.Addr())
	return redisclient.New("redis://" + server.Addr() + "/0")
}

func (p *Process) closeEmbedded() {
	if p.embedded != nil {
		p.embedded.Close()
	}
}
