package memory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The files in the state folder. The lock is held for as long as the agent lives.
const (
	fileName       = "history.json"
	unfinishedName = "history.json.unfinished"
	garbledName    = "history.json.garbled"
	lockName       = "history.lock"
	// maxBytes is several times what 20 changes and 50 entries take.
	maxBytes = 128 << 10
)

// File is a collect.Memory in a state folder. Safe for use by several goroutines.
type File struct {
	// Node is the node's name. What another node remembered is not recalled.
	Node string
	// StateDir is the state folder, made when it is first needed.
	StateDir string
	// Storage says why StateDir does not keep what is written there; nil when it does. Nil: it is trusted.
	Storage func(dir string) error
	// Log is required.
	Log *slog.Logger

	mu   sync.Mutex
	lock *os.File
	said map[string]string // the last failure of each kind: it is said once
	runs map[string]*offrampv1.HistoryEntry
}

var _ collect.Memory = (*File)(nil)

// Load implements collect.Memory. A file that cannot be understood is moved aside.
func (f *File) Load() (*collect.Kept, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept, err := f.load()
	f.tell("recall what this node remembers", err)
	return kept, err == nil
}

// Save implements collect.Memory.
func (f *File) Save(kept *collect.Kept) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.save(kept)
	f.tell("keep what this node remembers", err)
	return err == nil
}

// Close lets another agent keep the memory.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// tell says a failure in the log, once until it changes or goes away.
func (f *File) tell(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if f.said[what] == text {
		return
	}
	if f.said == nil {
		f.said = map[string]string{}
	}
	f.said[what] = text
	if err == nil {
		f.Log.Info("can again " + what)
		return
	}
	f.Log.Warn("cannot "+what+"; a restart of the agent may forget it", "error", err)
}

// errTaken says that another agent keeps this memory. It may be about to end: DaemonSets with maxSurge overlap.
var errTaken = errors.New("another agent keeps its memory there")

func (f *File) open() error {
	if f.lock != nil {
		return nil
	}
	if f.Storage != nil {
		if err := f.Storage(f.StateDir); err != nil && !errors.Is(err, cleanup.ErrNoRoom) {
			return err
		}
	}
	if err := os.MkdirAll(f.StateDir, 0o700); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	lock, err := os.OpenFile(f.path(lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of the memory: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errTaken
		}
		return errors.Join(fmt.Errorf("lock the memory: %w", err), lock.Close())
	}
	f.lock = lock
	return nil
}

func (f *File) load() (*collect.Kept, error) {
	if err := f.open(); err != nil {
		return nil, err
	}
	text, err := readBounded(f.path(fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		var kept *collect.Kept
		if kept, err = decode(f.Node, text); err == nil {
			return kept, nil
		}
	}
	if !errors.Is(err, errGarbled) && !errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("read the memory: %w", err)
	}
	f.Log.Warn("what this node remembered cannot be understood and begins anew", "error", err, "moved_to", f.path(garbledName))
	if err := os.Rename(f.path(fileName), f.path(garbledName)); err != nil {
		return nil, fmt.Errorf("move a garbled memory aside: %w", err)
	}
	return nil, nil
}

func readBounded(path string) ([]byte, error) {
	// Non-blocking, so that a pipe in its place does not hold the agent up.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) //nolint:gosec // below the state folder
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%w: more than %d bytes", errGarbled, maxBytes)
	}
	return text, err
}

// save makes the file appear whole or not at all, and durably. The lock sees to it that nobody else writes it.
func (f *File) save(kept *collect.Kept) error {
	if err := f.open(); err != nil {
		return err
	}
	text, err := encode(f.Node, kept)
	if err != nil {
		return err
	}
	const flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC | unix.O_NOFOLLOW
	file, err := os.OpenFile(f.path(unfinishedName), flags, 0o600)
	if err != nil {
		return fmt.Errorf("write the memory: %w", err)
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		// On a full disk it must not take room that a clean-up's journal may need.
		return errors.Join(fmt.Errorf("write the memory: %w", err), os.Remove(f.path(unfinishedName)))
	}
	if err := os.Rename(f.path(unfinishedName), f.path(fileName)); err != nil {
		return fmt.Errorf("write the memory: %w", err)
	}
	return syncFolder(f.StateDir)
}

func (f *File) path(name string) string { return filepath.Join(f.StateDir, name) }

func syncFolder(dir string) error {
	folder, err := os.Open(dir) //nolint:gosec // the state folder, which the operator names
	if err != nil {
		return fmt.Errorf("write the state folder to the disk: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("write the state folder to the disk: %w", err)
	}
	return nil
}
