// Package program runs a tree of commands the way all of Offramp's programs do: variables under flags, one clear line for
// an error, and an exit code that scripts can rely on.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/settings"
)

// Exit is the code of a command that did its work and has an answer other than 0. It is not an error to be printed.
type Exit int

// Error makes Exit something a command can return.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Code is what a command returns for an exit code: nil for 0.
func Code(code int) error {
	if code == 0 {
		return nil
	}
	return Exit(code)
}

// UsageError is a mistake in how a command was called. It exits with 1, like every error, and points at --help.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives what was wrong.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Run executes root and returns the exit code of the process: 0, 1 for every error, or what the command answered.
// Errors go to stderr, one line each, and nothing else of an error goes to stdout.
func Run(ctx context.Context, root *cobra.Command, args []string, lookup settings.Lookup, stdout, stderr io.Writer) int {
	prepare(root, lookup)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	called, err := root.ExecuteContextC(ctx)
	var exit Exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	}
	report(stderr, root.Name(), called, err)
	return 1
}

// prepare wires what all commands share.
func prepare(root *cobra.Command, lookup settings.Lookup) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.Fill(cmd.Flags(), lookup); err != nil {
			return UsageError{err}
		}
		return nil
	}
	settings.Document(root)
}

func report(stderr io.Writer, program string, called *cobra.Command, err error) {
	text := strings.TrimSpace(err.Error())
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", program, text)
	var usage UsageError
	if errors.As(err, &usage) || strings.HasPrefix(text, "unknown command") {
		_, _ = fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", called.CommandPath())
	}
}

// Group is the RunE of a command that only holds others: it prints its help, and refuses a word that is no command.
func Group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	}
	return cmd.Help()
}

// NoArgs and OneArg check positional arguments and answer with a UsageError.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// OneArg wants exactly one argument; what says which.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return Usagef("%s wants one %s, got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}
