package lab

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/lab/wire"
)

// Process is a program that runs in a guest in the background.
type Process struct {
	call   *call
	cancel context.CancelFunc
	output *lockedBuffer
	done   chan struct{}
	code   int
	err    error
}

// Start starts a program in the guest. It runs until it ends by itself, is stopped, or ctx ends. Where c names no
// writers its output is kept for Output.
func (g *Guest) Start(ctx context.Context, c Command) (*Process, error) {
	ctx, cancel := context.WithCancel(ctx)
	started, err := g.call(ctx, c.request())
	if err != nil {
		cancel()
		return nil, err
	}
	p := &Process{call: started, cancel: cancel, output: &lockedBuffer{}, done: make(chan struct{})}
	stdout, stderr := c.Stdout, c.Stderr
	if stdout == nil {
		stdout = p.output
	}
	if stderr == nil {
		stderr = p.output
	}
	go func() {
		defer close(p.done)
		defer cancel()
		p.code, p.err = started.finish(stdout, stderr)
	}()
	return p, nil
}

// Output is what the program has written so far, both streams together.
func (p *Process) Output() string { return p.output.String() }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the program's end and returns its exit status, 128 plus its number where a signal ended it.
func (p *Process) Wait() (int, error) {
	<-p.done
	return p.code, p.err
}

// Signal sends a signal to the program and to all of its process group.
func (p *Process) Signal(signal syscall.Signal) error {
	if err := p.call.enc.Encode(wire.Signal{Number: int(signal)}); err != nil {
		return fmt.Errorf("sending a signal: %w", err)
	}
	return nil
}

// Stop asks the program to end by SIGTERM, and kills it after the grace time. It returns its exit status.
func (p *Process) Stop(grace time.Duration) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		return p.Kill()
	}
	return p.Wait()
}

// Kill ends the program by SIGKILL and returns its exit status, which is 137.
func (p *Process) Kill() (int, error) {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	return p.Wait()
}

// lockedBuffer is a buffer for one writer and many readers.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
