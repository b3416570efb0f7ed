package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fetchLimit is the most that fetching and unpacking a kernel may take.
const fetchLimit = 5 * time.Minute

// release is the Debian release that a kernel comes from.
type release struct{ suite, number string }

// releases returns, by kernel version, where it is found.
func releases() map[string]release {
	return map[string]release{"5.10": {"bullseye", "11"}, "6.1": {"bookworm", "12"}, "6.12": {"trixie", "13"}}
}

// Kernels lists the kernel versions that a guest may have, oldest first.
func Kernels() []string {
	return slices.SortedFunc(maps.Keys(releases()), func(a, b string) int {
		return strings.Compare(releases()[a].number, releases()[b].number)
	})
}

// kernel is an unpacked kernel package.
type kernel struct {
	version string // as asked for: 6.1
	release string // as uname -r says it: 6.1.0-57-cloud-amd64
	dir     string // what the package installs, below this folder
}

func (k kernel) image() string   { return filepath.Join(k.dir, "boot", "vmlinuz-"+k.release) }
func (k kernel) modules() string { return filepath.Join(k.dir, "lib/modules", k.release) }

// kernel fetches a kernel, or takes it from the cache.
func (l *Lab) kernel(ctx context.Context, version string) (kernel, error) {
	from, ok := releases()[version]
	if !ok {
		return kernel{}, fmt.Errorf("no kernel %s in the lab: there are %s", version, strings.Join(Kernels(), ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	began := time.Now()
	fetched := false
	dir, err := l.cache.entry(ctx, filepath.Join("kernels", from.suite), func(path string) error {
		fetched = true
		return fetchKernel(ctx, from.suite, path)
	})
	if err != nil {
		return kernel{}, fmt.Errorf("getting kernel %s: %w", version, err)
	}
	if fetched {
		l.logf(began, "fetched kernel %s from Debian %s", version, from.suite)
	}
	return openKernel(version, dir)
}

func openKernel(version, dir string) (kernel, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lib/modules/*"))
	if err != nil || len(found) != 1 {
		return kernel{}, fmt.Errorf("want one kernel in %s, have %d: remove that folder", dir, len(found))
	}
	k := kernel{version: version, release: filepath.Base(found[0]), dir: dir}
	if !exists(k.image()) {
		return kernel{}, fmt.Errorf("no %s: remove %s", k.image(), dir)
	}
	return k, nil
}

// fetchKernel unpacks a suite's cloud kernel below dir and writes the module index that depmod makes.
func fetchKernel(ctx context.Context, suite, dir string) error {
	archive, err := mirror("/etc/apt")
	if err != nil {
		return err
	}
	scratch := dir + ".apt"
	a := apt{dir: scratch, archive: archive, suite: suite}
	if err := a.prepare(ctx); err != nil {
		return err
	}
	name, err := a.realPackage(ctx)
	if err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "download", name); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(scratch, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("want one downloaded package, have %d (%w)", len(files), err)
	}
	if _, err := a.run(ctx, "dpkg-deb", "-x", files[0], dir); err != nil {
		return err
	}
	// From trixie on packages install below /usr only; depmod and this package look below /lib.
	if !exists(filepath.Join(dir, "lib")) {
		if err := os.Symlink("usr/lib", filepath.Join(dir, "lib")); err != nil {
			return fmt.Errorf("linking lib: %w", err)
		}
	}
	k, err := openKernel(suite, dir)
	if err != nil {
		return err
	}
	_, err = a.run(ctx, "depmod", "-b", dir, k.release)
	return err
}
