// Package programs builds Offramp's three programs for tests that run them as people do: as processes.
package programs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/lab"
)

// folderVariable tells a test process that another one started, as internal/nstest does, where the programs are.
const folderVariable = "OFFRAMP_E2E_PROGRAMS"

// Main is the body of a TestMain: it builds the programs, runs the tests, removes the programs and returns the exit code.
func Main(m *testing.M) int {
	if os.Getenv(folderVariable) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "offramp-programs-")
	if err != nil {
		return failed(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := build(dir); err != nil {
		return failed(err)
	}
	if err := os.Setenv(folderVariable, dir); err != nil {
		return failed(err)
	}
	return m.Run()
}

func failed(err error) int {
	_, _ = fmt.Fprintln(os.Stderr, "building the programs under test:", err)
	return 1
}

func build(dir string) error {
	group, ctx := errgroup.WithContext(context.Background())
	for pkg, name := range map[string]string{"agent": "offramp-agent", "aggregator": "offramp-aggregator", "cli": "kubectl-offramp"} {
		group.Go(func() error { return lab.GoBuild(ctx, "offramp.dev/offramp/"+pkg, filepath.Join(dir, name)) })
	}
	return group.Wait()
}

// Agent is the path of offramp-agent. Like the others it is there only in tests that run under Main.
func Agent() string { return filepath.Join(os.Getenv(folderVariable), "offramp-agent") }

// Aggregator is the path of offramp-aggregator.
func Aggregator() string { return filepath.Join(os.Getenv(folderVariable), "offramp-aggregator") }

// Kubectl is the path of kubectl-offramp.
func Kubectl() string { return filepath.Join(os.Getenv(folderVariable), "kubectl-offramp") }
