package collect

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// place is the mount that a file is on, as far as the kernel tells: the mount's id from 5.8 on, the device always.
type place struct {
	mount        uint64
	major, minor uint32
}

func placeOf(file *os.File) (place, error) {
	var status unix.Statx_t
	err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &status)
	if err != nil {
		return place{}, &os.PathError{Op: "statx", Path: file.Name(), Err: err}
	}
	at := place{major: status.Dev_major, minor: status.Dev_minor}
	if status.Mask&unix.STATX_MNT_ID != 0 {
		at.mount = status.Mnt_id
	}
	return at, nil
}

// isWhole reports whether the root is that of a host, so that what is missing below it is missing on the host.
//
// An agent in a pod may be given a few of the host's folders only, mounted below a folder of its own image. Then only what
// is below those says anything. A root that is a host's has the host's os-release on it, and is not that of a container.
func (t *hostTree) isWhole(host Host) bool {
	if filepath.Clean(host.Root) == "/" && isContainerRoot(host) {
		return false
	}
	for _, name := range []string{"etc/os-release", "usr/lib/os-release"} {
		info, err := t.dir.Lstat(name)
		if err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if handle, err := t.dir.OpenFile(filepath.Dir(name), unix.O_PATH, 0); err == nil {
			at, err := placeOf(handle)
			_ = handle.Close()
			if err == nil && at == t.at && !t.isMounted(name) {
				return true
			}
		}
	}
	return false
}

// isMounted reports whether a file is itself a mount point: a single file of the host's put into an image.
func (t *hostTree) isMounted(name string) bool {
	if t.isLink(name) {
		return false
	}
	handle, err := t.dir.OpenFile(name, unix.O_PATH, 0)
	if err != nil {
		return true
	}
	defer func() { _ = handle.Close() }()
	at, err := placeOf(handle)
	return err != nil || at != t.at
}

// isContainerRoot reports whether "/" is that of a container: container engines leave a mark there, or build it as an overlay.
// A host that starts from an overlay itself looks the same; nothing is then concluded from what is missing.
func isContainerRoot(host Host) bool {
	for _, mark := range []string{".dockerenv", "run/.containerenv"} {
		if found, err := exists(filepath.Join(host.Root, mark)); err != nil || found {
			return true
		}
	}
	mounts, err := os.ReadFile(filepath.Join(host.Proc, "self/mountinfo"))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(mounts)) {
		// man 5 proc: id, parent, device, root, mount point, options, optional fields, "-", type, source, options.
		before, after, found := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !found || len(fields) < 5 || fields[4] != "/" {
			continue
		}
		switch kind, _, _ := strings.Cut(after, " "); kind {
		case "overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs":
			return true
		}
	}
	return false
}
