package cleanup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/nstest"
)

// What is in memory does not survive a restart; what a folder will be on is told from the nearest one that exists.
func TestStorageInMemoryIsRefused(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "size=64m")
	for _, at := range []string{dir, filepath.Join(dir, "a", "b")} {
		if err := CheckStorage(at, 0); !errors.Is(err, ErrNotDurable) {
			t.Errorf("%s on tmpfs: %v, want %v", at, err, ErrNotDurable)
		}
	}
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "merged")
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", overlay, "overlay", 0, options); err != nil {
		t.Skipf("no overlay here: %v", err)
	}
	if err := CheckStorage(overlay, 0); !errors.Is(err, ErrNotDurable) {
		t.Errorf("an overlay over tmpfs: %v, want %v", err, ErrNotDurable)
	}
}

func TestStorageWithoutRoomIsRefused(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "size=20m")
	if err := CheckStorage(dir, 1<<20); errors.Is(err, ErrNoRoom) {
		t.Errorf("1 MiB beside the spare room of 20 MiB: %v", err)
	}
	if err := CheckStorage(dir, 8<<20); !errors.Is(err, ErrNoRoom) {
		t.Errorf("8 MiB beside the spare room of 20 MiB: %v, want %v", err, ErrNoRoom)
	}
}

func TestStorageOnDiskWillDo(t *testing.T) {
	dir := t.TempDir()
	var at unix.Statfs_t
	if err := unix.Statfs(dir, &at); err != nil {
		t.Fatal(err)
	}
	if isMemory(&at) || at.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skip("this machine's temporary folder is not on a disk")
	}
	if err := CheckStorage(filepath.Join(dir, "not", "there"), 1<<20); err != nil {
		t.Error(err)
	}
	if err := CheckStorage(filepath.Join(dir, "file"), 1<<62); !errors.Is(err, ErrNoRoom) {
		t.Errorf("an endless backup: %v, want %v", err, ErrNoRoom)
	}
}

func TestUpperOf(t *testing.T) {
	line := "61 29 0:45 / /run/x rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c/d,workdir=/c/w"
	for device, want := range map[string]string{"0:45": "/c/d", "0:46": ""} {
		if got := upperOf(line, device); got != want {
			t.Errorf("of device %s: %q, want %q", device, got, want)
		}
	}
	for _, other := range []string{"", "61 29", "61 29 0:45 / / rw - ext4 /dev/sda rw"} {
		if got := upperOf(other, "0:45"); got != "" {
			t.Errorf("of %q: %q, want none", other, got)
		}
	}
}

func mount(t *testing.T, kind, at, options string) {
	t.Helper()
	if err := unix.Mount(kind, at, kind, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
}

// Of many that want the lock, one has it; the kernel gives it back when its holder ends.
func TestOneHoldsTheLock(t *testing.T) {
	dir := t.TempDir()
	if held, err := isLocked(dir); held || err != nil {
		t.Errorf("before anybody took it: %v, %v", held, err)
	}
	first, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := isLocked(dir); !held || err != nil {
		t.Errorf("while it is held: %v, %v", held, err)
	}
	if _, err := takeLock(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("the second gets %v, want %v", err, ErrLocked)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	second, err := takeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.release(); err != nil {
		t.Fatal(err)
	}
}
