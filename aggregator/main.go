// Command offramp-aggregator knows the whole fleet: agents report to it, people ask it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
	"offramp.dev/offramp/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, lookup settings.Lookup, stdout, stderr io.Writer) int {
	//nolint:contextcheck // cobra hands the context to the commands
	return program.Run(ctx, newRoot(), args, lookup, stdout, stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "offramp-aggregator",
		Short: "Know a whole fleet on its way off kube-proxy's ipvs mode",
		Long: `offramp-aggregator listens to the agents of a fleet and answers people: which nodes are ready to leave
kube-proxy's ipvs mode, which have leftovers, what would break. It keeps everything in memory: agents resend what it
lacks, so it may be restarted at any time.`,
		Example: "  offramp-aggregator run --tls-cert-file server.crt --tls-key-file server.key --client-ca-file nodes-ca.crt",
		Args:    cobra.ArbitraryArgs,
		RunE:    program.Group,
	}
	root.AddCommand(newRun(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Say which build this is",
		Long:    "version prints version, commit, date, Go version and platform on one line.",
		Example: "  offramp-aggregator version",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Println(version.Get())
			return nil
		},
	}
}
