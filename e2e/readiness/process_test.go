package readiness

import (
	"os"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// onlyWhenAsked leaves a test to make e2e-all: it takes minutes on a host without /dev/kvm.
func onlyWhenAsked(t *testing.T) {
	t.Helper()
	if os.Getenv("OFFRAMP_E2E_ALL") != "1" {
		t.Skip("runs by make e2e-all, or with OFFRAMP_E2E_ALL=1")
	}
}

func eventually(t *testing.T, limit time.Duration, what string, happens func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !happens(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
