package lab

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"offramp.dev/offramp/e2e/lab/wire"
)

// runLimit is what a command in a guest may take when its context sets no deadline.
const runLimit = 2 * time.Minute

// Command is a program to be run in a guest.
type Command struct {
	// Argv is the program, looked up in the guest's PATH, and its arguments.
	Argv []string
	// Env is added to the guest's environment, as NAME=value.
	Env []string
	// Dir is where it runs; empty is /.
	Dir string
	// Stdin is all of its input.
	Stdin []byte
	// Stdout and Stderr get its output as it appears; nil drops it.
	Stdout, Stderr io.Writer
}

// Result is how a program ended.
type Result struct {
	Stdout, Stderr string
	// ExitCode is its exit status, or 128 plus the number of the signal that ended it.
	ExitCode int
}

// Run runs a program in the guest to its end, at most until ctx's, or for two minutes where that has none. An exit
// status that is not 0 is no error.
func (g *Guest) Run(ctx context.Context, argv ...string) (Result, error) {
	return g.RunInput(ctx, nil, argv...)
}

// RunInput is Run with input for the program.
func (g *Guest) RunInput(ctx context.Context, stdin []byte, argv ...string) (Result, error) {
	var out, problems bytes.Buffer
	code, err := g.Exec(ctx, Command{Argv: argv, Stdin: stdin, Stdout: &out, Stderr: &problems})
	return Result{Stdout: out.String(), Stderr: problems.String(), ExitCode: code}, err
}

// Output is Run for a program that has to succeed: it returns what it wrote to its standard output.
func (g *Guest) Output(ctx context.Context, argv ...string) (string, error) {
	result, err := g.Run(ctx, argv...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("on %s: %s: exit status %d: %s", g.Name, strings.Join(argv, " "), result.ExitCode,
			strings.TrimSpace(result.Stderr+result.Stdout))
	}
	return result.Stdout, err
}

// Exec runs a program in the guest as Run does, with all that a Command can say, and returns its exit status. The
// program, with all of its process group, is killed when ctx ends first.
func (g *Guest) Exec(ctx context.Context, c Command) (int, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, runLimit)
		defer cancel()
	}
	call, err := g.call(ctx, c.request())
	if err != nil {
		return 0, err
	}
	return call.finish(c.Stdout, c.Stderr)
}

func (c Command) request() wire.Request {
	return wire.Request{Run: &wire.Run{Argv: c.Argv, Env: c.Env, Dir: c.Dir, Stdin: c.Stdin}}
}

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

// call is one request on its way.
type call struct {
	guest   *Guest
	conn    net.Conn
	enc     *gob.Encoder
	dec     *gob.Decoder
	release func()
	ctx     context.Context //nolint:containedctx // it is the request's, and lives as long
}

// call sends a request. The connection is closed when ctx ends, which ends the request in the guest.
func (g *Guest) call(ctx context.Context, request wire.Request) (*call, error) {
	if g.machine.alive.Err() != nil {
		return nil, g.explain(ctx, errors.New("nothing to talk to"))
	}
	conn, err := g.lab.Dial(ctx, "tcp", net.JoinHostPort(address(controlNetwork, g.number), strconv.Itoa(wire.Port)))
	if err != nil {
		return nil, g.explain(ctx, fmt.Errorf("connecting to %s: %w", g.Name, err))
	}
	c := &call{guest: g, conn: conn, enc: gob.NewEncoder(conn), dec: gob.NewDecoder(conn), ctx: ctx}
	// A machine that was switched off says nothing any more, and so the connection would wait for ever.
	hangUp := func() { _ = conn.Close() }
	ofRequest, ofMachine := context.AfterFunc(ctx, hangUp), context.AfterFunc(g.machine.alive, hangUp)
	c.release = func() { ofRequest(); ofMachine() }
	if err := c.enc.Encode(request); err != nil {
		c.release()
		_ = conn.Close()
		return nil, g.explain(ctx, fmt.Errorf("sending a request to %s: %w", g.Name, err))
	}
	return c, nil
}

// finish takes replies until the last one.
func (c *call) finish(stdout, stderr io.Writer) (int, error) {
	defer func() {
		c.release()
		_ = c.conn.Close()
	}()
	for {
		var reply wire.Reply
		if err := c.dec.Decode(&reply); err != nil {
			return 0, c.guest.explain(c.ctx, fmt.Errorf("waiting for %s: %w", c.guest.Name, err))
		}
		for _, piece := range []struct {
			w    io.Writer
			data []byte
		}{{stdout, reply.Stdout}, {stderr, reply.Stderr}} {
			if piece.w == nil || len(piece.data) == 0 {
				continue
			}
			if _, err := piece.w.Write(piece.data); err != nil {
				return 0, fmt.Errorf("writing a guest's output: %w", err)
			}
		}
		if reply.Done {
			return reply.Exit, asError(c.guest.Name, reply.Error)
		}
	}
}

func asError(guest, text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("on %s: %s", guest, text)
}

// explain adds to a connection's error what caused it: the end of ctx or of the guest.
func (g *Guest) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	select {
	case <-g.machine.alive.Done():
		return fmt.Errorf("the virtual machine %s has ended: %w; its console said:\n%s", g.Name, err, g.machine.console.tail())
	default:
		return err
	}
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
