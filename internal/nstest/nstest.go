// Package nstest runs a test inside a network namespace of its own, so that kernel state which a test makes never
// touches the host's and is gone when the test ends, however it ends.
//
// A test that needs the kernel starts with
//
//	if !nstest.Enter(t) {
//		return
//	}
//
// What follows runs as root in a child process with fresh network, mount and PID namespaces.
package nstest

import (
	"os"
	"testing"
)

// Environment variables that steer kernel tests.
const (
	// RequireKernel set to "1" turns every skip for a missing privilege or tool into a failure.
	RequireKernel = "OFFRAMP_REQUIRE_KERNEL"
	// InGuest set to "1" says that the test runs in a guest of the lab, where every kernel feature has to be there.
	InGuest = "OFFRAMP_IN_GUEST"

	// childMarker names the test that a child process was started for.
	childMarker = "OFFRAMP_NSTEST_CHILD"
	// outsideMarker carries the identity of the network namespace that the child must not be in.
	outsideMarker = "OFFRAMP_NSTEST_OUTSIDE"
)

// Enter moves the calling test into fresh network, mount and PID namespaces. It returns true there, and false in the
// original process once the test has run in the other: the caller then returns at once.
//
// Inside, lo is up, /sys and /proc are the namespaces' own, mounts do not spread, and the test process is PID 1: every
// process that the test leaves behind dies with it. Output, failure and skip of the inner run become the outer test's.
// Without root the test is skipped, or fails under OFFRAMP_REQUIRE_KERNEL=1. Sub-tests may enter a namespace of
// their own.
func Enter(t *testing.T) bool {
	t.Helper()
	switch {
	case isInside(t.Name(), os.Getenv(childMarker)):
		if os.Getenv(childMarker) == t.Name() {
			prepare(t)
		}
		return true
	case os.Geteuid() != 0:
		unavailable(t, "needs root to make a network namespace")
		return false
	default:
		runInside(t)
		return false
	}
}

// unavailable skips the test, or fails it where skips are not allowed.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	if required() {
		t.Fatalf(format+" ("+RequireKernel+"=1 does not allow a skip)", args...)
	}
	t.Skipf(format, args...)
}

func required() bool { return os.Getenv(RequireKernel) == "1" }

func inGuest() bool { return os.Getenv(InGuest) == "1" }
