package bench_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

const (
	agent    = "/usr/local/bin/offramp-agent"
	proxy    = "/usr/local/bin/kube-proxy"
	stateDir = "/var/lib/offramp"

	// mostOfProxy and mostOfLoop are the limits: a clean-up takes at most so many times what the other way takes.
	mostOfProxy = 2.0
	mostOfLoop  = 0.05
)

// TestCleanupOfALargeNode takes the same node of 10,000 Services through three clean-ups. It runs where OFFRAMP_BENCH=1.
func TestCleanupOfALargeNode(t *testing.T) {
	if os.Getenv("OFFRAMP_BENCH") != "1" {
		t.Skip("a benchmark: make bench runs it")
	}
	real, err := kube.Build(t.Context(), kube.Proxy137, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	l := labtest.Start(t)
	g := labtest.Boot(t, l, lab.VM{Name: "bench", Kernel: "6.1", Memory: 2048, Disk: 512, Files: []lab.File{
		{Path: agent, Host: programs.Agent(), Mode: 0o755}, {Path: proxy, Host: real, Mode: 0o755},
	}})
	if err := g.MountDisk(t.Context(), stateDir); err != nil {
		t.Fatal(err)
	}
	node := newNode(t, g)
	loop := node.byHand()
	theirs := node.byKubeProxy()
	own := node.byAgent()
	judge(t, "kube-proxy --cleanup", own, theirs, mostOfProxy)
	judge(t, "a loop over the native tools", own, loop, mostOfLoop)
}

// judge prints a ratio with its limit, and fails where it is missed.
func judge(t *testing.T, what string, own, other time.Duration, most float64) {
	t.Helper()
	ratio, verdict := own.Seconds()/other.Seconds(), "met"
	if ratio > most {
		verdict = "MISSED"
	}
	fmt.Printf("bench: apply with backup and verification / %s: %.3f (%.1f s / %.1f s), at most %.2f: %s\n",
		what, ratio, own.Seconds(), other.Seconds(), most, verdict)
	if ratio > most {
		t.Errorf("%s: %.3f, at most %.2f", what, ratio, most)
	}
}

// timed runs a program in the guest and returns how long it took.
func timed(t *testing.T, g *lab.Guest, allowed []int, argv ...string) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	began := time.Now()
	result, err := g.Run(ctx, argv...)
	took := time.Since(began)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range allowed {
		if result.ExitCode == code {
			return took
		}
	}
	t.Fatalf("%s: exit status %d: %.2000s %.2000s", strings.Join(argv, " "), result.ExitCode, result.Stdout, result.Stderr)
	return 0
}
