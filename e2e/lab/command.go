package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
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
