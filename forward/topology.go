package forward

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// establishScript records a topology, unless one is recorded.
//
//	KEYS  topology
//	ARGV  application, shards, lanes, created (unix ms)
//	→ the recorded hash, as HGETALL returns it
var establishScript = redis.NewScript(`
if redis.call('EXISTS', KEYS[1]) == 0 then
	redis.call('HSET', KEYS[1], 'application', ARGV[1], 'shards', ARGV[2], 'lanes', ARGV[3], 'created', ARGV[4])
end
return redis.call('HGETALL', KEYS[1])`)

// A Topology is what all processes of a deployment agree on. Establish returns it.
type Topology struct {
	Application string    // Discord's id of the application
	Shards      int       // n
	Lanes       int       // K, per shard
	Created     time.Time // to the millisecond
}

// A Plan is what a process wants the topology to be.
type Plan struct {
	Prefix      string // empty: DefaultPrefix
	Application string // Discord's id of the application
	Shards      int    // 0: what is recorded, else Recommend's answer
	Lanes       int    // per shard, when it is recorded; 0: wire.DefaultLanes
	// Recommend asks Discord for a number of shards. It is called if Shards is 0.
	Recommend func(context.Context) (int, error)
	Logger    *slog.Logger // nil: slog.Default()
}

// Establish returns the deployment's topology, and records it if there is none.
// The error is a *TopologyError if the recorded one is another application's or
// has another number of shards than the plan asks for, and wraps ErrRights if
// Redis denies a gateway what it needs. Any number of processes may call it at
// once.
func Establish(ctx context.Context, rdb redis.UniversalClient, plan Plan) (Topology, error) {
	if plan.Prefix == "" {
		plan.Prefix = DefaultPrefix
	}
	if plan.Logger == nil {
		plan.Logger = slog.Default()
	}
	if err := checkRights(ctx, rdb, plan.Prefix); err != nil {
		return Topology{}, err
	}
	key := wire.TopologyKey(plan.Prefix)
	found, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return Topology{}, fmt.Errorf("forward: read the topology at %q: %w", key, err)
	}
	recommended := 0
	if plan.Shards == 0 && plan.Recommend != nil {
		if recommended, err = plan.Recommend(ctx); err != nil && len(found) == 0 {
			return Topology{}, fmt.Errorf("forward: number of shards: %w", err)
		}
	}
	if len(found) == 0 {
		shards := max(plan.Shards, recommended, 1)
		lanes := plan.Lanes
		if lanes == 0 {
			lanes = wire.DefaultLanes(shards)
		}
		return establish(ctx, rdb, key, Topology{Application: plan.Application, Shards: shards, Lanes: lanes, Created: time.Now()}, plan)
	}
	recorded, _, err := wire.ParseTopology(found)
	if err != nil {
		return Topology{}, fmt.Errorf("forward: topology at %q: %w", key, err)
	}
	t := Topology(recorded)
	if recommended > t.Shards {
		plan.Logger.Warn("discord recommends more shards than the topology has", "shards", t.Shards, "recommended", recommended)
	}
	return t, t.fits(key, plan)
}

// establish records t, unless a topology is recorded, and returns the recorded
// one if it fits the plan.
func establish(ctx context.Context, rdb redis.Scripter, key string, t Topology, plan Plan) (Topology, error) {
	reply, err := establishScript.Run(ctx, rdb, []string{key}, t.Application, t.Shards, t.Lanes, t.Created.UnixMilli()).StringSlice()
	if err != nil {
		return Topology{}, fmt.Errorf("forward: record the topology at %q: %w", key, err)
	}
	found := make(map[string]string)
	for i := 0; i+1 < len(reply); i += 2 {
		found[reply[i]] = reply[i+1]
	}
	recorded, ok, err := wire.ParseTopology(found)
	if err != nil || !ok {
		return Topology{}, fmt.Errorf("forward: topology at %q: %w", key, err)
	}
	return Topology(recorded), Topology(recorded).fits(key, plan)
}

// fits returns why a recorded topology is not the one planned for.
func (t Topology) fits(key string, plan Plan) error {
	if t.Application != plan.Application {
		return &TopologyError{Key: key, What: "application", Recorded: t.Application, Wanted: plan.Application,
			Advice: "use the token of that application, or another redis.prefix for this one"}
	}
	if plan.Shards != 0 && plan.Shards != t.Shards {
		return &TopologyError{Key: key, What: "number of shards", Recorded: fmt.Sprint(t.Shards), Wanted: fmt.Sprint(plan.Shards),
			Advice: "set discord.shards to auto or to that number; `sluice topology rm` forgets it"}
	}
	if plan.Lanes != 0 && plan.Lanes != t.Lanes {
		plan.Logger.Warn("the topology was recorded with another number of lanes, which stays", "lanes", t.Lanes, "configured", plan.Lanes)
	}
	return nil
}

// ReadTopology returns the recorded topology of the deployment under prefix
// (empty: DefaultPrefix). ok is false if none is recorded yet.
func ReadTopology(ctx context.Context, rdb redis.UniversalClient, prefix string) (t Topology, ok bool, err error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	key := wire.TopologyKey(prefix)
	found, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return Topology{}, false, fmt.Errorf("forward: read the topology at %q: %w", key, err)
	}
	recorded, ok, err := wire.ParseTopology(found)
	if err != nil {
		return Topology{}, false, fmt.Errorf("forward: topology at %q: %w", key, err)
	}
	return Topology(recorded), ok, nil
}

// A TopologyError says that the recorded topology is not the one asked for.
type TopologyError struct {
	Key, What, Recorded, Wanted, Advice string
}

func (e *TopologyError) Error() string {
	return fmt.Sprintf("forward: the topology recorded at %q has %s %s, not %s: %s", e.Key, e.What, e.Recorded, e.Wanted, e.Advice)
}
