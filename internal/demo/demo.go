// Package demo is all of Sluice in one process: a Redis, a Discord that plays a
// recorded session, a gateway, and two workers whose listeners print what they
// see. It restarts the gateway and a worker on the way, and ends with a summary
// that checks itself.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/sluicehq/sluice/cache"
	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
	"github.com/sluicehq/sluice/internal/embedded"
	"github.com/sluicehq/sluice/listener"
	"github.com/sluicehq/sluice/replay"
)

const (
	prefix = "demo"
	group  = "workers"
	// token is of a made-up application.
	token       = "MTIzNDU2Nzg5MDEyMzQ1Njc4.demo.demo"
	application = "123456789012345678"
)

// Options of Run. The zero value is the demo as it is meant.
type Options struct {
	Rate   float64      // dispatches a second; 0: 120
	Logger *slog.Logger // what the parts log; nil: nothing
}

// A demo is one run.
type demo struct {
	out     *printer
	logger  *slog.Logger
	rdb     *redis.Client
	discord *gatewaytest.Server
	info    gateway.BotInfo
	plan    forward.Topology
	reader  *cache.Reader
	seen    *ledger
}

// Run runs the demo and writes it to out. It ends by itself within a minute; the
// error says what the summary found wrong.
func Run(ctx context.Context, out io.Writer, o Options) error {
	if o.Rate == 0 {
		o.Rate = 120
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the demo was not through within a minute"))
	defer cancel()

	server, err := embedded.Start("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer rdb.Close()
	discord := gatewaytest.New(gatewaytest.Config{Token: token, Ready: gatewaytest.Withhold})
	if err := discord.Start(); err != nil {
		return err
	}
	defer discord.Close()

	d := &demo{out: &printer{out: out}, logger: o.Logger, rdb: rdb, discord: discord, seen: newLedger()}
	d.out.line("", "an embedded Redis, a simulated Discord, a gateway and two workers, all in this process")
	if d.info, err = gateway.Bot(ctx, nil, discord.URL(), token); err != nil {
		return err
	}
	if d.plan, err = forward.Establish(ctx, rdb, forward.Plan{Prefix: prefix, Application: application, Shards: 1, Lanes: 8, Logger: o.Logger}); err != nil {
		return err
	}
	if d.reader, err = cache.NewReader(rdb, prefix, 1); err != nil {
		return err
	}
	if err := d.play(ctx, o.Rate); err != nil {
		if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
			err = cause
		}
		return err
	}
	return d.summary(ctx)
}

// play runs gateway and workers until the session is played and handled.
func (d *demo) play(ctx context.Context, rate float64) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	parts, running := errgroup.WithContext(running)
	first, err := start(parts, running, d.gateway)
	if err != nil {
		return err
	}
	if _, err := start(parts, running, d.worker("worker A")); err != nil {
		return err
	}
	b, err := start(parts, running, d.worker("worker B"))
	if err != nil {
		return err
	}
	played := make(chan error, 1)
	parts.Go(func() error {
		session := corpus.Session()
		defer session.Close()
		_, err := d.discord.Play(running, session, gatewaytest.PlayOptions{Rate: rate})
		played <- err
		return err
	})

	half := recorded / 2
	if err := d.until(running, func() bool { return d.discord.SentCount() > half }); err != nil {
		return errors.Join(err, parts.Wait())
	}
	d.out.rule("the gateway is stopped; Discord goes on")
	first()
	d.out.rule("another gateway resumes the session where the first had committed")
	if _, err := start(parts, running, d.gateway); err != nil {
		return err
	}
	if err := d.until(running, func() bool { return d.discord.SentCount() > half+half/3 }); err != nil {
		return errors.Join(err, parts.Wait())
	}
	d.out.rule("worker B is stopped; worker A takes its lanes")
	b()

	if err := <-played; err != nil {
		return errors.Join(err, parts.Wait())
	}
	err = d.until(running, func() bool { return d.seen.count() >= d.discord.SentCount() && d.pending(running) == 0 })
	stop()
	return errors.Join(err, parts.Wait())
}

// start runs a part in the group; stop ends it and waits for it.
func start(parts *errgroup.Group, ctx context.Context, part func(context.Context) (func(context.Context) error, error)) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	run, err := part(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan struct{})
	parts.Go(func() error {
		defer close(ended)
		defer cancel()
		return run(ctx)
	})
	return func() {
		cancel()
		<-ended
	}, nil
}

// gateway makes the part that holds the connection.
func (d *demo) gateway(context.Context) (func(context.Context) error, error) {
	f, err := forward.New(d.rdb, gateway.Config{Token: token, URL: d.info.URL, Intents: 1}, forward.Config{
		Prefix: prefix, Topology: d.plan, Logger: d.logger,
	})
	if err != nil {
		return nil, err
	}
	return f.Run, nil
}

// worker makes the part that runs the listeners.
func (d *demo) worker(name string) func(context.Context) (func(context.Context) error, error) {
	return func(context.Context) (func(context.Context) error, error) {
		registry := listener.New()
		registry.Add(d.listeners(name)...)
		w, err := replay.New(d.rdb, registry, replay.Config{Prefix: prefix, Group: group, Consumer: strings.ReplaceAll(name, " ", "-"), Lease: 3 * time.Second, Logger: d.logger})
		if err != nil {
			return nil, err
		}
		return w.Run, nil
	}
}

// until waits for a condition.
func (d *demo) until(ctx context.Context, done func() bool) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// streams are the keys of all streams.
func (d *demo) streams() (keys []string) {
	for lane := range d.plan.Lanes {
		keys = append(keys, fmt.Sprintf("{%s:0/1}:stream:%d", prefix, lane), fmt.Sprintf("{%s:0/1}:express:%d", prefix, lane))
	}
	return keys
}

// pending counts the entries that are read and not acknowledged.
func (d *demo) pending(ctx context.Context) (n int64) {
	for _, key := range d.streams() {
		if p, err := d.rdb.XPending(ctx, key, group).Result(); err == nil {
			n += p.Count
		}
	}
	return n
}

// A printer writes lines, one at a time.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) line(who, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%-9s %s\n", who, text)
}

func (p *printer) rule(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "\n── %s\n\n", text)
}
