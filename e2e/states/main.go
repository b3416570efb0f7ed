// Command states tells which of the public node states (facts/field-reports.md) were tested, and on which kernels.
//
//	states record -o FILE go test -json ...   runs it, shows it as go test does, and keeps the runs of state tests
//	states check [-kernels LIST] FILE ...     prints them as a table; fails for one that is missing, skipped or failed
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := do(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "states: %v\n", err)
	}
	os.Exit(code)
}

var errUsage = errors.New("usage: states record -o FILE COMMAND... | states check [-kernels LIST] FILE")

func do(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	flags := flag.NewFlagSet("states", flag.ContinueOnError)
	file := flags.String("o", "", "record: file that keeps the runs")
	kernels := flags.String("kernels", "5.10,6.1,6.12", "check: kernels that each state is wanted on, with commas between")
	if len(args) < 2 || flags.Parse(args[1:]) != nil || flags.NArg() == 0 {
		return 2, errUsage
	}
	switch {
	case args[0] == "record" && *file != "":
		return record(ctx, *file, flags.Args(), out)
	case args[0] == "check":
		return checkFiles(flags.Args(), strings.Split(*kernels, ","), out)
	default:
		return 2, errUsage
	}
}

// record runs a command and returns its exit status.
func record(ctx context.Context, file string, argv []string, out io.Writer) (code int, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// go test passes an interrupt on to its tests and cleans up after them.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return 1, fmt.Errorf("run %s: %w", argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("run %s: %w", argv[0], err)
	}
	r := newReader(out)
	readErr := r.read(pipe)
	waitErr := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		code, waitErr = max(exit.ExitCode(), 1), nil
	}
	if err := errors.Join(readErr, waitErr, save(file, r.runs)); err != nil {
		return 1, err
	}
	return code, nil
}

// saved is a line of a file.
type saved struct {
	State                int
	Test, Kernel, Result string
}

func save(file string, runs []run) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("keep what ran: %w", err)
	}
	var text strings.Builder
	for _, r := range runs {
		line, err := json.Marshal(saved{r.number, r.test, r.kernel, r.result})
		if err != nil {
			return fmt.Errorf("keep what ran: %w", err)
		}
		text.WriteString(string(line) + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("keep what ran: %w", err)
	}
	return nil
}

func load(file string) ([]run, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("what ran is not known: %w", err)
	}
	var runs []run
	for line := range strings.Lines(string(text)) {
		var s saved
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		runs = append(runs, run{s.State, s.Test, s.Kernel, s.Result})
	}
	return runs, nil
}

func checkFiles(files, kernels []string, out io.Writer) (code int, err error) {
	var runs []run
	for _, file := range files {
		more, err := load(file)
		if err != nil {
			return 1, err
		}
		runs = append(runs, more...)
	}
	wrong := check(out, runs, kernels)
	for _, test := range strangers(runs) {
		wrong = append(wrong, test+" is of a state that is not in the list (e2e/states/list.go)")
	}
	if len(wrong) > 0 {
		return 1, fmt.Errorf("%d of what must be shown is not:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
	}
	return 0, nil
}
