package nstest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endMargin is how much earlier than the outer test the inner one times out, so that the goroutines which get dumped
// are those that hang.
const endMargin = 5 * time.Second

// runInside runs the test again in a child process and takes over its outcome.
func runInside(t *testing.T) {
	t.Helper()
	outside, err := os.Readlink(selfNetwork)
	if err != nil {
		t.Fatalf("nstest: reading this process' network namespace: %v", err)
	}
	// The parent-death signal is tied to the thread that starts the child, so that thread stays until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	relay := newRelay(t.Output(), t.Name())
	cmd := childCommand(t.Context(), t.Name(), timeout(t))
	cmd.Env = append(os.Environ(), childMarker+"="+t.Name(), outsideMarker+"="+outside)
	cmd.Stdout, cmd.Stderr = relay, relay
	err = cmd.Run()
	relay.flush()
	switch {
	case err != nil:
		t.Fatalf("nstest: inside the namespace: %v", err)
	case relay.skipped:
		t.Skip("skipped inside the namespace, for the reason above")
	case !relay.passed:
		t.Fatal("nstest: the child process ended without running the test")
	}
}

func childCommand(ctx context.Context, name string, limit time.Duration) *exec.Cmd {
	args := append(inherited(flag.CommandLine), "-test.v=true", "-test.count=1", "-test.run="+pattern(name))
	if limit > 0 {
		args = append(args, fmt.Sprintf("-test.timeout=%s", limit))
	}
	cmd := exec.CommandContext(ctx, os.Args[0], append(args, flag.Args()...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	cmd.WaitDelay = endMargin
	return cmd
}

// inherited returns the flags that the child gets as this process got them: the test binary's own, and of the testing
// package those that do not choose tests or name a file that both would write. The coverage folder is shared on
// purpose: counters of several processes are merged from it.
func inherited(flags *flag.FlagSet) []string {
	shared := map[string]bool{"test.short": true, "test.gocoverdir": true, "test.paniconexit0": true, "test.parallel": true}
	var args []string
	flags.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") || shared[f.Name] {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// pattern is the -test.run expression that fits the one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// timeout is what the child may take; 0 is no limit.
func timeout(t *testing.T) time.Duration {
	end, ok := t.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(end)-endMargin, time.Second)
}
