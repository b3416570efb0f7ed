// Package labtest starts labs for tests.
package labtest

import (
	"errors"
	"os"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/internal/nstest"
)

// Start starts a lab that ends with the test. Without root or the lab's tools the test is skipped, or fails under
// OFFRAMP_REQUIRE_KERNEL=1. Inside a guest it is always skipped: a lab in a lab shows nothing.
func Start(t *testing.T) *lab.Lab {
	t.Helper()
	if os.Getenv(nstest.InGuest) == "1" {
		t.Skip("needs a host: it boots virtual machines")
	}
	if err := possible(); err != nil {
		if os.Getenv(nstest.RequireKernel) == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	l, err := lab.Start(t.Context(), lab.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	return l
}

func possible() error {
	if os.Geteuid() != 0 {
		return errors.New("needs root to start a lab")
	}
	return lab.CheckTools()
}

// Boot boots a guest of the lab. When the test has failed, the guest's console is in its output.
func Boot(t *testing.T, l *lab.Lab, vm lab.VM) *lab.Guest {
	t.Helper()
	guest, err := l.Boot(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console of %s:\n%s", guest.Name, guest.Log())
		}
	})
	t.Logf("%s: kernel %s up after %s by %s", guest.Name, guest.Release, guest.BootTime.Round(time.Millisecond), guest.Accel)
	return guest
}
