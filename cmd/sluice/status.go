package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

func statusCommand() *cobra.Command {
	var output string
	var lanes bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show who holds what, and how far behind it is",
		Long: `Show the deployment's topology, the shards with the gateways that hold them, and for each
group its workers, and its lanes: their owner, how many entries are not read yet (lag)
and for how long, how many are pending (read, not acknowledged) and for how long, how
many of them have failed somewhere, and the dead letters. It only reads.

? stands for a lag that Redis does not know. Idle lanes are left out when there are more
than 16 (--lanes shows them).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.FromFlags(cmd.Flags())
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			rdb, err := redisclient.New(cfg.Redis.URL)
			if err != nil {
				return err
			}
			defer rdb.Close()
			s, err := readStatus(cmd.Context(), rdb, cfg.Redis.Prefix)
			if err != nil {
				return err
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				return enc.Encode(s)
			}
			return s.write(cmd.OutOrStdout(), lanes)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&lanes, "lanes", false, "show idle lanes too")
	settings(cmd, "redis.url", "redis.prefix")
	return cmd
}

// A status is what sluice status shows. Times are unix ms, ages seconds.
type status struct {
	Prefix      string        `json:"prefix"`
	Application string        `json:"application"`
	Shards      int           `json:"shards"`
	Lanes       int           `json:"lanes"` // per shard
	Created     int64         `json:"created"`
	Held        []shardStatus `json:"held"`
	Groups      []groupStatus `json:"groups"`

	now time.Time // Redis'
}

type shardStatus struct {
	Shard    int     `json:"shard"`
	Owner    string  `json:"owner"`    // gateway process; empty: nobody
	Session  bool    `json:"session"`  // there is one to resume
	Sequence int64   `json:"sequence"` // the last committed
	Age      float64 `json:"age"`      // since the last commit; -1: there was none
	Entries  int64   `json:"entries"`  // in its streams
}

type groupStatus struct {
	Group   string         `json:"group"`
	Workers []workerStatus `json:"workers"`
	Lag     int64          `json:"lag"`     // -1: not known
	Behind  float64        `json:"behind"`  // since the oldest entry that is not read came
	Pending int64          `json:"pending"` //
	Oldest  float64        `json:"oldest"`  // since the oldest pending entry came
	Failing int64          `json:"failing"` // pending entries that have failed somewhere and are half done
	Dead    int64          `json:"dead"`    // dead letters
	Unheld  int            `json:"unheld"`  // lanes without an owner
	Lanes   []laneStatus   `json:"lanes"`
}

type workerStatus struct {
	ID        string   `json:"id"`
	Host      string   `json:"host"`
	PID       int      `json:"pid"`
	Build     string   `json:"build"`
	Started   int64    `json:"started"`
	Lanes     int      `json:"lanes"`
	Listeners []string `json:"listeners"`
}

// A laneStatus is a lane with both its streams.
type laneStatus struct {
	Shard   int     `json:"shard"`
	Lane    int     `json:"lane"`
	Owner   string  `json:"owner"` // worker; empty: nobody
	Lag     int64   `json:"lag"`   // -1: not known
	Behind  float64 `json:"behind"`
	Pending int64   `json:"pending"`
	Oldest  float64 `json:"oldest"`
	Failing int64   `json:"failing"`
}

func readStatus(ctx context.Context, rdb redis.UniversalClient, prefix string) (*status, error) {
	t, err := recorded(ctx, rdb, prefix)
	if err != nil {
		return nil, err
	}
	s := &status{Prefix: prefix, Application: t.Application, Shards: t.Shards, Lanes: t.Lanes, Created: t.Created.UnixMilli(), Groups: []groupStatus{}}
	if s.now, err = rdb.Time(ctx).Result(); err != nil {
		return nil, fmt.Errorf("ask for the time: %w", err)
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
	for id := range s.Shards {
		n, err := rdb.XLen(ctx, wire.NewShard(s.Prefix, id, s.Shards).Dead(g.Group)).Result()
		if err != nil {
			return err
		}
		g.Dead += n
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

// maxIdleLanes is how many lanes are all shown.
const maxIdleLanes = 16

func (s *status) write(w io.Writer, everyLane bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s: application %s, %s of %s, since %s\n", printable(s.Prefix), printable(s.Application),
		plural(s.Shards, "shard"), plural(s.Lanes, "lane"), time.UnixMilli(s.Created).UTC().Format(time.DateTime))
	fmt.Fprintln(t, "\nSHARD\tGATEWAY\tSESSION\tSEQUENCE\tLAST COMMIT\tENTRIES")
	for _, h := range s.Held {
		session, commit := "none", "-"
		if h.Session {
			session = "resumable"
		}
		if h.Age >= 0 {
			commit = ago(h.Age)
		}
		fmt.Fprintf(t, "%d/%d\t%s\t%s\t%d\t%s\t%d\n", h.Shard, s.Shards, holder(h.Owner), session, h.Sequence, commit, h.Entries)
	}
	if len(s.Groups) == 0 {
		fmt.Fprintln(t, "\nno group: no worker has run yet")
	}
	for _, g := range s.Groups {
		fmt.Fprintf(t, "\ngroup %s: %s, lag %s, pending %s, %d failing, %s\n", printable(g.Group), plural(len(g.Workers), "worker"),
			count(g.Lag, g.Behind), count(g.Pending, g.Oldest), g.Failing, plural(int(g.Dead), "dead letter"))
		if g.Unheld > 0 {
			fmt.Fprintf(t, "%s held by nobody\n", plural(g.Unheld, "lane"))
		}
		if len(g.Workers) > 0 {
			fmt.Fprintln(t, "WORKER\tLANES\tSTARTED\tBUILD\tLISTENERS")
			for _, worker := range g.Workers {
				fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", printable(worker.ID), worker.Lanes, time.UnixMilli(worker.Started).UTC().Format(time.DateTime),
					cmp.Or(printable(worker.Build[:min(len(worker.Build), 12)]), "-"), listed(worker.Listeners))
			}
		}
		idle := 0
		fmt.Fprintln(t, "LANE\tOWNER\tLAG\tPENDING\tFAILING")
		for _, l := range g.Lanes {
			if !everyLane && len(g.Lanes) > maxIdleLanes && l.Owner != "" && l.Lag == 0 && l.Pending == 0 {
				idle++
				continue
			}
			fmt.Fprintf(t, "%d/%d\t%s\t%s\t%s\t%d\n", l.Shard, l.Lane, holder(l.Owner), count(l.Lag, l.Behind), count(l.Pending, l.Oldest), l.Failing)
		}
		if idle > 0 {
			fmt.Fprintf(t, "and %s without anything to do\n", plural(idle, "lane"))
		}
	}
	return t.Flush()
}

func holder(name string) string { return cmp.Or(printable(name), "nobody") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// count is a number of entries, and how old the oldest of them is.
func count(n int64, age float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0:
		return "? (" + ago(age) + ")"
	}
	return strconv.FormatInt(n, 10) + " (" + ago(age) + ")"
}

func ago(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= 48*time.Hour:
		return strconv.Itoa(int(d.Hours()/24)) + "d"
	case d >= time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// listed names a few listeners and counts many: json has them all.
func listed(names []string) string {
	const few = 5
	if len(names) <= few {
		return printable(strings.Join(names, ","))
	}
	return printable(strings.Join(names[:few], ",")) + fmt.Sprintf(",… (%d)", len(names))
}
