package program

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
)

// Forwarder asks Discord how to connect, agrees on the topology, and returns
// what forwards the configured shards. It waits while Discord does not answer.
func (p *Process) Forwarder(ctx context.Context, rdb redis.UniversalClient) (*forward.Forwarder, error) {
	cfg := p.Config
	application, err := gateway.ApplicationID(cfg.Discord.Token)
	if err != nil {
		return nil, err
	}
	info, err := p.bot(ctx)
	if err != nil {
		return nil, err
	}
	topology, err := forward.Establish(ctx, rdb, forward.Plan{
		Prefix: cfg.Redis.Prefix, Application: application, Shards: cfg.Discord.Shards, Lanes: cfg.Forward.Lanes, Logger: p.Log,
		Recommend: func(context.Context) (int, error) { return info.Shards, nil },
	})
	if err != nil {
		return nil, err
	}
	p.Log.Info("topology", "application", topology.Application, "shards", topology.Shards, "lanes", topology.Lanes)
	shard := cfg.GatewayConfig()
	shard.URL, shard.MaxConcurrency = info.URL, info.MaxConcurrency
	pipeline := cfg.ForwardConfig()
	pipeline.Topology, pipeline.Logger, pipeline.Metrics = topology, p.Log, p.Metrics
	pipeline.StartLimit = func(ctx context.Context) (remaining, total int, resetAfter time.Duration, err error) {
		info, err := gateway.Bot(ctx, nil, cfg.Discord.APIURL, cfg.Discord.Token)
		return info.Remaining, info.Total, info.ResetAfter, err
	}
	return forward.New(rdb, shard, pipeline)
}

// bot asks Discord how to connect, and waits while it can't be reached.
func (p *Process) bot(ctx context.Context) (gateway.BotInfo, error) {
	wait, failing := time.Second, false
	for {
		info, err := gateway.Bot(ctx, nil, p.Config.Discord.APIURL, p.Config.Discord.Token)
		switch {
		case err == nil:
			if failing {
				p.Log.Info("discord answers")
			}
			return info, nil
		case ctx.Err() != nil:
			return info, ctx.Err()
		case errors.Is(err, gateway.ErrToken):
			return info, err
		case !failing:
			failing = true
			p.Log.Error("discord does not answer; trying again", "err", err)
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return info, ctx.Err()
		}
		wait = min(2*wait, time.Minute)
	}
}
