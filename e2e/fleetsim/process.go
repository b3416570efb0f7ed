package fleetsim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Launch says how to run an aggregator.
type Launch struct {
	// Program is the path of offramp-aggregator, Dir a folder for its kubeconfig, API the API server that it asks. Required.
	Program, Dir string
	API          *API
	// Listen is where it listens, host:port; "" for a free port of the loopback address.
	Listen string
	// CPU is the one processor that it may run on; -1 for any.
	CPU int
	// Args and Env are added to those of the program. Log, where not nil, gets what it logs.
	Args, Env []string
	Log       io.Writer
}

// Aggregator is a real aggregator in a process of its own.
type Aggregator struct {
	// Address is where it listens for agents and people, Metrics where it serves metrics.
	Address, Metrics string

	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// startLimit is how long an aggregator may take until it listens.
const startLimit = 30 * time.Second

// Start runs an aggregator and waits until it listens.
func Start(ctx context.Context, launch Launch) (*Aggregator, error) {
	kubeconfig := filepath.Join(launch.Dir, "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: it, contexts: [{name: it, context: {cluster: it}}], clusters: [{name: it, cluster: {server: %q}}]}`, launch.API.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	if launch.Listen == "" {
		launch.Listen = "127.0.0.1:0"
	}
	args := append([]string{"run", "--listen", launch.Listen, "--metrics-listen", "127.0.0.1:0", "--log-format", "json", "--kubeconfig", kubeconfig}, launch.Args...)
	a := &Aggregator{cmd: exec.CommandContext(ctx, launch.Program, args...), ended: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), launch.Env...)
	a.cmd.Cancel = func() error { return a.cmd.Process.Signal(syscall.SIGTERM) }
	logged, err := a.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("run the aggregator: %w", err)
	}
	if err := onCPU(launch.CPU, a.cmd.Start); err != nil {
		return nil, fmt.Errorf("run the aggregator: %w", err)
	}
	ready := make(chan struct{})
	go a.follow(logged, launch.Log, ready)
	select {
	case <-ready:
		return a, nil
	case <-a.ended:
		return nil, fmt.Errorf("the aggregator did not start: %w", errors.Join(a.err, ctx.Err()))
	case <-time.After(startLimit):
		return nil, errors.Join(errors.New("the aggregator does not listen"), a.Stop())
	}
}

// follow reads the log: where the aggregator listens stands in it.
func (a *Aggregator) follow(logged io.Reader, copyTo io.Writer, ready chan<- struct{}) {
	defer close(a.ended)
	lines := bufio.NewScanner(logged)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if copyTo != nil {
			_, _ = fmt.Fprintln(copyTo, lines.Text())
		}
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		switch {
		case line.Msg == "listening" && a.Address == "":
			a.Address = line.Address
		case line.Msg == "serving metrics" && a.Metrics == "":
			a.Metrics = line.Address
		default:
			continue
		}
		if a.Address != "" && a.Metrics != "" {
			close(ready)
		}
	}
	a.err = a.cmd.Wait()
}

// Stop tells it to stop and waits for its end.
func (a *Aggregator) Stop() error {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
		return a.err
	case <-time.After(startLimit):
		_ = a.cmd.Process.Kill()
		<-a.ended
		return errors.New("the aggregator did not stop by itself")
	}
}

// PID is its process id.
func (a *Aggregator) PID() int { return a.cmd.Process.Pid }

// onCPU does something in a thread that may run on one processor alone: what it starts inherits that.
func onCPU(cpu int, do func() error) error {
	if cpu < 0 {
		return do()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("ask for the processors of this thread: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("keep to processor %d: %w", cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return do()
}

// Pin keeps every thread of this process to one processor.
func Pin(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list the threads of this process: %w", err)
	}
	for _, thread := range threads {
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			continue
		}
		// A thread may have ended meanwhile. New ones inherit from those that make them.
		_ = unix.SchedSetaffinity(id, &only)
	}
	return nil
}

// openFiles is what 100,000 connections need, and more.
const openFiles = 1 << 18

// RaiseLimits lets this process, and what it starts, open as many files as it may, and returns how many that is: every
// connection is one, at each end. Only root with CAP_SYS_RESOURCE may open more than the hard limit says.
func RaiseLimits() (files int, err error) {
	limit := &unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, limit); err != nil {
		return 0, fmt.Errorf("ask for the limit of open files: %w", err)
	}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: max(limit.Max, openFiles)}) == nil {
		return openFiles, nil
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, limit); err != nil {
		return 0, fmt.Errorf("raise the limit of open files to %d: %w", limit.Max, err)
	}
	return int(limit.Max), nil
}
