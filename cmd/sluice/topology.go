package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/redisclient"
	"github.com/sluicehq/sluice/internal/wire"
)

func topologyCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "Show what all processes of the deployment agree on",
		Long: `Show the deployment's topology: the application, the number of shards, the lanes of each,
and since when. It is recorded when a gateway first starts, and stays: entries, sessions and
the cache are laid out by it. For another one see sluice topology rm.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			return withStatus(cmd, func(_ context.Context, _ redis.UniversalClient, s *status) error {
				return s.writeTopology(cmd.OutOrStdout(), output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	settings(cmd, "redis.url", "redis.prefix")
	cmd.AddCommand(topologyRmCommand())
	return cmd
}

func topologyRmCommand() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "rm",
		Short: "Forget the topology and all that is laid out by it",
		Long: `Forget the topology, and delete the streams, sessions and cached entities that are laid out by
it, so that the next gateway records another number of shards or lanes. It identifies anew:
what Discord sends between the last gateway's end and its READY is not delivered.

Stop all gateways first, let the workers finish what is in the streams, then stop them too. As
long as one of them lives nothing is deleted; nor is it if there are entries that a group has
not acknowledged, or dead letters, unless --discard says that they may go.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withStatus(cmd, func(ctx context.Context, rdb redis.UniversalClient, s *status) error {
				if err := s.removable(discard); err != nil {
					return err
				}
				n, err := s.remove(ctx, rdb)
				if err != nil {
					return fmt.Errorf("%d keys are deleted; call it again: %w", n, err)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "the topology of %s is forgotten, %d keys are deleted\n", s.Prefix, n)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&discard, "discard", false, "delete entries that are not acknowledged, and dead letters, too")
	settings(cmd, "redis.url", "redis.prefix")
	return cmd
}

// withStatus calls f with the deployment's status.
func withStatus(cmd *cobra.Command, f func(context.Context, redis.UniversalClient, *status) error) error {
	cfg, err := config.FromFlags(cmd.Flags())
	if err != nil {
		return err
	}
	rdb, err := redisclient.New(cfg.Redis.URL)
	if err != nil {
		return err
	}
	defer rdb.Close()
	s, err := readStatus(cmd.Context(), rdb, cfg.Redis.Prefix, cfg.Forward.AbandonAfter)
	if err != nil {
		return err
	}
	return f(cmd.Context(), rdb, s)
}

func (s *status) writeTopology(w io.Writer, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(map[string]any{
			"prefix": s.Prefix, "application": s.Application, "shards": s.Shards, "lanes": s.Lanes, "created": s.Created,
		})
	}
	_, err := fmt.Fprintf(w, "application  %s\nshards       %d\nlanes        %d each, %d in all\nrecorded     %s\nkey          %s\n",
		printable(s.Application), s.Shards, s.Lanes, s.Shards*s.Lanes, time.UnixMilli(s.Created).UTC().Format(time.DateTime), wire.TopologyKey(s.Prefix))
	return err
}

// removable returns why the topology can't be removed now.
func (s *status) removable(discard bool) error {
	var why []string
	add := func(format string, args ...any) { why = append(why, printable(fmt.Sprintf(format, args...))) }
	for _, h := range s.Held {
		if h.Owner != "" {
			add("shard %d is held by gateway %s: stop it", h.Shard, h.Owner)
		}
	}
	for _, g := range s.Groups {
		if n := len(g.Workers); n > 0 {
			add("group %s has %s: stop them", g.Group, plural(n, "worker"))
		}
	}
	if !discard {
		if len(s.Groups) == 0 {
			for _, h := range s.Held {
				if h.Entries > 0 {
					add("shard %d has %s that no group has read (--discard deletes them)", h.Shard, plural(int(h.Entries), "entry"))
				}
			}
		}
		for _, g := range s.Groups {
			switch {
			case g.Lag < 0:
				add("group %s has not read all entries (--discard deletes them)", g.Group)
			case g.Lag+g.Pending > 0:
				add("group %s has not acknowledged %s (--discard deletes them)", g.Group, plural(int(g.Lag+g.Pending), "entry"))
			}
			if g.Dead > 0 {
				add("group %s has %s (--discard deletes them)", g.Group, plural(int(g.Dead), "dead letter"))
			}
		}
	}
	if len(why) == 0 {
		return nil
	}
	return errors.New("nothing is deleted:\n  " + strings.Join(why, "\n  "))
}

// remove deletes the keys of all shards, and the topology last: until then the
// command can be called again. It returns how many keys went.
func (s *status) remove(ctx context.Context, rdb redis.UniversalClient) (n int64, err error) {
	for id := range s.Shards {
		tag := wire.NewShard(s.Prefix, id, s.Shards).Tag()
		node := rdb
		if cluster, ok := rdb.(*redis.ClusterClient); ok {
			if node, err = cluster.MasterForKey(ctx, tag); err != nil {
				return n, err
			}
		}
		// A prefix has no characters that mean something in a pattern.
		for all := node.Scan(ctx, 0, tag+":*", 1000).Iterator(); ; {
			var keys []string
			for len(keys) < 500 && all.Next(ctx) {
				keys = append(keys, all.Val())
			}
			if err := all.Err(); err != nil {
				return n, err
			}
			if len(keys) == 0 {
				break
			}
			gone, err := node.Unlink(ctx, keys...).Result()
			n += gone
			if err != nil {
				return n, err
			}
		}
	}
	gone, err := rdb.Unlink(ctx, wire.TopologyKey(s.Prefix)).Result()
	return n + gone, err
}
