package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another clean-up or restore is at work on this node.
var ErrLocked = errors.New("another clean-up is running")

// lock is held by the one process that may change the node. The kernel gives it back when that process ends, however it
// ends.
type lock struct{ file *os.File }

// takeLock takes the lock of a state folder, which has to exist, or fails at once with ErrLocked and who has it.
func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // below a root or folder that the operator names
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) //nolint:gosec // below a root or folder that the operator names
		return nil, errors.Join(fmt.Errorf("%w (process %s)", ErrLocked, strings.TrimSpace(string(holder))), file.Close())
	}
	if err == nil {
		err = writeHolder(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take the lock: %w", err), file.Close())
	}
	return &lock{file}, nil
}

// writeHolder leaves word for whoever comes second. It is news only: the kernel's lock is what counts.
func writeHolder(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	return err
}

// release gives the lock back. The file stays: one that is removed could be locked twice.
func (l *lock) release() error { return l.file.Close() }

// isLocked reports whether somebody holds the lock of a state folder. It makes nothing.
func isLocked(dir string) (bool, error) {
	file, err := os.Open(filepath.Join(dir, "lock")) //nolint:gosec // below a root or folder that the operator names
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, file.Close()
	}
	return false, errors.Join(err, file.Close())
}
