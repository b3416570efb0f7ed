package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// Process is a program that runs in the background, on the host or in a virtual machine.
type Process interface {
	// Output is what it has written so far, both streams together.
	Output() string
	// Done is closed when it has ended.
	Done() <-chan struct{}
	// Stop asks it to end by SIGTERM, kills it after the grace time, and returns its exit status.
	Stop(grace time.Duration) (int, error)
	// Wait waits for its end and returns its exit status, 128 plus its number where a signal ended it.
	Wait() (int, error)
}

// hostProcess is a Process of the host, in the lab's network or another.
type hostProcess struct {
	cmd  *lab.HostCommand
	done chan struct{}
	err  error // of the wait; read after done is closed

	mu  sync.Mutex
	out bytes.Buffer
}

// startHost starts a prepared command and answers for it until its end.
func startHost(cmd *lab.HostCommand, stdin []byte) (*hostProcess, error) {
	p := &hostProcess{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.Stdin = p, p, bytes.NewReader(stdin)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Args[0], err)
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Write implements io.Writer.
func (p *hostProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// Output implements Process.
func (p *hostProcess) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Done implements Process.
func (p *hostProcess) Done() <-chan struct{} { return p.done }

// Stop implements Process.
func (p *hostProcess) Stop(grace time.Duration) (int, error) {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		return 137, p.kill()
	}
	return p.Wait()
}

// kill ends the process and waits until it is gone.
func (p *hostProcess) kill() error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_, err := p.Wait()
	return err
}

// Wait implements Process.
func (p *hostProcess) Wait() (int, error) {
	<-p.done
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return 0, nil
	case errors.As(p.err, &exit):
		status := exit.Sys().(syscall.WaitStatus)
		if status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return status.ExitStatus(), nil
	default:
		return 0, fmt.Errorf("waiting for %s: %w", p.cmd.Args[0], p.err)
	}
}

// pause waits a little. It is an error when ctx ends or the program has.
func pause(ctx context.Context, d time.Duration, ended <-chan struct{}) error {
	select {
	case <-time.After(d):
		return nil
	case <-ended:
		return errors.New("it has ended")
	case <-ctx.Done():
		return ctx.Err()
	}
}
