package main

import (
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/internal/demo"
)

// demoCommand is the whole thing in one process.
func demoCommand() *cobra.Command {
	var rate float64
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything in one process, and see dispatches arrive",
		Long: "Run everything in one process: an embedded Redis, a simulated Discord that plays a recorded session, a gateway, and two\n" +
			"workers whose listeners print what they see. The gateway and a worker are restarted on the way. It ends by itself within a\n" +
			"minute, with a summary that checks itself, and with 1 if a check fails.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo.Run(cmd.Context(), cmd.OutOrStdout(), demo.Options{Rate: rate})
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 120, "dispatches a second")
	return cmd
}
