package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/lab"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// live is a world whose node under test has the real agent, for clean-ups beside a kube-proxy that runs.
type live struct {
	*world
	agent []string // the agent's command
	state string   // its folder for backups and journal, on a disk
	// pace is that of requests on a path: 10 a second in a virtual machine, 100 in a namespace. A machine in software stands
	// still for seconds where the host is busy; what a clean-up breaks is refused at once or hangs for good.
	pace cluster.Pace
}

func newLive(t *testing.T, spec cluster.NodeSpec) *live {
	t.Helper()
	built := filepath.Join(t.TempDir(), "offramp-agent")
	if err := lab.GoBuild(t.Context(), "offramp.dev/offramp/agent", built); err != nil {
		t.Fatal(err)
	}
	if spec.Kernel == "" {
		// This machine's own root says nothing of a node, and may be made from a container's image.
		root := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o750), os.WriteFile(filepath.Join(root, "etc", "os-release"), []byte("ID=test\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		return &live{
			world: newWorld(t, spec), agent: []string{"env", "OFFRAMP_HOST_ROOT=" + root, built}, state: filepath.Join(t.TempDir(), "state"),
			pace: cluster.Pace{Interval: 10 * time.Millisecond, Timeout: 3 * time.Second},
		}
	}
	const path = "/usr/local/bin/offramp-agent"
	// The one processor of a machine in software is for the traffic first, as it is where a pod's share of it is bounded.
	l := &live{agent: []string{"sh", "-c", `busybox renice -n 5 -p $$ && exec "$@"`, "sh", path}, state: "/var/lib/offramp", pace: cluster.Pace{Interval: 100 * time.Millisecond, Timeout: 10 * time.Second}}
	spec.Files = []lab.File{{Path: path, Host: built, Mode: 0o755}}
	spec.Disk = 64
	l.world = newWorld(t, spec)
	if err := l.node.Guest.MountDisk(t.Context(), l.state); err != nil {
		t.Fatal(err)
	}
	return l
}

// startWithout starts a kube-proxy for which programs are broken, and waits until it is in sync.
func (l *live) startWithout(t *testing.T, mode string, programs ...string) *cluster.Proxy {
	t.Helper()
	return clustertest.StartProxy(t, l.node, cluster.ProxyConfig{Mode: mode, StrictARP: true, Without: programs})
}

// command is the agent's with the node's name.
func (l *live) command(args ...string) []string {
	return slices.Concat(l.agent, []string{"--node", l.node.Name}, args)
}

// run runs the agent to its end. A kube-proxy that did not answer in time on a busy host is an answer of its own, 4.
func (l *live) run(t *testing.T, args ...string) lab.Result {
	t.Helper()
	for try := 1; ; try++ {
		result, err := l.node.Run(t.Context(), l.command(args...)...)
		if err != nil {
			t.Fatal(err)
		}
		if result.ExitCode != 4 || try == 5 {
			return result
		}
		t.Logf("try %d of %v could not tell:\n%s%s", try, args, result.Stdout, result.Stderr)
	}
}

// mustExit runs the agent and holds it to an exit status.
func (l *live) mustExit(t *testing.T, want int, args ...string) string {
	t.Helper()
	result := l.run(t, args...)
	if result.ExitCode != want {
		t.Fatalf("%v: exit status %d, want %d:\n%s%s", args, result.ExitCode, want, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// applyArgs are those of a clean-up for a target.
func (l *live) applyArgs(target string, more ...string) []string {
	return append([]string{"cleanup", "apply", "--target", target, "--state-dir", l.state, "-o", "json"}, more...)
}

// plan is what a clean-up for a target would do now, with its exit status.
func (l *live) plan(t *testing.T, target string, more ...string) (*offrampv1.Plan, int) {
	t.Helper()
	result := l.run(t, append([]string{"cleanup", "plan", "--target", target, "--state-dir", l.state, "-o", "json"}, more...)...)
	plan := &offrampv1.Plan{}
	if err := protojson.Unmarshal([]byte(result.Stdout), plan); err != nil {
		t.Fatalf("reading a plan (exit status %d): %v: %s", result.ExitCode, err, result.Stderr)
	}
	return plan, result.ExitCode
}

// refusals are the ids of the guards that a result was refused by.
func refusals(t *testing.T, text string) []string {
	t.Helper()
	result := &offrampv1.CleanupResult{}
	if err := protojson.Unmarshal([]byte(text), result); err != nil {
		t.Fatalf("reading what became of an apply: %v: %s", err, text)
	}
	ids := make([]string, 0, len(result.GetRefusedBy()))
	for _, guard := range result.GetRefusedBy() {
		ids = append(ids, guard.GetId())
	}
	return ids
}

// background starts the agent on the node; it is ended with the test.
func (l *live) background(t *testing.T, args ...string) cluster.Process {
	t.Helper()
	process, err := l.node.Start(t.Context(), nil, l.command(args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = process.Stop(10 * time.Second) })
	return process
}

// inItsOwnTime skips a test that takes five minutes and whose requests time out on a host that has ten times more to do than it
// can. It runs by make e2e-all, or with OFFRAMP_E2E_LIVE=1.
func inItsOwnTime(t *testing.T) {
	t.Helper()
	if !everyKernel() && os.Getenv("OFFRAMP_E2E_LIVE") != "1" {
		t.Skip("runs by make e2e-all, or with OFFRAMP_E2E_LIVE=1: it takes five minutes")
	}
}

// everyKernel asks for the kernels that make e2e leaves out.
func everyKernel() bool { return os.Getenv(everyVariable) == "1" }

// contains fails the test where a word is missing.
func contains(t *testing.T, what string, words []string, want string) {
	t.Helper()
	if !slices.Contains(words, want) {
		t.Errorf("%s: %s, want %s among them", what, strings.Join(words, ", "), want)
	}
}
