package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// diskOf is the disk that a guest is to have: another's, or a new one. It is nil for none.
func diskOf(ctx context.Context, vm VM) (*os.File, error) {
	if vm.DiskOf != nil {
		return vm.DiskOf.disk, nil
	}
	return newDisk(ctx, vm.Disk)
}

// newDisk makes a file with an empty ext4 file system, which goes with its last user: it has no name. It returns nil for a
// size of 0.
func newDisk(ctx context.Context, mib int) (*os.File, error) {
	if mib == 0 {
		return nil, nil //nolint:nilnil // no disk is a normal answer
	}
	program, err := lookProgram("mke2fs")
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "offramp-disk-")
	if err != nil {
		return nil, fmt.Errorf("making a disk: %w", err)
	}
	if err := format(ctx, program, file, mib); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// format writes the file system and takes the file's name away.
func format(ctx context.Context, program string, file *os.File, mib int) error {
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Truncate(int64(mib) << 20); err != nil {
		return fmt.Errorf("making a disk of %d MiB: %w", mib, err)
	}
	if out, err := exec.CommandContext(ctx, program, "-q", "-t", "ext4", file.Name()).CombinedOutput(); err != nil {
		return fmt.Errorf("making a file system on a disk: %w: %s", err, out)
	}
	return nil
}

// MountDisk mounts the guest's disk at path, making the folder.
func (g *Guest) MountDisk(ctx context.Context, path string) error {
	for _, argv := range [][]string{
		{"modprobe", "virtio_blk"}, {"busybox", "mkdir", "-p", path}, {"busybox", "mount", "-t", "ext4", "/dev/vda", path},
	} {
		if _, err := g.Output(ctx, argv...); err != nil {
			return fmt.Errorf("mounting the disk of %s: %w", g.Name, err)
		}
	}
	return nil
}
