package forward

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// identifyEvery is the time between two identifies of one bucket.
// Source: https://discord.com/developers/docs/events/gateway#rate-limiting
const identifyEvery = 5 * time.Second

// A redisPacer spaces the identifies of all gateway processes of a deployment:
// a bucket's key exists for as long as its next identify must wait.
type redisPacer struct {
	rdb    redis.UniversalClient
	prefix string
	limit  func(context.Context) (remaining, total int, resetAfter time.Duration, err error) // nil: none
	logger *slog.Logger

	remaining prometheus.Gauge // what limit has said last
}

// spared is the part of a day's identifies that is not used: Discord resets the
// token of a bot that uses them up, and an operator may need a few.
// Source: https://discord.com/developers/docs/events/gateway#session-start-limit-object
func spared(total int) int { return max(total/100, 1) }

// withinLimit waits while next to no identifies are left of those allowed in a day.
func (p *redisPacer) withinLimit(ctx context.Context) error {
	for p.limit != nil {
		remaining, total, resetAfter, err := p.limit(ctx)
		if err != nil {
			p.logger.Warn("can't ask how many identifies are left; going on", "err", err)
			return ctx.Err()
		}
		p.remaining.Set(float64(remaining))
		if remaining > spared(total) {
			return nil
		}
		p.logger.Error("next to no identifies are left for today: waiting for more", "remaining", remaining, "total", total, "reset_after", resetAfter)
		select {
		case <-time.After(max(resetAfter, time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Wait implements gateway.Pacer. While Redis does not answer it waits on.
func (p *redisPacer) Wait(ctx context.Context, bucket int) error {
	if err := p.withinLimit(ctx); err != nil {
		return err
	}
	key := wire.IdentifyKey(p.prefix, bucket)
	var (
		wait    backoff
		failing bool
	)
	for {
		// A moment more than Discord asks for: its clock begins when it reads.
		free, err := p.rdb.SetNX(ctx, key, "1", identifyEvery+250*time.Millisecond).Result()
		if err == nil && free {
			return nil
		}
		if err != nil {
			if !failing {
				failing = true
				p.logger.Warn("can't pace the identify; trying again", "err", err)
			}
			if err := wait.wait(ctx); err != nil {
				return err
			}
			continue
		}
		left, err := p.rdb.PTTL(ctx, key).Result()
		if err != nil || left <= 0 {
			left = 100 * time.Millisecond
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
