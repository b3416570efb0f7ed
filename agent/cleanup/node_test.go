package cleanup_test

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// node is the namespace (or guest) that a test runs in, as a node to clean.
type node struct {
	t       *testing.T
	options cleanup.Options
	config  cleanup.ExecutorConfig
	// proxy is the capture whose kube-proxy seems to run; "" is none, as a person asserts.
	proxy string
	// unasserted: nobody asserts that none runs.
	unasserted bool
	// root is the host's root file system. It names nothing of kube-proxy's unless a test says so.
	root string
}

// newNode is a node without a kube-proxy, as a person asserts.
func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	return &node{
		t:       t,
		root:    emptyHost(t),
		options: cleanup.Options{Target: offrampv1.Target_TARGET_NONE},
		config: cleanup.ExecutorConfig{
			StateDir: filepath.Join(dir, "offramp"), XtablesLock: xtablesLock(t), LockWait: 2 * time.Second,
			AllowVolatile: cleanup.CheckStorage(dir, 0) != nil, // a guest of the lab lives in memory
		},
	}
}

// emptyHost is the root file system of a host that has nothing but its name: what is missing below it is missing. That of
// the machine which the test runs on may be a container's, of which nothing can be told.
func emptyHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc", "os-release"), []byte("ID=test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

// xtablesLock gives the namespace a lock of its own: the host's must not be held by a test.
func xtablesLock(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	return path
}

func (n *node) planner() *cleanup.Planner {
	config := collect.Config{Host: collect.DefaultHost(), Node: "node-0", AssertNone: "a test"}
	config.Host.Root = cmp.Or(n.root, config.Host.Root)
	if n.unasserted {
		config.AssertNone = ""
	}
	scanner := collect.New(config)
	return &cleanup.Planner{
		Read: func(ctx context.Context) (*cleanup.Reading, error) {
			node, inventory := scanner.Exact(ctx)
			if n.proxy != "" {
				section := facts.Find(node, offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY)
				section.Stable, section.Volatile = proxySection(n.t, n.proxy, 0)
				section.Stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
			}
			return &cleanup.Reading{Facts: node, Inventory: inventory}, nil
		},
		Options: n.options,
		Now:     time.Now,
	}
}

func (n *node) plan() *offrampv1.Plan {
	n.t.Helper()
	plan, _, err := n.planner().Plan(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return plan
}

// apply plans and applies that plan.
func (n *node) apply() *offrampv1.CleanupResult {
	n.t.Helper()
	result, err := n.applyPlan(n.plan())
	if err != nil {
		n.t.Fatal(err)
	}
	return result
}

func (n *node) applyPlan(plan *offrampv1.Plan) (*offrampv1.CleanupResult, error) {
	request := cleanup.Request{Digest: plan.GetDigest(), Plan: n.planner().Plan, Draining: n.options.Draining}
	return cleanup.NewExecutor(n.config).Apply(n.t.Context(), request)
}

// mustClean fails the test unless everything went.
func mustClean(t *testing.T, result *offrampv1.CleanupResult) {
	t.Helper()
	for _, guard := range result.GetRefusedBy() {
		t.Errorf("refused by %s: %v", guard.GetId(), guard.GetEvidence())
	}
	for i, operation := range result.GetOperations() {
		if outcome := operation.GetOutcome(); outcome != offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE {
			t.Errorf("operation %d: %v: %s", i, outcome, operation.GetError())
		}
	}
	if result.GetRemaining() != 0 || result.GetError() != "" {
		t.Errorf("%d operations remain, error %q", result.GetRemaining(), result.GetError())
	}
}

// tryTool runs a native tool that may fail.
func tryTool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	return string(out), err
}

// run runs a native tool and returns what it printed. Warnings are not of that: they would come in the middle of lines.
func run(t *testing.T, input string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var out, problems bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &problems
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v: %s%s", strings.Join(args, " "), err, out.String(), problems.String())
	}
	return out.String()
}
