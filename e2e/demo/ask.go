package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// kubectl prepares kubectl-offramp beside the aggregator.
func (s *stage) kubectl(ctx context.Context, args ...string) *lab.HostCommand {
	cmd := s.lab.Command(ctx, append([]string{s.programs.kubectl}, args...)...)
	cmd.Env = append(os.Environ(), "OFFRAMP_AGGREGATOR="+s.address(), "OFFRAMP_CA_FILE="+s.programs.certificates.CA)
	return cmd
}

// ask shows a question and its answer, and checks the exit code.
func (s *stage) ask(ctx context.Context, want int, args ...string) error {
	fmt.Printf("\n$ kubectl-offramp %s\n", strings.Join(args, " "))
	cmd := s.kubectl(ctx, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil && exitCode(err) < 0 {
		return fmt.Errorf("running kubectl-offramp: %w", err)
	}
	return sameCode("kubectl-offramp "+strings.Join(args, " "), want, cmd.ProcessState.ExitCode())
}

// verifyOnNodes runs offramp-agent verify on each node, which needs no aggregator.
func (s *stage) verifyOnNodes(ctx context.Context) error {
	for _, asked := range []struct {
		node, target string
		want         int
	}{
		{"node-a", "nftables", 2}, // runs another mode
		{dirty, "iptables", 3},    // runs it, with leftovers
		{"node-c", "nftables", 0}, // runs it, and is clean
	} {
		fmt.Printf("\n%s$ offramp-agent verify --target %s\n", asked.node, asked.target)
		result, err := s.node(asked.node).guest.Run(ctx, agentPath, "verify", "--target", asked.target, "--node", asked.node)
		if err != nil {
			return fmt.Errorf("running offramp-agent on %s: %w", asked.node, err)
		}
		fmt.Print(result.Stdout, result.Stderr)
		if err := sameCode("offramp-agent verify on "+asked.node, asked.want, result.ExitCode); err != nil {
			return err
		}
	}
	return nil
}

func sameCode(what string, want, got int) error {
	fmt.Printf("(exit code %d)\n", got)
	if got != want {
		return fmt.Errorf("%s: exit code %d, want %d", what, got, want)
	}
	return nil
}

// exitCode is a program's exit code, or -1 for an error that is none.
func exitCode(err error) int {
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // exec returns it bare
		return exit.ExitCode()
	}
	return -1
}
