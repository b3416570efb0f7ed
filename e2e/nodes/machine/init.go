package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// staging exists on every host. What is mounted there is seen by this process alone.
const staging = "/mnt"

// live is the life of PID 1.
func live(name, disk string) error {
	if os.Getpid() != 1 {
		return errors.New("this is no namespace of processes of its own: it would cover the host's files")
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := makeRoot(disk); err != nil {
		return err
	}
	fmt.Println("ready")
	return reap()
}

// reap waits for processes that lost their parents, such as the shims of containers. It has no end of its own.
func reap() error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// makeRoot gives this process the host's root, read-only, with what a node writes to in folders of its own: /etc, a copy, and
// /var, empty, in disk, all else in memory. /var is no overlay, for containerd makes overlays in it and Offramp's agent wants
// to write its journal to a disk.
func makeRoot(disk string) error {
	root := filepath.Join(staging, "root")
	for _, step := range []func() error{
		func() error { return mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "") },
		func() error { return ownFolders(disk) },
		func() error { return mount("tmpfs", staging, "tmpfs", 0, "mode=0755") },
		func() error { return folders(root) },
		func() error { return mount("/", root, "", unix.MS_BIND, "") },
		func() error { return mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "") },
		func() error { return writable(root, disk) },
		func() error { return kernelFolders(root) },
		func() error { return pivot(root) },
		func() error { return keepTunables("/proc/sys") },
		// kubelet and containerd see each other's mounts through the root.
		func() error { return mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ownFolders makes what of the node lies on the disk.
func ownFolders(disk string) error {
	if err := folders(disk+"/var/lib", disk+"/var/log", disk+"/var/tmp"); err != nil {
		return err
	}
	if err := os.Symlink("/run", disk+"/var/run"); err != nil {
		return fmt.Errorf("making a link: %w", err)
	}
	if out, err := exec.Command("cp", "-a", "/etc", disk+"/etc").CombinedOutput(); err != nil {
		return fmt.Errorf("copying /etc: %w: %s", err, out)
	}
	return nil
}

func writable(root, disk string) error {
	return errors.Join(
		mount(disk+"/etc", root+"/etc", "", unix.MS_BIND, ""),
		mount(disk+"/var", root+"/var", "", unix.MS_BIND, ""),
		mount("tmpfs", root+"/run", "tmpfs", 0, "mode=0755"),
		mount("tmpfs", root+"/tmp", "tmpfs", 0, "mode=1777"),
	)
}

// kernelFolders mounts what the kernel shows: of these processes, of this network, the host's devices and cgroups.
func kernelFolders(root string) error {
	return errors.Join(
		mount("proc", root+"/proc", "proc", 0, ""),
		mount("sysfs", root+"/sys", "sysfs", 0, ""),
		mount("/sys/fs/cgroup", root+"/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, ""),
		mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""),
	)
}

func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return fmt.Errorf("entering the new root: %w", err)
	}
	// The old root ends up over the new one and is let go of: see pivot_root(2).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("letting go of the old root: %w", err)
	}
	return os.Chdir("/")
}

// keepTunables covers the settings of the whole machine that kubelet changes by files that have kubelet's values.
// Source: setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go of Kubernetes 1.37.
func keepTunables(sysctls string) error {
	for name, value := range map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	} {
		file := filepath.Join("/run/tunables", name)
		if err := folders(filepath.Dir(file)); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return fmt.Errorf("writing a setting: %w", err)
		}
		if err := mount(file, filepath.Join(sysctls, name), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

func folders(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", source, target, err)
	}
	return nil
}
