package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/redisclient"
)

func statusCommand() *cobra.Command {
	var (
		output string
		lanes  bool
		check  bool
		limits limits
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show who holds what, and how far behind it is",
		Long: `Show the deployment's topology, the shards with the gateways that hold them, and for each
group its workers, and its lanes: their owner, how many entries are not read yet (lag)
and for how long, how many are pending (read, not acknowledged) and for how long, how
many of them have failed somewhere, the dead letters, and what was trimmed before the
group had it. It only reads.

? stands for a lag that Redis does not know. Idle lanes are left out when there are more
than 16 (--lanes shows them).

With --check it says only what is wrong, a line each, and ends with 3 if all of that are
warnings, with 4 if something is critical.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := config.FromFlags(cmd.Flags())
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			if limits.warning < 0 || limits.critical < limits.warning {
				return wrongf("--lag-warning is %v and --lag-critical %v, want 0 or more, and the second not below the first", limits.warning, limits.critical)
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
			s.Problems = s.judge(limits)
			defer func() {
				if err == nil && check {
					err = s.verdict()
				}
			}()
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetEscapeHTML(false)
				return enc.Encode(s)
			}
			if check {
				return s.writeProblems(cmd.OutOrStdout())
			}
			return s.write(cmd.OutOrStdout(), lanes)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVar(&lanes, "lanes", false, "show idle lanes too")
	cmd.Flags().BoolVar(&check, "check", false, "say only what is wrong, and end with 3 (warnings) or 4 (critical)")
	cmd.Flags().DurationVar(&limits.warning, "lag-warning", time.Minute, "how far behind a group may be before that is a warning")
	cmd.Flags().DurationVar(&limits.critical, "lag-critical", 10*time.Minute, "or critical")
	settings(cmd, "redis.url", "redis.prefix", "forward.abandon_after")
	return cmd
}

// A status is what sluice status shows. Times are unix ms, ages seconds.
type status struct {
	Prefix      string        `json:"prefix"`
	Application string        `json:"application"`
	Shards      int           `json:"shards"`
	Lanes       int           `json:"lanes"` // per shard
	Created     int64         `json:"created"`
	Redis       []redisStatus `json:"redis"` // one, or each master of a cluster
	Held        []shardStatus `json:"held"`
	Groups      []groupStatus `json:"groups"`

	Problems []problem `json:"problems"`

	now     time.Time // Redis'
	abandon time.Duration
}

// A redisStatus is a server. Sizes are bytes.
type redisStatus struct {
	Version string `json:"version"`
	Used    int64  `json:"used"`
	Max     int64  `json:"max"` // 0: there is no maxmemory
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

	Unserved  float64      `json:"unserved"`  // since a live worker was last seen; -1: not known
	Abandoned bool         `json:"abandoned"` // for so long that entries are no longer kept for it
	Unread    int64        `json:"unread"`    // trimmed before the group had read them
	Unacked   int64        `json:"unacked"`   // trimmed before it had acknowledged them
	Trimmed   int64        `json:"trimmed"`   // when the last of those were; 0: never
	Lanes     []laneStatus `json:"lanes"`
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
