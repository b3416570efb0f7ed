package cleanup_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// enterDirty makes a namespace with the zoo and what the main switch leaves, in both backends. It returns what the native
// tools print without kube-proxy's.
func enterDirty(t *testing.T) (string, bool) {
	t.Helper()
	if !nstest.Enter(t) {
		return "", false
	}
	needNetfilter(t)
	zoo(t)
	before := look(t)
	kubeProxy(t, "after-kube-proxy-cleanup")
	return before, true
}

// crashing is set for the process that is to be killed in the middle of an apply.
const crashing = "OFFRAMP_TEST_CRASH_AFTER"

// Killed before or after any line of the journal, the next run tells so and finishes the rest: the state is then as if
// nothing had happened.
func TestKilledAnywhereTheRestIsFinished(t *testing.T) {
	if dir := os.Getenv(crashing); dir != "" {
		crashingApply(t, dir)
		return
	}
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	for lines := range wholeRun + 1 {
		t.Run(fmt.Sprintf("after %d lines", lines), func(t *testing.T) { killedAfter(t, lines) })
	}
}

// wholeRun is how many lines the journal of the clean-up that is killed has at most: begin, backup, an intent and an outcome for
// each part, the end. Where a table of the legacy backend is not there, its part is not either; a part that is tried once more,
// since something moved meanwhile, has two lines more.
const wholeRun = 20

// killedAfter kills a clean-up after so many lines and lets another one finish.
func killedAfter(t *testing.T, lines int) {
	t.Helper()
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	n := newNode(t)
	killed := n.killAfter(lines)
	if got := journalLines(n.config.StateDir); got > wholeRun {
		t.Errorf("a run has %d lines, so that it is not killed after each", got)
	}
	runs, err := cleanup.ReadJournal(n.config.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		t.Logf("killed: %v; %s", killed, run.Summary())
		n.checkIntent(run)
	}
	mustClean(t, n.apply())
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after both runs (+):\n%s", diff)
	}
	runs, err = cleanup.ReadJournal(n.config.StateDir)
	if err != nil || slices.ContainsFunc(runs, (*cleanup.Run).Interrupted) {
		t.Errorf("a run is open after the next one (%v)", err)
	}
}

// checkIntent makes sure that nothing is gone that the journal says was not tried, and nothing there that it says is done.
func (n *node) checkIntent(run *cleanup.Run) {
	n.t.Helper()
	if run.Plan == nil {
		return
	}
	left := map[string]bool{}
	for _, operation := range n.plan().GetOperations() {
		left[operationName(operation)] = true
	}
	for i, operation := range run.Plan.GetOperations() {
		name := operationName(operation)
		switch run.Outcomes[i] {
		case offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE:
			if left[name] {
				n.t.Errorf("%s is there, and the journal says it was done", name)
			}
		case offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED:
			if !left[name] {
				n.t.Errorf("%s is gone, and the journal says it was not tried", name)
			}
		}
	}
}

// operationName tells operations apart, positions left out: those move.
func operationName(operation *offrampv1.Operation) string {
	bare := proto.CloneOf(operation)
	bare.Transaction = 0
	if rule := bare.GetDeleteRule(); rule != nil {
		rule.Position = 0
	}
	return bare.String()
}

// killAfter runs an apply in a process of its own and kills it once its journal has so many lines. It is false when the
// process was faster.
func (n *node) killAfter(lines int) bool {
	n.t.Helper()
	command := exec.CommandContext(n.t.Context(), os.Args[0], "-test.run=^TestKilledAnywhereTheRestIsFinished$")
	command.Env = append(os.Environ(), crashing+"="+n.config.StateDir)
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				n.t.Fatalf("the apply that was to be killed: %v", err)
			}
			return false
		default:
		}
		if journalLines(n.config.StateDir) >= lines {
			_ = command.Process.Signal(syscall.SIGKILL)
			return <-ended != nil
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func journalLines(dir string) int {
	paths, _ := filepath.Glob(filepath.Join(dir, "journal", "*.jsonl"))
	count := 0
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		count += strings.Count(string(content), "\n")
	}
	return count
}

