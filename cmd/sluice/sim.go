package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/gateway/gatewaytest"
	"github.com/sluicehq/sluice/internal/corpus"
)

// simBufferBytes is what a session keeps of what it sent, for clients that resume.
const simBufferBytes = 256 << 20

type simOptions struct {
	addr        string
	rate        float64
	shards      int
	concurrency int
	record      string
	exit        bool
}

func simCommand() *cobra.Command {
	var o simOptions
	cmd := &cobra.Command{
		Use:   "sim [SESSION]",
		Short: "Be a Discord that plays a recorded session",
		Long: `Be a Discord: serve GET /gateway/bot and the gateway's WebSocket, take every token of
the right form, and play a recorded session to the shards that identify.

SESSION is a file of gateway messages, one JSON object a line with t, s, op and d as
Discord sent them; - is standard input. Without it the built-in session is played: one
READY, 5 guilds and 2,100 dispatches. Playing begins when all shards are connected. What
is played goes to the shard of its guild; shards that reconnect can resume.

The first line on standard output is the address as a variable for the gateway:
SLUICE_DISCORD_API_URL=http://…. At the end, which is an interrupt (or with --exit when
the clients have confirmed everything), the last lines sum up what happened.`,
		Example: "  sluice sim --shards 4 --rate 1000\n  SLUICE_DISCORD_API_URL=http://127.0.0.1:8091/api/v10 gateway",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			session := io.ReadCloser(nil)
			switch {
			case o.rate < 0:
				return wrongf("--rate is %v, want 0 or more dispatches a second", o.rate)
			case o.shards < 1:
				return wrongf("--shards is %d, want 1 or more", o.shards)
			case o.concurrency < 1:
				return wrongf("--max-concurrency is %d, want 1 or more", o.concurrency)
			case len(args) == 0:
				session = corpus.Session()
			case args[0] == "-":
				session = io.NopCloser(cmd.InOrStdin())
			default:
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				session = file
			}
			defer session.Close()
			return sim(cmd.Context(), o, session, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8091", "host:port to listen on; port 0 is a free one")
	flags.Float64Var(&o.rate, "rate", 0, "dispatches a second over all shards (default as fast as they are read)")
	flags.IntVar(&o.shards, "shards", 1, "number of shards to recommend")
	flags.IntVar(&o.concurrency, "max-concurrency", 1, "max_concurrency to report")
	flags.StringVar(&o.record, "record", "", "file to write every dispatch to that was sent, a JSON object a line")
	flags.BoolVar(&o.exit, "exit", false, "end once every shard has confirmed the last dispatch with a heartbeat")
	return cmd
}

// sim serves and plays until ctx ends, or everything is confirmed if o.exit.
func sim(ctx context.Context, o simOptions, session io.Reader, stdout, stderr io.Writer) (err error) {
	cfg := gatewaytest.Config{
		Addr: o.addr, Shards: o.shards, MaxConcurrency: o.concurrency, Ready: gatewaytest.Withhold, BufferBytes: simBufferBytes,
	}
	if o.record != "" {
		file, err := os.Create(o.record)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		cfg.Log = file
	}
	discord := gatewaytest.New(cfg)
	if err := discord.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, discord.Close()) }()
	fmt.Fprintf(stdout, "SLUICE_DISCORD_API_URL=%s\n", discord.URL())

	begun := time.Now()
	played, err := discord.Play(ctx, session, gatewaytest.PlayOptions{Rate: o.rate})
	interrupted := ctx.Err() != nil
	switch {
	case interrupted:
		fmt.Fprintf(stdout, "interrupted after %d dispatches of the session\n", played)
	case err != nil:
		return err
	default:
		fmt.Fprintf(stdout, "played the session: %d dispatches in %v\n", played, time.Since(begun).Round(time.Millisecond))
		if o.exit {
			if err := confirmed(ctx, discord); err == nil {
				fmt.Fprintln(stdout, "every shard has confirmed the last dispatch")
			}
		} else {
			fmt.Fprintln(stderr, "sluice sim: serving on until interrupted")
			<-ctx.Done()
		}
	}
	summarize(discord, stdout)
	return nil
}

// confirmed waits until each session that has a connection has confirmed its last
// dispatch. The sequence of a heartbeat is the last one that is safe, so that
// heartbeats are asked for.
func confirmed(ctx context.Context, discord *gatewaytest.Server) error {
	ask := time.NewTicker(500 * time.Millisecond)
	defer ask.Stop()
	for {
		last, shard := map[string]int64{}, map[string]int{}
		for _, s := range discord.Sent() {
			if discord.SessionID(s.Shard) == s.Session {
				last[s.Session], shard[s.Session] = s.Sequence, s.Shard
			}
		}
		for _, r := range discord.Received() {
			var safe int64
			if r.Op == 1 && json.Unmarshal(r.Data, &safe) == nil && safe >= last[r.Session] {
				delete(last, r.Session)
			}
		}
		if len(last) == 0 {
			return nil
		}
		for session := range last {
			// A shard without a connection is asked once it has resumed.
			_ = discord.RequestHeartbeat(shard[session])
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ask.C:
		}
	}
}

func summarize(discord *gatewaytest.Server, stdout io.Writer) {
	resumes, refused := discord.Resumes(), 0
	for _, r := range resumes {
		if !r.OK {
			refused++
		}
	}
	fmt.Fprintf(stdout, "sent:       %d dispatches\nidentifies: %d\nresumes:    %d (%d refused)\n",
		discord.SentCount(), len(discord.Identifies()), len(resumes), refused)
}
