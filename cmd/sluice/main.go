// Sluice is the operator's tool: it looks into a deployment, and stands in for
// Discord.
//
//	sluice status    who holds what, and how far behind it is
//	sluice tail      the entries of the streams, as they come
//	sluice dead      what listeners were given up for, and another try
//	sluice topology  what all processes agree on
//	sluice sim       a Discord that plays a recorded session
//	sluice demo      everything in one process
//
// It reads the same configuration as the gateway and the workers, and ends with 0
// after success, 1 after a failure, 2 if it is called or configured wrongly; status
// --check also with 3 and 4, for what it has found.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/config"
	"github.com/sluicehq/sluice/internal/redisclient"
)

func main() { os.Exit(mainCode()) }

func mainCode() int {
	redisclient.LogTo(slog.New(slog.DiscardHandler)) // what matters is in the errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// run is the program; it returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	began := false // a command was found, with arguments and flags it has
	root := &cobra.Command{
		Use:               "sluice",
		Short:             "Look into a Sluice deployment, and stand in for Discord",
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.NoArgs,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRun:  func(*cobra.Command, []string) { began = true },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(deadCommand(), demoCommand(), simCommand(), statusCommand(), tailCommand(), topologyCommand())
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var usage *config.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintln(stderr, err)
		return usage.ExitCode()
	}
	var code exitError
	if errors.As(err, &code) {
		return int(code)
	}
	var wrong *usageError
	if !began || errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "sluice: %v\nsee %s --help\n", err, cmd.CommandPath())
		return config.ExitCode
	}
	fmt.Fprintln(stderr, "sluice:", err)
	return 1
}

// An exitError is an exit code whose reason has been written already.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("ends with %d", int(e)) }

// A usageError is a wrong flag or argument.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func wrongf(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// settings adds the flags of the configuration that a command has a use for.
func settings(cmd *cobra.Command, paths ...string) {
	all := config.Flags()
	for _, path := range append(paths, "config") {
		cmd.Flags().AddFlag(all.Lookup(path))
	}
}
