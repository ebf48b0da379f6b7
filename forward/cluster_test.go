package forward_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/gateway"
	"github.com/sluicehq/sluice/internal/redistest"
)

// TestScenario053Cluster forwards the recorded session into a Redis cluster (of one node):
// every transaction and every script stays in one slot.
func TestScenario053Cluster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	node := server.Client(t)
	if err := node.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the cluster is up", func() bool { return node.Set(context.Background(), "up", 1, 0).Err() == nil })
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, MaxRetries: -1})
	t.Cleanup(func() { rdb.Close() })
	cfg := config("cluster")
	cfg.TrimEvery, cfg.Keep = 20*time.Millisecond, time.Hour
	topology, err := forward.Establish(t.Context(), rdb, forward.Plan{Prefix: cfg.Prefix, Application: "123", Shards: 1, Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Topology = topology
	sent := recorded()
	err = forward.Hold(t.Context(), rdb, cfg, func(ctx context.Context, h *forward.Held, take func(gateway.Dispatch) error) error {
		for _, d := range sent {
			if err := take(d); err != nil {
				return err
			}
		}
		passes := h.TrimPasses()
		eventually(t, "the streams are looked at", func() bool { return h.TrimPasses() > passes })
		return errors.Join(settled(ctx, h, int64(len(sent))), h.Stalled())
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.NewPacer(rdb, cfg.Prefix, nil).Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(upTo(int64(len(sent))), sequences(entries(t, rdb, cfg.Prefix))); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
}
