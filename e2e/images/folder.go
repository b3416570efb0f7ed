package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/e2e/lab"
)

// DataFolder is where the lab's daemon keeps images and what was built before, in the lab's cache: the stand-in for the base
// image takes a minute to make, and Go's first compilation two.
func DataFolder() (string, error) {
	dir, err := lab.CacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "docker"), nil
}

// lockFolder waits until no other process uses the folder. The kernel gives the lock back when this process ends.
func lockFolder(ctx context.Context, dir string) (func(), error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("making the daemon's folder: %w", err)
	}
	file, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of %s: %w", dir, err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another daemon in %s: %w", dir, ctx.Err())
		}
	}
}

// firstChild is the process that another one started, 0 for none.
func firstChild(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return 0
	}
	child, _ := strconv.Atoi(fields[0])
	return child
}

// removeGroups removes the cgroups of this name, in every hierarchy: the daemon leaves them, empty.
func removeGroups(name string) {
	var folders []string
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		tops, _ := filepath.Glob(pattern)
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					folders = append(folders, path)
				}
				return nil
			})
		}
	}
	// Those inside come last, and have to go first.
	for _, folder := range slices.Backward(folders) {
		_ = os.Remove(folder)
	}
}
