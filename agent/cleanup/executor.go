package cleanup

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ExecutorConfig is where an executor works and what it works with. Zero values stand for what a node needs.
type ExecutorConfig struct {
	// StateDir is where lock, journal and backups are. It has to be on the node's own disk.
	StateDir string
	// AllowVolatile: a person has said by name that a state folder will do which does not survive a restart.
	AllowVolatile bool
	// Proc is where the proc file system of the host is mounted; "/proc" by default.
	Proc string
	// XtablesLock is the file that all users of legacy tables lock; "/run/xtables.lock" by default.
	XtablesLock string
	// LockWait is how long legacy tables may be locked by others; 30 s by default, in whole seconds.
	LockWait time.Duration
	// Legacy runs iptables-legacy-restore; RunLegacy by default.
	Legacy LegacyRunner
	// Now is the node's clock; time.Now by default.
	Now func() time.Time
	// KeepRuns and KeepFor say which old backups and journals are removed when a new run begins: those beyond so many, and
	// those older than that. 10 and 90 days by default; the newest always stays.
	KeepRuns int
	KeepFor  time.Duration
}

// LocalExecutor does plans on the node that it runs on. It implements Executor.
type LocalExecutor struct {
	config ExecutorConfig
	random func([]byte) (int, error)
	// holding: this executor itself holds the lock of the state folder.
	holding atomic.Bool
}

// NewExecutor returns an executor for this node.
func NewExecutor(config ExecutorConfig) *LocalExecutor {
	config.Proc = cmp.Or(config.Proc, "/proc")
	config.XtablesLock = cmp.Or(config.XtablesLock, "/run/xtables.lock")
	config.LockWait = cmp.Or(config.LockWait, 30*time.Second)
	config.KeepRuns = cmp.Or(config.KeepRuns, 10)
	config.KeepFor = cmp.Or(config.KeepFor, 90*24*time.Hour)
	if config.Legacy == nil {
		config.Legacy = RunLegacy
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &LocalExecutor{config: config, random: rand.Read}
}

func (e *LocalExecutor) tools() legacyTools {
	return legacyTools{e.config.Legacy, e.config.Proc, e.config.LockWait}
}

// Guards implements Executor.
func (e *LocalExecutor) Guards(ctx context.Context, plan *offrampv1.Plan, reading *Reading) []*offrampv1.GuardFinding {
	if len(plan.GetOperations()) == 0 {
		return nil
	}
	guards := e.guards(ctx, plan, reading)
	switch held, err := isLocked(e.config.StateDir); {
	case e.holding.Load(): // Apply plans anew while it holds the lock
	case err != nil:
		guards = append(guards, Finding(GuardCleanupRunning, err.Error()))
	case held:
		guards = append(guards, Finding(GuardCleanupRunning, ErrLocked.Error()))
	}
	return guards
}

// guards are those of Guards but for the lock of the state folder, which Apply itself holds.
func (e *LocalExecutor) guards(ctx context.Context, plan *offrampv1.Plan, reading *Reading) []*offrampv1.GuardFinding {
	var guards []*offrampv1.GuardFinding
	err := CheckStorage(e.config.StateDir, roomFor(plan, reading.Inventory))
	willDo := e.config.AllowVolatile && errors.Is(err, ErrNotDurable)
	if err != nil && !willDo && !errors.Is(err, ErrNoRoom) {
		guards = append(guards, Finding(GuardNoDurableStorage, err.Error()))
	}
	if errors.Is(err, ErrNoRoom) {
		guards = append(guards, Finding(GuardNoRoom, err.Error()))
	}
	if slices.ContainsFunc(plan.GetOperations(), isLegacy) {
		if err := waitForLegacyLock(ctx, e.config.XtablesLock, e.config.LockWait); err != nil {
			guards = append(guards, Finding(GuardLockHeld, err.Error()))
		}
	}
	return guards
}

// roomFor guesses how many bytes backup and journal take: measured, a rule takes 1.5 KiB in both formats, all else less.
func roomFor(plan *offrampv1.Plan, node *inventory.Node) uint64 {
	const perOperation, perObject, perRule = 512, 256, 2048
	room := uint64(len(plan.GetOperations())) * perOperation
	for _, operation := range plan.GetOperations() {
		room += operation.GetDestroySet().GetEntries()*perObject + operation.GetDeleteChain().GetRules()*perRule +
			operation.GetDeleteLink().GetAddresses()*perObject + uint64(operation.GetDeleteVirtualServer().GetRealServers())*perObject
	}
	for _, table := range node.Tables {
		room += (table.Rules + table.Chains + table.Sets) * perRule
	}
	return room
}

func isLegacy(operation *offrampv1.Operation) bool {
	section := cmp.Or(operation.GetDeleteRule().GetSection(), operation.GetDeleteChain().GetSection())
	return section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4 ||
		section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
}

// waitForLegacyLock waits until nobody holds the lock of legacy tables, and does not keep it. Without the file nobody does.
func waitForLegacyLock(ctx context.Context, path string, wait time.Duration) error {
	file, err := os.Open(path) //nolint:gosec // where the lock is, is configured
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the lock of iptables: %w", err)
	}
	defer func() { _ = file.Close() }()
	const pause = 50 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil // closing the file gives it back
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("look at the lock of iptables: %w", err)
		case waited >= wait:
			return fmt.Errorf("%s was held for %s", path, wait)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}
