package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// fileName is the newest file in the state folder; older ones are fileName.1 to fileName.4.
	fileName = "audit.log"
	// maxSize is where a file is put aside, in bytes: over a thousand lines.
	maxSize = 1 << 20
	// maxOld is how many old files stay.
	maxOld = 4
)

// Log is the node's file of entries. Several processes may write to it.
type Log struct {
	// StateDir is the folder of backups and journal.
	StateDir string
	// MaxSize is where a file is put aside, in bytes; 1 MiB by default.
	MaxSize int64
}

// Write appends a line, has it on the disk and returns it, also where it could not be written there.
func (l *Log) Write(entry *Entry) (json.RawMessage, error) {
	line, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("write the audit line: %w", err)
	}
	return line, l.append(line)
}

func (l *Log) append(line []byte) (err error) {
	if err := os.MkdirAll(l.StateDir, 0o700); err != nil {
		return fmt.Errorf("write the audit line: %w", err)
	}
	release, err := l.lock()
	if err != nil {
		return fmt.Errorf("write the audit line: %w", err)
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := l.rotate(int64(len(line)) + 1); err != nil {
		return fmt.Errorf("put the audit log aside: %w", err)
	}
	if err := appendDurably(l.path(0), append(slices.Clip(line), '\n')); err != nil {
		return fmt.Errorf("write the audit line: %w", err)
	}
	return nil
}

// lock keeps others from writing meanwhile. It is a lock of the folder, so that no file is left for it.
func (l *Log) lock() (func() error, error) {
	folder, err := os.Open(l.StateDir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder.Close, nil
}

func (l *Log) path(age int) string {
	name := fileName
	if age > 0 {
		name += "." + strconv.Itoa(age)
	}
	return filepath.Join(l.StateDir, name)
}

// rotate puts the newest file aside where more would not fit.
func (l *Log) rotate(more int64) error {
	most := l.MaxSize
	if most == 0 {
		most = maxSize
	}
	info, err := os.Stat(l.path(0))
	if errors.Is(err, fs.ErrNotExist) || err == nil && (info.Size() == 0 || info.Size()+more <= most) {
		return nil
	}
	if err != nil {
		return err
	}
	for age := maxOld - 1; age >= 0; age-- {
		if err := os.Rename(l.path(age), l.path(age+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func appendDurably(path string, line []byte) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the state folder is configured
	if err != nil {
		return err
	}
	if whole, err := endsLine(path); err == nil && !whole {
		line = append([]byte{'\n'}, line...) // after half a line that a power cut left
	}
	_, err = file.Write(line)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Entries reads what is kept, oldest first. A line that is not whole, as a power cut leaves it, is left out.
func (l *Log) Entries() ([]*Entry, error) {
	var entries []*Entry
	for age := maxOld; age >= 0; age-- {
		file, err := os.Open(l.path(age))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, maxSize)
		for lines.Scan() {
			entry := &Entry{}
			if json.Unmarshal(lines.Bytes(), entry) == nil {
				entries = append(entries, entry)
			}
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
	}
	return entries, nil
}

// endsLine reports whether a file is empty or its last byte ends a line.
func endsLine(path string) (bool, error) {
	file, err := os.Open(path) //nolint:gosec // the state folder is configured
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return true, err
	}
	last := make([]byte, 1)
	_, err = file.ReadAt(last, info.Size()-1)
	return last[0] == '\n', err
}
