package cleanup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// makeFolder makes a folder that only root can look into, and makes sure that it is still there after a power cut.
func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a state folder: %w", err)
	}
	return syncFolder(filepath.Dir(dir))
}

// syncFolder writes the names in a folder to the disk.
func syncFolder(dir string) error {
	folder, err := os.Open(dir) //nolint:gosec // a folder of the state folder //nolint:gosec // below the state folder, which the operator names
	if err != nil {
		return fmt.Errorf("open a folder: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("write a folder to the disk: %w", err)
	}
	return nil
}

// writeDurably makes a new file and writes it to the disk.
func writeDurably(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // a file of the state folder //nolint:gosec // below the state folder
	if err != nil {
		return fmt.Errorf("make a file: %w", err)
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