// crashingApply is what the process does that is killed.
func crashingApply(t *testing.T, dir string) {
	t.Helper()
	n := &node{t: t, root: emptyHost(t), options: cleanup.Options{Target: offrampv1.Target_TARGET_NONE}, config: cleanup.ExecutorConfig{StateDir: dir, AllowVolatile: true}}
	n.apply()
}

// Of ten at once one does it, and the others say who does; together they do it once.
func TestTenAtOnce(t *testing.T) {
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	n := newNode(t)
	plan := n.plan()
	results := make([]*offrampv1.CleanupResult, 10)
	errs := make([]error, 10)
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i], errs[i] = n.applyPlan(plan) })
	}
	all.Wait()
	did := 0
	for i, result := range results {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if len(result.GetRefusedBy()) == 0 {
			did++
			mustClean(t, result)
			continue
		}
		if id := result.GetRefusedBy()[0].GetId(); id != cleanup.GuardCleanupRunning && id != cleanup.GuardPlanChanged {
			t.Errorf("refused by %s", id)
		}
	}
	if did != 1 {
		t.Errorf("%d of 10 did it, want 1", did)
	}
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after (+):\n%s", diff)
	}
}

// A ruleset that somebody else changes many times a second, as kube-proxy may for a while, makes readings and transactions try again:
// apply gets there, as long as the plan comes out the same. A try that does not says so and has changed nothing.
func TestGenerationMovesAllTheTime(t *testing.T) {
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	n := newNode(t)
	plan, dirty := n.plan(), look(t)
	stop := moveGeneration(t)
	var result *offrampv1.CleanupResult
	for try := range 3 {
		var err error
		if result, err = n.applyPlan(plan); err != nil {
			t.Fatal(err)
		}
		refused := result.GetRefusedBy()
		if len(refused) == 0 {
			break
		}
		if diff := cmp.Diff(dirty, look(t)); refused[0].GetId() != cleanup.GuardPlanChanged || diff != "" {
			t.Fatalf("try %d was refused by %s and changed (-before +after):\n%s", try, refused[0].GetId(), diff)
		}
	}
	took := result.GetEndedAt().AsTime().Sub(result.GetBeganAt().AsTime())
	t.Logf("%d moves of the generation, apply took %s", stop(), took)
	mustClean(t, result)
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after (+):\n%s", diff)
	}
}

