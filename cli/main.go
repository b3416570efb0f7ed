// Command kubectl-offramp is people's way in: it asks the aggregator and prints what it is told. It judges nothing itself.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once, should the first not.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, lookup settings.Lookup, stdout, stderr io.Writer) int {
	//nolint:contextcheck // the commands take the context that cobra hands to them
	return program.Run(ctx, newRoot(time.Now), args, lookup, screen(stdout, lookup), stderr)
}
