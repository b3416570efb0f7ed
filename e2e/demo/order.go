package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
)

// order has the aggregator pass an order on to the dirty node, shows what comes back, and checks the exit code.
func (s *stage) order(ctx context.Context, want int, args ...string) (string, error) {
	args = append([]string{"cleanup"}, args...)
	fmt.Printf("\n$ kubectl-offramp %s\n", strings.Join(args, " "))
	var shown bytes.Buffer
	cmd := s.kubectl(ctx, args...)
	cmd.Stdout, cmd.Stderr = &shown, os.Stderr
	err := cmd.Run()
	fmt.Print(head(shown.String(), shownLines))
	if err != nil && exitCode(err) < 0 {
		return "", fmt.Errorf("running kubectl-offramp: %w", err)
	}
	return shown.String(), sameCode("kubectl-offramp cleanup", want, cmd.ProcessState.ExitCode())
}
