package lab

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// initrd puts archives one after the other into a file that has no name, so that nothing can be left behind.
func initrd(parts []string, last archive) (*os.File, error) {
	fd, err := unix.MemfdCreate("initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "initrd")
	for _, part := range parts {
		if err := copyTo(file, part); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	if err := last.write(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// copyTo appends a file to w.
func copyTo(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening an archive: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := io.Copy(w, file); err != nil {
		return fmt.Errorf("copying an archive: %w", err)
	}
	return nil
}