// moveGeneration commits one transaction after the other that change nothing, until it is stopped, and tells how many.
func moveGeneration(t *testing.T) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	moves := 0
	var moving sync.WaitGroup
	moving.Go(func() {
		for ctx.Err() == nil {
			if exec.Command("nft", "add table ip moving; delete table ip moving").Run() == nil {
				moves++
			}
			// About 15 to 20 moves a second: at 45 a reading under the race detector no longer settles within its 10 s.
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	stop = func() int {
		cancel()
		moving.Wait()
		return moves
	}
	t.Cleanup(func() { stop() })
	return stop
}

// A node that is no longer what the person agreed to is refused, and nothing changes.
func TestAnotherPlanIsRefused(t *testing.T) {
	if _, inside := enterDirty(t); !inside {
		return
	}
	n := newNode(t)
	plan := n.plan()
	run(t, "", "iptables-nft", "-t", "nat", "-N", "KUBE-NODE-PORT")
	dirty := look(t)
	result, err := n.applyPlan(plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.GetRefusedBy()) != 1 || result.GetRefusedBy()[0].GetId() != cleanup.GuardPlanChanged {
		t.Errorf("refused by %v, want %s", result.GetRefusedBy(), cleanup.GuardPlanChanged)
	}
	if diff := cmp.Diff(dirty, look(t)); diff != "" {
		t.Errorf("a refused apply changed something:\n%s", diff)
	}
	if backups, err := cleanup.Backups(n.config.StateDir); err != nil || len(backups) != 0 {
		t.Errorf("%d backups of nothing, error %v", len(backups), err)
	}
}

// Without room for backup and journal nothing is changed; that a disk fills up between the look and the write as well.
func TestFullDisk(t *testing.T) {
	if _, inside := enterDirty(t); !inside {
		return
	}
	dirty := look(t)
	for _, size := range []string{"64k", "300k", "17m"} {
		t.Run(size, func(t *testing.T) {
			n := newNode(t)
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
			n.config.StateDir, n.config.AllowVolatile = filepath.Join(dir, "offramp"), true
			result, err := n.applyPlan(n.plan())
			if err == nil && (len(result.GetRefusedBy()) == 0 || result.GetRefusedBy()[0].GetId() != cleanup.GuardNoRoom) {
				t.Errorf("refused by %v, want %s", result.GetRefusedBy(), cleanup.GuardNoRoom)
			}
			if diff := cmp.Diff(dirty, look(t)); diff != "" {
				t.Errorf("it changed something:\n%s", diff)
			}
		})
	}
}

// While somebody holds the lock of legacy tables, the clean-up waits, and refuses before it has changed anything.
func TestLegacyLockIsHeld(t *testing.T) {
	before, inside := enterDirty(t)
	if !inside {
		return
	}
	dirty := look(t)
	n := newNode(t)
	file, err := os.Create(n.config.XtablesLock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	result := n.apply()
	if len(result.GetRefusedBy()) != 1 || result.GetRefusedBy()[0].GetId() != cleanup.GuardLockHeld {
		t.Errorf("refused by %v, want %s", result.GetRefusedBy(), cleanup.GuardLockHeld)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(dirty, look(t)); diff != "" {
		t.Errorf("a refused apply changed something:\n%s", diff)
	}
	time.AfterFunc(500*time.Millisecond, func() { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) })
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	mustClean(t, n.apply())
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after (+):\n%s", diff)
	}
}

// Without the program for legacy tables, all else is still cleaned, and it is told what remains.
func TestWithoutTheLegacyProgramTheRestIsCleaned(t *testing.T) {
	if _, inside := enterDirty(t); !inside {
		return
	}
	n := newNode(t)
	n.config.Legacy = func(context.Context, string, []string, []byte) ([]byte, error) { return nil, exec.ErrNotFound }
	result := n.apply()
	legacy, other := 0, 0
	for _, operation := range n.plan().GetOperations() {
		if strings.Contains(operation.String(), "LEGACY") || strings.Contains(operation.String(), "destroy_set") {
			legacy++
			continue
		}
		other++
	}
	if legacy == 0 || other != 0 {
		t.Errorf("%d of legacy and %d others remain, want only legacy ones and the sets that they hold", legacy, other)
	}
	if result.GetRemaining() != uint64(legacy) {
		t.Errorf("%d remain by the result, %d by a new plan", result.GetRemaining(), legacy)
	}
	for i, operation := range result.GetOperations() {
		if operation.GetOutcome() == offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS && operation.GetError() == "" {
			t.Errorf("operation %d remains without a reason", i)
		}
	}
}

// A set that a rule of somebody else matches stays, with its holder named; the guard of it is overridden here by leaving it
// out. A set that is only busy for a moment goes.
func TestHeldSetIsReported(t *testing.T) {
	if _, inside := enterDirty(t); !inside {
		return
	}
	run(t, "", "ip6tables-nft", "-A", "INPUT", "-m", "set", "--match-set", "KUBE-6-CLUSTER-IP", "dst,dst", "-j", "DROP")
	n := newNode(t)
	plan := n.plan()
	plan.Guards = nil
	request := cleanup.Request{Digest: plan.GetDigest(), Plan: func(ctx context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
		plan, reading, err := n.planner().Plan(ctx)
		if err == nil {
			plan.Guards = nil
		}
		return plan, reading, err
	}}
	result, err := cleanup.NewExecutor(n.config).Apply(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for i, operation := range plan.GetOperations() {
		outcome := result.GetOperations()[i]
		if operation.GetDestroySet().GetName() != "KUBE-6-CLUSTER-IP" {
			if outcome.GetOutcome() != offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE {
				t.Errorf("%v: %v %s", operation, outcome.GetOutcome(), outcome.GetError())
			}
			continue
		}
		held++
		if outcome.GetOutcome() != offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS || !strings.Contains(outcome.GetError(), "held by ip6tables-nft table filter chain INPUT rule") {
			t.Errorf("%v %q, want that it remains and who holds it", outcome.GetOutcome(), outcome.GetError())
		}
	}
	if held != 1 || result.GetRemaining() != 1 {
		t.Errorf("%d held, %d remain, want 1 and 1", held, result.GetRemaining())
	}
}
