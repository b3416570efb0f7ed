package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inGuest runs f on a thread in the guest's own network namespace, that of PID 1. The thread ends with f, so that none
// of the server's is left there; a process that f starts stays there.
func inGuest(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		space, err := os.Open("/proc/1/ns/net")
		if err != nil {
			result <- fmt.Errorf("opening the guest's network namespace: %w", err)
			return
		}
		defer func() { _ = space.Close() }()
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering the guest's network namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
