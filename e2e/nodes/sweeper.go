package nodes

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"

	"offramp.dev/offramp/e2e/lab"
)

// sweeper is the process that has a node's cgroups and its disk, or a folder alone, and removes them when this process ends in
// whatever way.
type sweeper struct {
	cmd      *exec.Cmd
	input    io.Closer
	problems bytes.Buffer
	name     string // of the cgroups; empty for none
	disk     string // a folder
}

// startSweeper starts one for a folder called name, and for cgroups of that name if there are to be any.
func startSweeper(program, name string, cgroups bool) (*sweeper, error) {
	cache, err := lab.CacheDir()
	if err != nil {
		return nil, err
	}
	// Not with the temporary files, which may lie in memory.
	disk := filepath.Join(cache, "nodes", name)
	if !cgroups {
		name = ""
	}
	s := &sweeper{cmd: exec.Command(program, "sweep", name, disk), name: name, disk: disk}
	// A Ctrl-C is meant for the test. This one's work comes after.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.cmd.Stderr = &s.problems
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	output, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting what removes cgroups: %w", err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("making cgroups: %w: %w", err, s.end())
	}
	return s, nil
}

// end has the cgroups and the disk removed.
func (s *sweeper) end() error {
	_ = s.input.Close()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("removing the cgroups %q and the folder %s: %w: %s", s.name, s.disk, err, s.problems.String())
	}
	return nil
}
