package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// sweepLimit is for the processes of the cgroups, which are being killed when it is swept.
	sweepLimit = 20 * time.Second
	sweepPoll  = 50 * time.Millisecond
)

// sweep makes a cgroup in each hierarchy, unless its name is empty, and a folder, says so, and removes them with all below at the end of in, which is
// when the process that started this one ends in whatever way.
func sweep(hierarchies, name, disk string, in io.Reader, out io.Writer) error {
	tops, err := makeCgroups(hierarchies, name)
	if err == nil {
		err = os.MkdirAll(disk, 0o700)
	}
	if err == nil {
		_, _ = fmt.Fprintln(out, "ready")
		_, err = io.Copy(io.Discard, in)
	}
	for _, top := range tops {
		err = errors.Join(err, removeCgroups(top))
	}
	// Only now nobody writes there any more.
	return errors.Join(err, os.RemoveAll(disk))
}

func makeCgroups(hierarchies, name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(hierarchies)
	if err != nil {
		return nil, fmt.Errorf("looking for the cgroup hierarchies: %w", err)
	}
	var tops []string
	for _, entry := range entries {
		// Some are links to others, as cpu to cpu,cpuacct.
		if !entry.IsDir() {
			continue
		}
		top := filepath.Join(hierarchies, entry.Name(), name)
		if err := os.Mkdir(top, 0o755); err != nil {
			return tops, fmt.Errorf("making a cgroup: %w", err)
		}
		tops = append(tops, top)
	}
	return tops, nil
}

// removeCgroups removes a cgroup, innermost first. One with processes cannot be removed, and is tried again.
func removeCgroups(top string) error {
	until := time.Now().Add(sweepLimit)
	for {
		err := removeEmpty(top)
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(sweepPoll)
	}
}

func removeEmpty(top string) error {
	var all []string
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			all = append(all, path)
		}
		return nil // what cannot be read is gone or is told by the removal
	})
	for _, path := range slices.Backward(all) {
		if removed := os.Remove(path); !errors.Is(removed, fs.ErrNotExist) {
			err = errors.Join(err, removed)
		}
	}
	return err
}
