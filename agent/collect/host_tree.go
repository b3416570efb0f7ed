package collect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxHostFile bounds what is read of a file of the host's that is read as a whole, in bytes. A longer one is an error.
	maxHostFile = 1 << 20
	// maxListed bounds how many entries of a folder are looked at.
	maxListed = 512
	// maxOpenTries bounds how often a path is looked up that others are moving about (openat2 answers EAGAIN).
	maxOpenTries = 8
)

var (
	errNotInSight = errors.New("not in sight")
	errNotRegular = errors.New("not a regular file")
	errTooBig     = errors.New("too big to be read")
	// errOldKernel: kernels before 5.6 do not know openat2, and old seccomp profiles forbid it.
	errOldKernel = errors.New("openat2 is not to be had")
)

// hostTree reads files below the host's root. Paths are relative to it. Symbolic links are followed as if the root were
// "/", so that an absolute one on a mounted host leads to the host's file, and none leads out of it. Use openHostTree.
type hostTree struct {
	dir *os.Root
	top *os.File
	at  place
	// whole: what is missing below the root itself is missing on the host.
	whole bool
}

// openHostTree opens the host's root.
func openHostTree(host Host) (*hostTree, error) {
	dir, err := os.OpenRoot(host.Root)
	if err != nil {
		return nil, fmt.Errorf("open the host's root: %w", err)
	}
	top, err := dir.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the host's root: %w", err), dir.Close())
	}
	tree := &hostTree{dir: dir, top: top}
	if tree.at, err = placeOf(top); err != nil {
		return nil, errors.Join(err, tree.close())
	}
	tree.whole = tree.isWhole(host)
	return tree, nil
}

func (t *hostTree) close() error { return errors.Join(t.top.Close(), t.dir.Close()) }

// read returns a regular file of at most maxHostFile bytes. Without an error, found is false only where the file is
// certainly not on the host; where it cannot be told, the error is errNotInSight.
func (t *hostTree) read(name string) (content []byte, found bool, err error) {
	file, err := t.openRegular(name)
	if err != nil {
		found, err = t.missing(name, err)
		return nil, found, err
	}
	defer func() { _ = file.Close() }()
	content, err = io.ReadAll(io.LimitReader(file, maxHostFile+1))
	if err == nil && len(content) > maxHostFile {
		err = errTooBig
	}
	return content, true, t.describe(name, err)
}

// list returns the names in a folder, sorted, as read does. More than maxListed are an error.
func (t *hostTree) list(name string) (names []string, found bool, err error) {
	folder, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		found, err = t.missing(name, err)
		return nil, found, err
	}
	defer func() { _ = folder.Close() }()
	names, err = folder.Readdirnames(maxListed + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && len(names) > maxListed {
		err = errTooBig
	}
	slices.Sort(names)
	return names, true, t.describe(name, err)
}

// openRegular opens only what is a regular file: opening a device can itself do something.
func (t *hostTree) openRegular(name string) (*os.File, error) {
	handle, err := t.open(name, unix.O_PATH)
	if err != nil {
		return nil, err
	}
	var status unix.Stat_t
	err = errors.Join(unix.Fstat(int(handle.Fd()), &status), handle.Close())
	switch {
	case err != nil:
		return nil, err
	case status.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNotRegular
	default:
		return t.open(name, unix.O_RDONLY|unix.O_NONBLOCK)
	}
}

func (t *hostTree) open(name string, flags int) (*os.File, error) {
	fd, err := t.resolve(name, flags)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), name), nil
	case errors.Is(err, errOldKernel):
		// What comes instead refuses absolute links.
		return t.dir.OpenFile(name, flags, 0)
	default:
		return nil, err
	}
}

// resolve opens a path as the host itself would; errOldKernel where the kernel cannot.
func (t *hostTree) resolve(name string, flags int) (int, error) {
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC), //nolint:gosec // flags are not negative
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(int(t.top.Fd()), name, how)
	for try := 1; errors.Is(err, unix.EAGAIN) && try < maxOpenTries; try++ {
		fd, err = unix.Openat2(int(t.top.Fd()), name, how)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return -1, errOldKernel
	}
	return fd, err
}

// isLink reports whether the path itself is a symbolic link.
func (t *hostTree) isLink(name string) bool {
	fd, err := t.resolve(name, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, errOldKernel) {
		info, err := t.dir.Lstat(name)
		return err == nil && info.Mode()&fs.ModeSymlink != 0
	}
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var status unix.Stat_t
	return unix.Fstat(fd, &status) == nil && status.Mode&unix.S_IFMT == unix.S_IFLNK
}

// describe puts the file's name as the host calls it before an error, and takes what the error itself says of the path.
func (t *hostTree) describe(name string, err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("/%s: %w", strings.TrimPrefix(name, "/"), err)
}

// missing tells what a failed open means: that the file is not on the host, that this cannot be told, or the error.
func (t *hostTree) missing(name string, err error) (found bool, reason error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return true, t.describe(name, err)
	}
	if !t.inSight(name) {
		return false, t.describe(name, errNotInSight)
	}
	return false, nil
}

// inSight reports whether a path that does not exist would be seen if the host had it: the nearest folder above it is of
// the host's, and no link on the way leads to what is not there.
func (t *hostTree) inSight(name string) bool {
	for name = path.Clean(name); name != "." && name != "/"; name = path.Dir(name) {
		if t.isLink(name) {
			if handle, err := t.open(name, unix.O_PATH); err == nil {
				return t.isHosts(handle)
			}
			return false
		}
		if handle, err := t.open(name, unix.O_PATH); err == nil {
			return t.isHosts(handle)
		}
	}
	return t.whole
}

func (t *hostTree) isHosts(handle *os.File) bool {
	defer func() { _ = handle.Close() }()
	at, err := placeOf(handle)
	return err == nil && (t.whole || at != t.at)
}
