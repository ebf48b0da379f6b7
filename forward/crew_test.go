package forward_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sluicehq/sluice/forward"
	"github.com/sluicehq/sluice/internal/redistest"
)

// TestCrew has three processes share 16 shards, of which one dies.
func TestCrew(t *testing.T) {
	t.Parallel()
	rdb, cfg := redistest.Client(t), config(redistest.Prefix(t))
	cfg.Topology.Shards = 16
	var crews []*forward.Crew
	var leave []context.CancelFunc
	for i := range 3 {
		cfg.Process = fmt.Sprint("process-", i)
		c, err := forward.NewCrew(rdb, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if c.Reserve(true) {
			t.Error("a place was given before the others are known")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Run(ctx)
		}()
		stop := func() {
			cancel()
			<-done
		}
		t.Cleanup(stop)
		crews, leave = append(crews, c), append(leave, stop)
	}
	other := cfg // holds other shards, and does not count
	other.ShardIDs = []int{1}
	apart, err := forward.NewCrew(rdb, other)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go apart.Run(ctx) // ends with the test
	eventually(t, "all three are known", func() bool { return crews[0].Live() == 3 && crews[1].Live() == 3 && crews[2].Live() == 3 })
	for i, c := range crews {
		n := 0
		for c.Reserve(false) {
			n++
		}
		if n != 6 {
			t.Errorf("process %d takes %d of 16 shards, want 6 at most", i, n)
		}
	}
	if !crews[0].Reserve(true) {
		t.Error("a shard that nobody takes is left")
	}
	crews[0].Release()
	leave[2]()
	eventually(t, "one is missed", func() bool { return crews[0].Live() == 2 })
	for range 2 {
		if !crews[0].Reserve(false) {
			t.Error("a shard of the one that left is not taken")
		}
	}
	if crews[0].Reserve(false) {
		t.Error("more than half is taken by one of two")
	}
	eventually(t, "the one with other shards is alone", func() bool { return apart.Live() == 1 })
}
