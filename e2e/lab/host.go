package lab

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"time"
)

// HostCommand is a program of the host that runs in the lab's network namespace. It is an exec.Cmd but for how it is
// started: it dies with the process that started it and with the lab.
type HostCommand struct {
	*exec.Cmd
	space *namespace
}

// Command prepares a program of the host. ctx's end kills it.
func (l *Lab) Command(ctx context.Context, argv ...string) *HostCommand {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	return &HostCommand{Cmd: cmd, space: l.space}
}

// Start starts the program; see exec.Cmd. Whoever calls it calls Wait.
func (c *HostCommand) Start() error { return c.space.start(c.Cmd) }

// Run starts the program and waits for it.
func (c *HostCommand) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns its standard output. Its error holds what it wrote to its standard error.
func (c *HostCommand) Output() ([]byte, error) {
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		exit.Stderr = problems.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the program and returns what it wrote.
func (c *HostCommand) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
