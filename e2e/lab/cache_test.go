package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestEntryIsMadeOnce(t *testing.T) {
	c := cache{dir: t.TempDir()}
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			path, err := c.entry(t.Context(), "kind/name", func(path string) error {
				made.Add(1)
				time.Sleep(20 * time.Millisecond)
				return os.WriteFile(path, []byte("content"), 0o644)
			})
			if content, readErr := os.ReadFile(path); err != nil || string(content) != "content" {
				t.Errorf("%q (%v, %v)", content, err, readErr)
			}
		})
	}
	all.Wait()
	if made.Load() != 1 {
		t.Errorf("made %d times", made.Load())
	}
}

func TestEntryThatFailsLeavesNothing(t *testing.T) {
	c := cache{dir: t.TempDir()}
	failure := errors.New("no")
	_, err := c.entry(t.Context(), "kind/name", func(path string) error {
		writeFile(t, path, "half")
		return failure
	})
	if !errors.Is(err, failure) {
		t.Errorf("error is %v", err)
	}
	left, err := os.ReadDir(filepath.Join(c.dir, "kind"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestEntryAfterAnInterruptedRun(t *testing.T) {
	c := cache{dir: t.TempDir()}
	writeFile(t, filepath.Join(c.dir, "kind/name.making/name"), "half")
	path, err := c.entry(t.Context(), "kind/name", func(path string) error {
		if exists(path) {
			t.Error("an interrupted run's file is still there")
		}
		return os.WriteFile(path, nil, 0o644)
	})
	if err != nil || !exists(path) {
		t.Errorf("%s (%v)", path, err)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	c := cache{dir: t.TempDir()}
	unlock, err := c.lock(t.Context(), "kind/name")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.lock(ctx, "kind/name"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	unlock()
	again, err := c.lock(t.Context(), "kind/name")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestCacheDir(t *testing.T) {
	t.Setenv(CacheVariable, "/some/where")
	if dir, err := CacheDir(); dir != "/some/where" || err != nil {
		t.Errorf("%s (%v)", dir, err)
	}
	t.Setenv(CacheVariable, "")
	t.Setenv("XDG_CACHE_HOME", "/x")
	if dir, err := CacheDir(); dir != "/x/offramp" || err != nil {
		t.Errorf("%s (%v)", dir, err)
	}
}
