package discover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// The file in the state folder, and what it is until it is whole.
const (
	fileName       = "aggregators.json"
	unfinishedName = "aggregators.json.unfinished"
	// maxBytes is several times what some names of 16 addresses take.
	maxBytes = 64 << 10
)

// File remembers the addresses of targets in a state folder. Use Open. Its methods may be called from many goroutines, and of a nil
// one.
type File struct {
	dir string
	log *slog.Logger

	mu sync.Mutex
	// written is what the file holds, by target.
	written map[string][]string
	said    string
}

// Open reads what is remembered of the targets; what cannot be read or understood is told to the log and forgotten. The folder is made
// when something is first kept.
func Open(stateDir string, targets []Target, log *slog.Logger) *File {
	f := &File{dir: stateDir, log: log, written: map[string][]string{}}
	text, err := readBounded(filepath.Join(stateDir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return f
	}
	kept := map[string][]string{}
	if err == nil {
		kept, err = decode(text)
	}
	if err != nil {
		log.Warn("the remembered addresses of aggregators cannot be read and are forgotten", "file", filepath.Join(stateDir, fileName), "error", err)
		return f
	}
	for _, target := range targets {
		if addresses := kept[target.String()]; len(addresses) > 0 {
			f.written[target.String()] = addresses
		}
	}
	return f
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
		err = fmt.Errorf("more than %d bytes", maxBytes)
	}
	return text, err
}

// content is the form of the file.
type content struct {
	Version     int                 `json:"version"`
	Aggregators map[string][]string `json:"aggregators"`
}

// decode takes the file whole or not at all.
func decode(text []byte) (map[string][]string, error) {
	var read content
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	if read.Version != 1 {
		return nil, fmt.Errorf("version %d is not known", read.Version)
	}
	for name, addresses := range read.Aggregators {
		if len(addresses) > MaxAddresses {
			return nil, fmt.Errorf("%d addresses of %q", len(addresses), name)
		}
		for _, address := range addresses {
			if parsed, err := netip.ParseAddrPort(address); err != nil || !usable(parsed.Addr()) || parsed.Port() == 0 {
				return nil, fmt.Errorf("%q of %q is no address", address, name)
			}
		}
	}
	return read.Aggregators, nil
}

func (f *File) recall(target Target) []string {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.written[target.String()])
}

// keep writes what is new. A failure is told once, until it is another: only the next start may miss it.
func (f *File) keep(target Target, addresses []string) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.written[target.String()]
	if slices.Equal(before, addresses) {
		return
	}
	f.written[target.String()] = slices.Clone(addresses)
	err := f.write()
	if err == nil {
		f.said = ""
		return
	}
	f.written[target.String()] = before
	if f.said != err.Error() {
		f.said = err.Error()
		f.log.Warn("the addresses of aggregators cannot be remembered beyond this process", "error", err)
	}
}

// write makes the file appear whole or not at all. Two agents that write at once may garble the unfinished one, which decode refuses.
func (f *File) write() error {
	text, err := json.Marshal(content{Version: 1, Aggregators: f.written})
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("make the state folder: %w", err)
	}
	unfinished := filepath.Join(f.dir, unfinishedName)
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o600) //nolint:gosec // below the state folder
	if err != nil {
		return fmt.Errorf("write addresses: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		// On a full disk it must not take room that a clean-up's journal may need.
		return errors.Join(fmt.Errorf("write addresses: %w", err), os.Remove(unfinished))
	}
	if err := os.Rename(unfinished, filepath.Join(f.dir, fileName)); err != nil {
		return fmt.Errorf("write addresses: %w", err)
	}
	return nil
}
