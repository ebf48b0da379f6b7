package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicehq/sluice/internal/wire"
)

// readStatus reads all of it. A group that is not served for abandon is abandoned.
func readStatus(ctx context.Context, rdb redis.UniversalClient, prefix string, abandon time.Duration) (*status, error) {
	t, err := recorded(ctx, rdb, prefix)
	if err != nil {
		return nil, err
	}
	s := &status{Prefix: prefix, Application: t.Application, Shards: t.Shards, Lanes: t.Lanes, Created: t.Created.UnixMilli(), Groups: []groupStatus{}, abandon: abandon}
	if s.now, err = rdb.Time(ctx).Result(); err != nil {
		return nil, fmt.Errorf("ask for the time: %w", err)
	}
	if s.Redis, err = servers(ctx, rdb); err != nil {
		return nil, fmt.Errorf("ask for the memory: %w", err)
	}
	groups := map[string]*groupStatus{}
	for id := range t.Shards {
		if err := s.readShard(ctx, rdb, wire.NewShard(prefix, id, t.Shards), groups); err != nil {
			return nil, fmt.Errorf("shard %d: %w", id, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		if err := s.readGroup(ctx, rdb, g); err != nil {
			return nil, fmt.Errorf("group %s: %w", name, err)
		}
		s.Groups = append(s.Groups, *g)
	}
	return s, nil
}

// some runs a pipeline whose commands may have errors of their own.
func some(ctx context.Context, rdb redis.UniversalClient, fill func(redis.Pipeliner)) error {
	pipe := rdb.Pipeline()
	fill(pipe)
	if pipe.Len() == 0 {
		return nil
	}
	_, err := pipe.Exec(ctx)
	if said := redis.Error(nil); errors.As(err, &said) {
		return nil // nil, no such key
	}
	return err
}

// readShard reads a shard, and adds its lanes to their groups.
func (s *status) readShard(ctx context.Context, rdb redis.UniversalClient, shard wire.Shard, groups map[string]*groupStatus) error {
	var owner *redis.StringCmd
	var record *redis.SliceCmd
	streams := make([]string, 0, 2*s.Lanes) // a lane's two, one after the other
	for lane := range s.Lanes {
		streams = append(streams, shard.Stream(lane), shard.Express(lane))
	}
	lengths := make([]*redis.IntCmd, len(streams))
	infos := make([]*redis.XInfoGroupsCmd, len(streams))
	err := some(ctx, rdb, func(p redis.Pipeliner) {
		owner = p.Get(ctx, shard.Owner())
		record = p.HMGet(ctx, shard.Session(), wire.SessionID, wire.SessionSequence, wire.SessionSaved)
		for i, stream := range streams {
			lengths[i], infos[i] = p.XLen(ctx, stream), p.XInfoGroups(ctx, stream)
		}
	})
	if err != nil {
		return err
	}
	held := shardStatus{Shard: shard.ID, Owner: owner.Val(), Age: -1}
	if values := record.Val(); len(values) == 3 {
		session, _ := values[0].(string)
		held.Session = session != ""
		held.Sequence = number(values[1])
		if saved := number(values[2]); saved > 0 {
			held.Age = s.age(saved)
		}
	}
	for _, n := range lengths {
		held.Entries += n.Val()
	}
	s.Held = append(s.Held, held)

	// What each group has before it in each stream.
	type ahead struct {
		group   string
		lane    int
		info    redis.XInfoGroup
		next    *redis.XMessageSliceCmd
		pending *redis.XPendingCmd
		lease   *redis.StringCmd
		failing *redis.IntCmd
	}
	var all []*ahead
	err = some(ctx, rdb, func(p redis.Pipeliner) {
		for i, stream := range streams {
			for _, info := range infos[i].Val() {
				a := &ahead{group: info.Name, lane: i / 2, info: info}
				a.next = p.XRangeN(ctx, stream, "("+info.LastDeliveredID, "+", 1)
				a.pending = p.XPending(ctx, stream, info.Name)
				a.lease = p.Get(ctx, shard.Lease(info.Name, a.lane))
				a.failing = p.HLen(ctx, shard.Progress(info.Name, a.lane, i%2 == 1))
				all = append(all, a)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, a := range all {
		g := groups[a.group]
		if g == nil {
			g = &groupStatus{Group: a.group, Workers: []workerStatus{}}
			groups[a.group] = g
		}
		n := len(g.Lanes)
		if n == 0 || g.Lanes[n-1].Shard != shard.ID || g.Lanes[n-1].Lane != a.lane {
			g.Lanes = append(g.Lanes, laneStatus{Shard: shard.ID, Lane: a.lane, Owner: a.lease.Val()})
			n++
		}
		l := &g.Lanes[n-1]
		if next := a.next.Val(); len(next) > 0 {
			lag := a.info.Lag
			if lag <= 0 { // Redis does not know
				lag = -1
			}
			l.Lag = sum(l.Lag, lag)
			l.Behind = max(l.Behind, s.ageOf(next[0].ID))
		}
		if p := a.pending.Val(); p != nil && p.Count > 0 {
			l.Pending += p.Count
			l.Oldest = max(l.Oldest, s.ageOf(p.Lower))
		}
		l.Failing += a.failing.Val()
	}
	return nil
}

// readGroup reads what a group has once, or once a shard, and sums its lanes up.
func (s *status) readGroup(ctx context.Context, rdb redis.UniversalClient, g *groupStatus) error {
	workers, err := rdb.HGetAll(ctx, wire.WorkersKey(s.Prefix, g.Group)).Result()
	if err != nil {
		return err
	}
	for id, about := range workers {
		var w struct {
			workerStatus
			Until int64 `json:"until"`
		}
		if json.Unmarshal([]byte(about), &w) != nil || w.Until < s.now.UnixMilli() {
			continue // one that is gone
		}
		w.ID = id
		g.Workers = append(g.Workers, w.workerStatus)
	}
	slices.SortFunc(g.Workers, func(a, b workerStatus) int { return cmp.Compare(a.ID, b.ID) })
	served := int64(0)
	for id := range s.Shards {
		shard := wire.NewShard(s.Prefix, id, s.Shards)
		n, err := rdb.XLen(ctx, shard.Dead(g.Group)).Result()
		if err != nil {
			return err
		}
		g.Dead += n
		notes, err := rdb.HMGet(ctx, shard.Groups(), wire.GroupServed+g.Group, wire.GroupUnread+g.Group, wire.GroupUnacked+g.Group, wire.GroupTrimmed+g.Group).Result()
		if err != nil {
			return err
		}
		served = max(served, number(notes[0]))
		g.Unread += number(notes[1])
		g.Unacked += number(notes[2])
		g.Trimmed = max(g.Trimmed, number(notes[3]))
	}
	switch {
	case len(g.Workers) > 0:
	case served == 0:
		g.Unserved = -1
	default:
		g.Unserved = s.age(served)
		g.Abandoned = g.Unserved >= s.abandon.Seconds()
	}
	for _, l := range g.Lanes {
		g.Lag = sum(g.Lag, l.Lag)
		g.Behind = max(g.Behind, l.Behind)
		g.Pending += l.Pending
		g.Oldest = max(g.Oldest, l.Oldest)
		g.Failing += l.Failing
		if l.Owner == "" {
			g.Unheld++
		}
	}
	return nil
}

// servers asks each server for its version and memory.
func servers(ctx context.Context, rdb redis.UniversalClient) ([]redisStatus, error) {
	var (
		mu  sync.Mutex
		all []redisStatus // guarded by mu
	)
	ask := func(ctx context.Context, one *redis.Client) error {
		info, err := one.Info(ctx).Result()
		if err != nil {
			return err
		}
		var r redisStatus
		for line := range strings.Lines(info) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
			case "redis_version":
				r.Version = value
			case "used_memory":
				r.Used = number(value)
			case "maxmemory":
				r.Max = number(value)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r)
		return nil
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, ask)
		return all, err
	}
	one, ok := rdb.(*redis.Client)
	if !ok {
		return nil, nil
	}
	err := ask(ctx, one)
	return all, err
}

// sum adds what may not be known.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 {
		return -1
	}
	return a + b
}

func number(value any) int64 {
	text, _ := value.(string)
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func (s *status) age(ms int64) float64 {
	return max(0, float64(s.now.UnixMilli()-ms)/1000)
}

func (s *status) ageOf(id string) float64 {
	parsed, _ := parseID(id)
	return s.age(int64(parsed.ms))
}
