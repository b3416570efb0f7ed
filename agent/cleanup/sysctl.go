package cleanup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// errOtherValue says that a kernel parameter is not what the plan says it is: somebody else has set it since.
var errOtherValue = errors.New("it has another value than when the plan was made")

// resetSysctl writes a kernel parameter, if it still has the value that the plan says. path is relative to /proc/sys, such
// as "net/ipv4/conf/all/arp_ignore". One that is not there is no error: its module is gone.
func resetSysctl(proc, path, from, to string) (existed bool, err error) {
	root, err := os.OpenRoot(filepath.Join(proc, "sys"))
	if err != nil {
		return false, fmt.Errorf("open the kernel's parameters: %w", err)
	}
	defer func() { _ = root.Close() }()
	file, err := root.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("set %s: %w", path, err)
	}
	return true, errors.Join(swapSysctl(file, path, from, to), file.Close())
}

func swapSysctl(file *os.File, path, from, to string) error {
	var buffer [64]byte
	length, err := file.Read(buffer[:])
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if now := string(bytes.TrimSpace(buffer[:length])); now != from {
		return fmt.Errorf("set %s, which is %q: %w", path, now, errOtherValue)
	}
	if _, err := file.WriteAt([]byte(to), 0); err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	return nil
}
