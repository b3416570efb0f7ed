package cleanup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What can be wrong with a state folder. Both are told with errors.Is.
var (
	// ErrNotDurable says that what is written there is gone after a reboot, or when the container ends.
	ErrNotDurable = errors.New("the state folder is not on durable storage")
	// ErrNoRoom says that a backup and a journal do not fit.
	ErrNoRoom = errors.New("the state folder has not enough room")
)

const (
	// spareRoom stays free beside what a clean-up writes, in bytes: the folder is on the node's own disk.
	spareRoom = 16 << 20
	// spareFiles is how many new files a clean-up may want.
	spareFiles = 128
)

// CheckStorage tells whether a state folder, which need not be there yet, keeps what is written to it and has room for
// so many bytes. It writes nothing.
func CheckStorage(dir string, bytes uint64) error {
	existing, err := nearestFolder(dir)
	if err != nil {
		return err
	}
	var at unix.Statfs_t
	if err := unix.Statfs(existing, &at); err != nil {
		return fmt.Errorf("look at the storage of %s: %w", existing, err)
	}
	return errors.Join(checkDurable(existing, &at), checkRoom(dir, &at, bytes))
}

// nearestFolder is the folder itself, or the nearest above it that exists.
func nearestFolder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find the state folder: %w", err)
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a folder: %w", dir, fs.ErrInvalid)
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("look for the state folder: %w", err)
		}
		dir = filepath.Dir(dir)
	}
}

// checkDurable refuses what lives in memory. An overlay is as durable as its upper layer: a container's is gone with the
// container, and its path is not in sight from inside, which is how it is told.
func checkDurable(dir string, at *unix.Statfs_t) error {
	if isMemory(at) {
		return fmt.Errorf("%s is in memory: %w", dir, ErrNotDurable)
	}
	if at.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is read-only: %w", dir, ErrNotDurable)
	}
	if at.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return nil
	}
	upper, err := overlayUpper("/proc/self/mountinfo", dir)
	if err != nil {
		return errors.Join(fmt.Errorf("%s is an overlay: %w", dir, ErrNotDurable), err)
	}
	var below unix.Statfs_t
	if err := unix.Statfs(upper, &below); err != nil || isMemory(&below) || below.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is an overlay whose upper layer %s is in memory or not in sight: %w", dir, upper, ErrNotDurable)
	}
	return nil
}

func isMemory(at *unix.Statfs_t) bool {
	switch at.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return true
	default:
		return false
	}
}

// overlayUpper finds the upper layer of the overlay that holds a folder (proc_pid_mountinfo(5)).
func overlayUpper(mountinfo, dir string) (string, error) {
	var status unix.Stat_t
	if err := unix.Stat(dir, &status); err != nil {
		return "", fmt.Errorf("look at %s: %w", dir, err)
	}
	device := fmt.Sprintf("%d:%d", unix.Major(status.Dev), unix.Minor(status.Dev))
	file, err := os.Open(mountinfo) //nolint:gosec // below a root or folder that the operator names
	if err != nil {
		return "", fmt.Errorf("list the mounts: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if upper := upperOf(lines.Text(), device); upper != "" {
			return upper, nil
		}
	}
	return "", errors.Join(errors.New("its upper layer is not listed"), lines.Err())
}

// upperOf is the upperdir option of a line of mountinfo, if it is of that device and an overlay.
func upperOf(line, device string) string {
	fields := strings.Fields(line)
	if len(fields) < 3 || fields[2] != device {
		return ""
	}
	options := strings.Split(fields[len(fields)-1], ",")
	for _, option := range options {
		if upper, found := strings.CutPrefix(option, "upperdir="); found {
			return upper
		}
	}
	return ""
}

// checkRoom counts what users without privileges could still write: the rest is the node's last reserve.
func checkRoom(dir string, at *unix.Statfs_t, bytes uint64) error {
	free := at.Bavail * uint64(max(at.Bsize, 0))
	if free < bytes+spareRoom {
		return fmt.Errorf("%s has %d bytes free, %d are needed: %w", dir, free, bytes+spareRoom, ErrNoRoom)
	}
	// Some file systems (btrfs) make files as they need them and say 0 of 0.
	if at.Files != 0 && at.Ffree < spareFiles {
		return fmt.Errorf("%s has %d files free, %d are needed: %w", dir, at.Ffree, spareFiles, ErrNoRoom)
	}
	return nil
}
