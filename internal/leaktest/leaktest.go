// Package leaktest fails a test that leaves goroutines behind.
package leaktest

import (
	"runtime"
	"testing"
	"time"
)

// patience is how long goroutines that were told to end may take.
const patience = 10 * time.Second

// Check notes how many goroutines there are and fails the test when there are more at its very end. Call it first, so that
// its cleanup runs last. Tests that run in parallel cannot be told apart.
func Check(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		t.Helper()
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if runtime.NumGoroutine() <= before {
				return
			}
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d before the test:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
}
