package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/dispatch"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

type tailOptions struct {
	events []string
	guild  string
	shards []int
	lanes  []int
	from   string
	number int
	follow bool
	output string
	full   bool

	numbered bool // --number was given
}

func tailCommand() *cobra.Command {
	var o tailOptions
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the entries of the streams",
		Long: `Show the entries of the streams, those of all lanes in the order of their ids. It only
reads: no group sees that it does.

Without --from the last 10 are shown (--number), with it those from there on. --follow
goes on with what comes. A line has the time the gateway read the dispatch, the entry's
id (<shard>/<lane>/<stream id>, x before the lane of an express stream), its type,
sequence, flags and ids, the payload, and behind < the state before it.`,
		Example: "  sluice tail --follow --event 'message.*' --guild 290926798626357250\n  sluice tail --from 10m --output json | jq .payload",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.numbered = cmd.Flags().Changed("number")
			cfg, err := config.FromFlags(cmd.Flags())
			if err != nil {
				return err
			}
			return runTail(cmd.Context(), cfg, o, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVarP(&o.events, "event", "e", nil, "types or patterns of events: MESSAGE_UPDATE, 'message.*'")
	flags.StringVarP(&o.guild, "guild", "g", "", "only what is ordered by this guild's id")
	flags.IntSliceVar(&o.shards, "shard", nil, "only these shards")
	flags.IntSliceVar(&o.lanes, "lane", nil, "only these lanes")
	flags.StringVar(&o.from, "from", "", "where to begin: 0, $ (what comes from now on), a stream id, a duration back (10m)")
	flags.IntVarP(&o.number, "number", "n", 10, "how many entries: the last, or with --from the first (default then: all)")
	flags.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes")
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	flags.BoolVar(&o.full, "full", false, "do not cut payloads and states in text")
	settings(cmd, "redis.url", "redis.prefix")
	return cmd
}

func runTail(ctx context.Context, cfg *config.Config, o tailOptions, stdout io.Writer) error {
	keep, err := o.filter()
	if err != nil {
		return err
	}
	if o.number < 0 {
		return wrongf("--number is %d, want 0 or more", o.number)
	}
	start, err := parseFrom(o.from)
	if err != nil {
		return err
	}
	var show func(io.Writer, *shown) error
	switch o.output {
	case "text":
		show = textWriter(o.full)
	case "json":
		show = writeJSON
	default:
		return wrongf("--output is %q, want text or json", o.output)
	}

	rdb, err := redisclient.New(cfg.Redis.URL)
	if err != nil {
		return err
	}
	defer rdb.Close()
	topology, err := recorded(ctx, rdb, cfg.Redis.Prefix)
	if err != nil {
		return err
	}
	streams, err := o.streams(cfg.Redis.Prefix, topology)
	if err != nil {
		return err
	}

	t := &tailer{rdb: rdb, streams: streams, keep: keep}
	err = t.run(ctx, start, o, func(s *shown) error { return show(stdout, s) })
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // an interrupt is how one stops following
	}
	return err
}

// recorded reads the topology.
func recorded(ctx context.Context, rdb redis.UniversalClient, prefix string) (wire.Topology, error) {
	key := wire.TopologyKey(prefix)
	record, err := rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return wire.Topology{}, fmt.Errorf("read %s: %w", key, err)
	}
	topology, ok, err := wire.ParseTopology(record)
	if err != nil {
		return topology, fmt.Errorf("%s: %w", key, err)
	}
	if !ok {
		return topology, fmt.Errorf("there is no %s: no gateway has run with this redis.url and redis.prefix", key)
	}
	return topology, nil
}

// streams returns the streams to read.
func (o *tailOptions) streams(prefix string, topology wire.Topology) ([]*stream, error) {
	shards, lanes := all(topology.Shards), all(topology.Lanes)
	for _, flag := range []struct {
		name  string
		given []int
		all   *[]int
	}{{"--shard", o.shards, &shards}, {"--lane", o.lanes, &lanes}} {
		for _, n := range flag.given {
			if n < 0 || n >= len(*flag.all) {
				return nil, wrongf("%s is %d, want 0 to %d", flag.name, n, len(*flag.all)-1)
			}
		}
		if len(flag.given) > 0 {
			*flag.all = slices.Compact(slices.Sorted(slices.Values(flag.given)))
		}
	}
	if o.guild != "" {
		lane := wire.Lane([]byte(o.guild), topology.Lanes)
		lanes = slices.DeleteFunc(lanes, func(n int) bool { return n != lane })
		if shard, ok := wire.ShardOf(o.guild, topology.Shards); ok {
			shards = slices.DeleteFunc(shards, func(n int) bool { return n != shard })
		}
	}
	var found []*stream
	for _, id := range shards {
		names := wire.NewShard(prefix, id, topology.Shards)
		for _, lane := range lanes {
			found = append(found,
				&stream{key: names.Stream(lane), shard: id, lane: lane},
				&stream{key: names.Express(lane), shard: id, lane: lane, express: true})
		}
	}
	if len(found) == 0 {
		return nil, wrongf("--shard and --lane leave out where the entries of --guild %s are", o.guild)
	}
	return found, nil
}

func all(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// filter returns what decides whether an entry is shown.
func (o *tailOptions) filter() (func(*shown) bool, error) {
	var patterns []dispatch.Pattern
	for _, text := range o.events {
		p, err := dispatch.Compile(strings.TrimSpace(text))
		if err != nil {
			return nil, wrongf("--event: %v", err)
		}
		patterns = append(patterns, p)
	}
	if o.guild != "" {
		if _, err := strconv.ParseUint(o.guild, 10, 64); err != nil {
			return nil, wrongf("--guild is %q, want a guild's id", o.guild)
		}
	}
	return func(s *shown) bool {
		if len(patterns) > 0 && !slices.ContainsFunc(patterns, func(p dispatch.Pattern) bool { return p.Match(s.entry.Event) }) {
			return false
		}
		return o.guild == "" || s.guild() == o.guild
	}, nil
}

// A position is where to begin in a stream.
type position struct {
	last bool          // behind everything there is
	back time.Duration // from now
	id   string        // from this id on; empty: neither this nor the others
}

func parseFrom(text string) (p position, err error) {
	switch text {
	case "":
		return p, nil
	case "$":
		return position{last: true}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && text != "0" {
		if d < 0 {
			d = -d
		}
		return position{back: d}, nil
	}
	if _, ok := parseID(text); !ok {
		return p, wrongf("--from is %q, want 0, $, a stream id (1700000000000-0) or a duration back (10m)", text)
	}
	return position{id: text}, nil
}

// An entryID is a stream id.
type entryID struct{ ms, seq uint64 }

func parseID(text string) (id entryID, ok bool) {
	ms, seq, two := strings.Cut(text, "-")
	var err error
	if id.ms, err = strconv.ParseUint(ms, 10, 64); err != nil {
		return id, false
	}
	if two {
		if id.seq, err = strconv.ParseUint(seq, 10, 64); err != nil {
			return id, false
		}
	}
	return id, true
}

func (id entryID) String() string {
	return strconv.FormatUint(id.ms, 10) + "-" + strconv.FormatUint(id.seq, 10)
}

func (id entryID) compare(other entryID) int {
	return cmp.Or(cmp.Compare(id.ms, other.ms), cmp.Compare(id.seq, other.seq))
}

// before returns the greatest id below id: reading goes on behind an id.
func (id entryID) before() entryID {
	switch {
	case id.seq > 0:
		return entryID{id.ms, id.seq - 1}
	case id.ms > 0:
		return entryID{id.ms - 1, 1<<64 - 1}
	default:
		return id
	}
}
