package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools adds programs of the host with the libraries they need.
type tools struct {
	archive   archive
	libraries *libraries
}

// addAll adds all programs. The shell is the host's: busybox's own would take its applets for the programs of that name.
func (t tools) addAll() error {
	for _, name := range []string{
		"sh", "modprobe", "lsmod", "rmmod", "insmod", "modinfo", "depmod", "ip", "busybox", "nft", "ipset", "ipvsadm", "conntrack",
	} {
		if err := t.program(name); err != nil {
			return err
		}
	}
	for _, name := range optionalPrograms() {
		if _, err := lookProgram(name); err == nil {
			if err := t.program(name); err != nil {
				return err
			}
		}
	}
	if err := t.iptables(); err != nil {
		return err
	}
	return t.files("/etc/protocols", "/etc/services", "/etc/iproute2/*", "/etc/ethertypes")
}

// program adds a program under its own name.
func (t tools) program(name string) error {
	path, err := lookProgram(name)
	if err != nil {
		return err
	}
	return t.binary(path)
}

// binary adds an ELF file at its path: the file that it is in the end, the path as a link to that, its libraries.
func (t tools) binary(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("following %s: %w", path, err)
	}
	t.archive.file(merge(real), real, 0o755)
	if merge(path) != merge(real) {
		t.archive.link(merge(path), merge(real))
	}
	needed, err := t.libraries.closure(real)
	if err != nil {
		return err
	}
	for _, library := range needed {
		if err := t.binary(library); err != nil {
			return err
		}
	}
	return nil
}

// merge gives a path as it is where /bin, /sbin and /lib are links into /usr.
func merge(path string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(path, dir) {
			return "/usr" + path
		}
	}
	return path
}

// iptables adds both backends under all their names, the plain names being the nft backend's, and all extensions.
func (t tools) iptables() error {
	for _, backend := range []string{"nft", "legacy"} {
		any, err := lookProgram("iptables-" + backend)
		if err != nil {
			return err
		}
		if err := t.iptablesNames(filepath.Dir(any), backend); err != nil {
			return err
		}
	}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil || len(extensions) == 0 {
		return fmt.Errorf("no iptables extensions under /usr/lib (%w)", err)
	}
	for _, extension := range extensions {
		if err := t.binary(extension); err != nil {
			return err
		}
	}
	return nil
}

func (t tools) iptablesNames(dir, backend string) error {
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, action := range []string{"", "-save", "-restore"} {
			path := filepath.Join(dir, family+"-"+backend+action)
			if err := t.binary(path); err != nil {
				return err
			}
			if backend == "nft" {
				t.archive.link(merge(filepath.Join(dir, family+action)), merge(path))
			}
		}
	}
	return nil
}

// files adds plain files; what is not there is left out.
func (t tools) files(patterns ...string) error {
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("looking for %s: %w", pattern, err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				t.archive.file(path, path, 0o644)
			}
		}
	}
	return nil
}

// addApplets links busybox's applets for which there is no program of their own.
func addApplets(ctx context.Context, a archive) error {
	busybox, err := lookProgram("busybox")
	if err != nil {
		return err
	}
	list, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("asking busybox for its applets: %w", err)
	}
	for name := range strings.FieldsSeq(string(list)) {
		if !a.has("usr/sbin/"+name) && !a.has("usr/bin/"+name) {
			a.link("usr/bin/"+name, merge(busybox))
		}
	}
	return nil
}

func (a archive) has(name string) bool {
	_, there := a[name]
	return there
}
