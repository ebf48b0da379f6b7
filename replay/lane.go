package replay

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/wire"
)

// A lane is one of a shard's lanes: the two streams that are owned together.
type lane struct {
	lease   string // Redis key
	dead    string // the key of the group's dead letters of the shard
	shard   int
	number  int // in the shard
	node    *node
	sources [classes]*source

	until atomic.Int64 // time.Duration of Worker.clock at which the lease ends; 0: not held

	// The keeper's alone.
	state  laneState
	cancel context.CancelCauseFunc // ends the runs
}

type laneState uint8

const (
	free    laneState = iota // another's, or nobody's
	owned                    // read and run
	closing                  // to be handed over once nothing of it runs
)

// valid reports whether the lease lasts at a time of Worker.clock.
func (l *lane) valid(now time.Duration) bool { return time.Duration(l.until.Load()) > now }

func newLayout(w *Worker, t wire.Topology, cluster bool) *layout {
	lay := &layout{topology: t}
	var n *node
	for id := range t.Shards {
		shard := wire.NewShard(w.config.Prefix, id, t.Shards)
		if n == nil || cluster {
			n = newNode(w, shard, cluster)
			lay.nodes = append(lay.nodes, n)
		}
		for number := range t.Lanes {
			l := &lane{
				lease: shard.Lease(w.config.Group, number), dead: shard.Dead(w.config.Group), node: n,
				shard: id, number: number,
			}
			label := strconv.Itoa(id) + "/"
			l.sources = [classes]*source{
				express: {
					class: express, lane: l, stream: shard.Express(number), label: label + "x" + strconv.Itoa(number),
					progress: shard.Progress(w.config.Group, number, true),
				},
				plain: {
					class: plain, lane: l, stream: shard.Stream(number), label: label + strconv.Itoa(number),
					progress: shard.Progress(w.config.Group, number, false),
				},
			}
			n.lanes = append(n.lanes, l)
			for class, s := range l.sources {
				n.readers[class].add(s)
				lay.sources = append(lay.sources, s)
			}
			lay.lanes = append(lay.lanes, l)
		}
	}
	return lay
}
