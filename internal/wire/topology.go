package wire

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"
)

// A Topology is what all processes of a deployment must agree on. It is recorded
// once, in the hash at TopologyKey.
type Topology struct {
	Application string    // Discord's id of the application
	Shards      int       // n
	Lanes       int       // K, per shard
	Created     time.Time // to the millisecond
}

// ParseTopology reads the recorded hash. ok is false if nothing is recorded.
func ParseTopology(record map[string]string) (t Topology, ok bool, err error) {
	if len(record) == 0 {
		return Topology{}, false, nil
	}
	t.Application = record["application"]
	if t.Shards, err = positive(record, "shards"); err != nil {
		return Topology{}, false, err
	}
	if t.Lanes, err = positive(record, "lanes"); err != nil {
		return Topology{}, false, err
	}
	ms, err := strconv.ParseInt(record["created"], 10, 64)
	if err != nil {
		return Topology{}, false, fmt.Errorf("topology: created is %q, want unix milliseconds", record["created"])
	}
	t.Created = time.UnixMilli(ms)
	return t, true, nil
}

func positive(record map[string]string, field string) (int, error) {
	n, err := strconv.Atoi(record[field])
	if err != nil || n < 1 {
		return 0, fmt.Errorf("topology: %s is %q, want a number from 1", field, record[field])
	}
	return n, nil
}

// MinLanes is the number of lanes that DefaultLanes gives at least, over all shards.
const MinLanes = 16

// DefaultLanes returns the lanes per shard where none are configured: the power
// of two that gives at least MinLanes in all.
func DefaultLanes(shards int) int {
	per := (MinLanes + shards - 1) / shards
	return 1 << bits.Len(uint(per-1))
}
