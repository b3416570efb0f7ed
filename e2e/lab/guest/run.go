package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/lab/wire"
)

// pipeDelay is how long output is waited for that somebody other than the program itself may still write.
const pipeDelay = 2 * time.Second

// run carries out a program in a process group of its own. The group is killed when the lab hangs up.
func (s *session) run(r wire.Run) (int, error) {
	if len(r.Argv) == 0 {
		return 0, errors.New("no program named")
	}
	cmd := exec.Command(r.Argv[0], r.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdin = append(environment(), r.Env...), r.Dir, bytes.NewReader(r.Stdin)
	cmd.Stdout, cmd.Stderr = s.output(false), s.output(true)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = pipeDelay
	if err := inGuest(cmd.Start); err != nil {
		return 0, fmt.Errorf("starting %s: %w", r.Argv[0], err)
	}
	go s.signals(cmd.Process.Pid)
	err := cmd.Wait()
	if cmd.ProcessState == nil {
		return 0, fmt.Errorf("waiting for %s: %w", r.Argv[0], err)
	}
	return exitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus)), nil
}

// signals passes the lab's signals on to a process group until the connection ends, and then kills what is left of it.
// It is the one reader of the connection from here on, and ends with it.
func (s *session) signals(group int) {
	for {
		var signal wire.Signal
		if err := s.dec.Decode(&signal); err != nil {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		}
		_ = syscall.Kill(-group, syscall.Signal(signal.Number))
	}
}

func exitStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
