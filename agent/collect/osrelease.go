package collect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxOSRelease bounds what is read of an os-release file, in bytes.
const maxOSRelease = 1 << 16

// readOSRelease returns the variables of the host's os-release (man 5 os-release), none when the file is not in sight.
func readOSRelease(root string) map[string]string {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		if text, err := readBelow(root, path); err == nil {
			return parseOSRelease(text)
		}
	}
	return nil
}

// readBelow reads a regular file of the host's. Symbolic links are followed as if root were "/", so that an absolute one on
// a mounted host leads to the host's file, and none leads out of root.
func readBelow(root, path string) (string, error) {
	file, err := openBelow(root, path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxOSRelease))
	return string(text), err
}

func openBelow(root, path string) (*os.File, error) {
	directory, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	top, err := directory.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	fd, err := unix.Openat2(int(top.Fd()), path, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	// Kernels before 5.6 do not know the call and old seccomp profiles forbid it. What comes instead refuses absolute links.
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return directory.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// parseOSRelease reads lines NAME=VALUE, where the value may be quoted as in a shell.
func parseOSRelease(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found && !strings.HasPrefix(name, "#") {
			values[name] = printable([]byte(unquote(value)))
		}
	}
	return values
}

// unquote takes one pair of quotes away and resolves the backslashes that a shell would inside double quotes.
func unquote(value string) string {
	if len(value) < 2 || value[0] != value[len(value)-1] {
		return value
	}
	inner := value[1 : len(value)-1]
	switch value[0] {
	case '\'':
		return inner
	case '"':
		return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`").Replace(inner)
	default:
		return value
	}
}
