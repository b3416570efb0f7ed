package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// CacheVariable names the environment variable that moves the cache folder.
const CacheVariable = "OFFRAMP_CACHE"

// lockPoll is how often it is looked whether another process is done.
const lockPoll = 100 * time.Millisecond

// CacheDir is where the lab keeps kernels and file systems: $OFFRAMP_CACHE, else offramp in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache folder (%s may name it): %w", CacheVariable, err)
	}
	return filepath.Join(dir, "offramp"), nil
}

// cache keeps files and folders that are made once. Entries appear whole or not at all, and several processes may want
// the same one at the same time.
type cache struct{ dir string }

func openCache(dir string) (cache, error) {
	if dir == "" {
		var err error
		if dir, err = CacheDir(); err != nil {
			return cache{}, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("making the cache folder: %w", err)
	}
	return cache{dir: dir}, nil
}

// entry returns the path of the entry called name, and has it made at a temporary path if it is not there. Whoever
// comes second waits for the first.
func (c cache) entry(ctx context.Context, name string, build func(path string) error) (string, error) {
	final := filepath.Join(c.dir, name)
	if exists(final) {
		return final, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("making a cache folder: %w", err)
	}
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if exists(final) {
		return final, nil
	}
	return final, c.build(final, build)
}

// build makes an entry; the caller has its lock.
func (c cache) build(final string, build func(path string) error) error {
	scratch := final + ".making"
	if err := os.RemoveAll(scratch); err != nil {
		return fmt.Errorf("removing what an interrupted run left: %w", err)
	}
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	path := filepath.Join(scratch, filepath.Base(final))
	if err := build(path); err != nil {
		return err
	}
	if err := os.Rename(path, final); err != nil {
		return fmt.Errorf("moving a cache entry to its place: %w", err)
	}
	return nil
}

// lock takes the entry's lock. The kernel gives it back when this process ends, so that none stays behind.
func (c cache) lock(ctx context.Context, name string) (func(), error) {
	path := filepath.Join(c.dir, "locks", filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of locks: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			_ = file.Close()
			return nil, fmt.Errorf("taking the lock of %s: %w", name, err)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("waiting for another process that makes %s: %w", name, ctx.Err())
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
