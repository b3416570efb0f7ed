package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// moduleDirs are the parts of a kernel's modules that guests get, below kernel/: what kube-proxy and its neighbours use
// and what a guest's own devices need.
func moduleDirs() []string {
	return []string{
		"net/netfilter", "net/ipv4", "net/ipv6", "net/core", "net/sched", "net/bridge", "net/802", "net/8021q", "net/llc", "net/netlink",
		"net/sctp", "lib", "crypto", "arch", "drivers/virtio", "drivers/net/dummy", "drivers/net/veth", "drivers/net/ifb",
		"drivers/net/macvlan", "drivers/net/ipvlan", "drivers/net/tun", "drivers/net/vxlan", "drivers/net/virtio_net",
		"drivers/net/net_failover", "drivers/block/virtio_blk",
	}
}

// modules makes the archive of a kernel's modules with an index of just these.
func (l *Lab) modules(ctx context.Context, k kernel) (string, error) {
	began := time.Now()
	name := filepath.Join("modules", k.release+"-"+layout+".cpio")
	made := false
	path, err := l.cache.entry(ctx, name, func(path string) error {
		made = true
		return makeModules(ctx, k, path)
	})
	if err != nil {
		return "", fmt.Errorf("making the modules of kernel %s: %w", k.version, err)
	}
	if made {
		l.logf(began, "made the modules of kernel %s", k.version)
	}
	return path, nil
}

func makeModules(ctx context.Context, k kernel, path string) error {
	tree := path + ".tree"
	at := filepath.Join(tree, "lib/modules", k.release)
	if err := linkModules(k.modules(), at); err != nil {
		return err
	}
	depmod, err := lookProgram("depmod")
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, depmod, "-b", tree, k.release).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, out)
	}
	content := archive{}
	err = filepath.WalkDir(at, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content.file("usr"+strings.TrimPrefix(file, tree), file, 0o644)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing modules: %w", err)
	}
	return writeArchive(path, content)
}

// linkModules builds a tree with the wanted part of a kernel's modules. The files are hard links: both trees are in the
// cache.
func linkModules(from, to string) error {
	for _, file := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		if exists(filepath.Join(from, file)) {
			if err := hardLink(from, to, file); err != nil {
				return err
			}
		}
	}
	root := filepath.Join(from, "kernel")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !wantedModule(strings.TrimPrefix(path, root+"/")) {
			return err
		}
		return hardLink(from, to, strings.TrimPrefix(path, from+"/"))
	})
	if err != nil {
		return fmt.Errorf("choosing modules: %w", err)
	}
	return nil
}

// wantedModule says whether a module, by its path below kernel/, is in one of the folders or is one of the drivers.
func wantedModule(path string) bool {
	for _, dir := range moduleDirs() {
		if strings.HasPrefix(path, dir+"/") || strings.HasPrefix(path, dir+".ko") {
			return true
		}
	}
	return false
}

func hardLink(from, to, file string) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Join(to, file)), 0o755); err != nil {
		return fmt.Errorf("making a folder for modules: %w", err)
	}
	if err := os.Link(filepath.Join(from, file), filepath.Join(to, file)); err != nil {
		return fmt.Errorf("linking a module: %w", err)
	}
	return nil
}
