package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// Machine is where programs run: a virtual machine, a network namespace of the host, or a pod in one of them. An exit
// status that is not 0 is no error of Run.
type Machine interface {
	// Run runs a program to its end.
	Run(ctx context.Context, argv ...string) (lab.Result, error)
	// RunInput is Run with input for the program.
	RunInput(ctx context.Context, stdin []byte, argv ...string) (lab.Result, error)
	// Start starts a program in the background.
	Start(ctx context.Context, stdin []byte, argv ...string) (Process, error)
}

// Output runs a program that has to succeed and returns its standard output.
func Output(ctx context.Context, m Machine, argv ...string) (string, error) {
	result, err := m.Run(ctx, argv...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("%s: exit status %d: %s", strings.Join(argv, " "), result.ExitCode, strings.TrimSpace(result.Stderr+result.Stdout))
	}
	return result.Stdout, err
}

// feed runs a program with a text as its input that has to succeed.
func feed(ctx context.Context, m Machine, text string, argv ...string) error {
	result, err := m.RunInput(ctx, []byte(text), argv...)
	if err == nil && result.ExitCode != 0 {
		err = fmt.Errorf("%s: exit status %d: %s", strings.Join(argv, " "), result.ExitCode, strings.TrimSpace(result.Stderr+result.Stdout))
	}
	return err
}

// ip carries out commands of ip(8), a line each. A shell would take busybox's ip in guests, which knows less.
func ip(ctx context.Context, m Machine, commands ...string) error {
	return feed(ctx, m, strings.Join(commands, "\n")+"\n", "ip", "-batch", "-")
}

// virtual is a guest, or with a prefix such as "ip netns exec NAME" a pod in one.
type virtual struct {
	guest  *lab.Guest
	prefix []string
}

func (v virtual) argv(argv []string) []string {
	return append(v.prefix[:len(v.prefix):len(v.prefix)], argv...)
}

// Run implements Machine.
func (v virtual) Run(ctx context.Context, argv ...string) (lab.Result, error) {
	return v.guest.Run(ctx, v.argv(argv)...)
}

// RunInput implements Machine.
func (v virtual) RunInput(ctx context.Context, stdin []byte, argv ...string) (lab.Result, error) {
	return v.guest.RunInput(ctx, stdin, v.argv(argv)...)
}

// Start implements Machine.
func (v virtual) Start(ctx context.Context, stdin []byte, argv ...string) (Process, error) {
	return v.guest.Start(ctx, lab.Command{Argv: v.argv(argv), Stdin: stdin})
}

// hosted is a network namespace of the host.
type hosted struct {
	network *lab.Network
	env     []string // added to the environment
	enter   []string // a command that runs another one in more namespaces than the network's
}

func (h hosted) command(ctx context.Context, argv []string) *lab.HostCommand {
	// The program is looked up by env, in the PATH that it then gets itself.
	cmd := h.network.Command(ctx, slices.Concat([]string{"env"}, h.env, h.enter, argv)...)
	cmd.Env = os.Environ()
	return cmd
}

// Run implements Machine.
func (h hosted) Run(ctx context.Context, argv ...string) (lab.Result, error) {
	return h.RunInput(ctx, nil, argv...)
}

// RunInput implements Machine.
func (h hosted) RunInput(ctx context.Context, stdin []byte, argv ...string) (lab.Result, error) {
	cmd := h.command(ctx, argv)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &problems
	err := cmd.Run()
	result := lab.Result{Stdout: out.String(), Stderr: problems.String()}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		result.ExitCode, err = exit.ExitCode(), nil
	}
	return result, err
}

// Start implements Machine.
func (h hosted) Start(ctx context.Context, stdin []byte, argv ...string) (Process, error) {
	return startHost(h.command(ctx, argv), stdin)
}
