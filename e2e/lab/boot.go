package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/lab/wire"
)

// Boot starts a virtual machine and waits until it takes commands, for at most two minutes once the kernel is fetched.
func (l *Lab) Boot(ctx context.Context, vm VM) (*Guest, error) {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`).MatchString(vm.Name) {
		return nil, fmt.Errorf("%q is no name for a virtual machine", vm.Name)
	}
	parts, err := l.prepare(ctx, vm)
	if err != nil {
		return nil, err
	}
	accel, err := l.accel(ctx, vm, parts)
	if err != nil {
		return nil, err
	}
	return l.bootWith(ctx, vm, parts, accel, bootLimit)
}

// prepared is what a boot needs from the cache.
type prepared struct {
	kernel              kernel
	base, modules, init string
}

// prepare gets everything ready that is the same for many boots. What does not depend on each other is made side by side.
func (l *Lab) prepare(ctx context.Context, vm VM) (p prepared, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { p.base, err = l.base(ctx); return err })
	group.Go(func() (err error) { p.init, err = l.program(ctx, initPackage, "init"); return err })
	group.Go(func() (err error) {
		if p.kernel, err = l.kernel(ctx, vm.Kernel); err != nil {
			return err
		}
		p.modules, err = l.modules(ctx, p.kernel)
		return err
	})
	return p, group.Wait()
}

func (l *Lab) bootWith(ctx context.Context, vm VM, p prepared, accel Accel, limit time.Duration) (g *Guest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("booting %s (kernel %s, %s): %w", vm.Name, vm.Kernel, accel, err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	number := l.next()
	g = &Guest{
		Name: vm.Name, Kernel: vm.Kernel, Release: p.kernel.release, Accel: accel,
		lab: l, number: number,
	}
	rootfs, err := initrd([]string{p.base, p.modules}, ownFiles(vm, p))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rootfs.Close() }()
	if g.disk, err = diskOf(ctx, vm); err != nil {
		return nil, err
	}
	began := time.Now()
	g.machine, err = startMachine(l.space, machineSpec{
		disk:  g.disk,
		accel: accel, memory: cmp.Or(vm.Memory, defaultMemory), image: p.kernel.image(), initrd: rootfs,
		number:  number,
		cmdline: cmdline(vm, number, accel),
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(l.adopt(g), g.machine.waitReady(ctx)); err != nil {
		g.machine.kill()
		return nil, err
	}
	g.BootTime = time.Since(began)
	l.logf(began, "%s is up: kernel %s, %s", g.Name, g.Release, accel)
	return g, nil
}

func cmdline(vm VM, number int, accel Accel) string {
	clock := "tsc=reliable"
	if accel == TCG {
		// In software the processor's counter cannot be calibrated on a busy host: clocks were seen to run three times too
		// fast, and the kernel to give up because it saw no timer interrupt in time.
		clock = "clocksource=acpi_pm no_timer_check"
	}
	words := []string{
		"console=ttyS0", "quiet", "panic=-1", "random.trust_cpu=on", clock,
		wire.NameKey + "=" + vm.Name, wire.AddressKey + "=" + address(trafficNetwork, number) + "/16",
		wire.ControlKey + "=" + address(controlNetwork, number) + "/16", vm.Cmdline,
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// ownFiles is the last part of a guest's file system: its init program, its names, and the files asked for.
func ownFiles(vm VM, p prepared) archive {
	a := archive{}
	from := releases()[vm.Kernel]
	a.file(initProgram, p.init, 0o755)
	a.text("etc/hostname", vm.Name+"\n")
	sum := sha256.Sum256([]byte(vm.Name))
	a.text("etc/machine-id", hex.EncodeToString(sum[:16])+"\n")
	a.text("etc/os-release", fmt.Sprintf("ID=debian\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=%q\nVERSION_CODENAME=%s\nPRETTY_NAME=\"Debian GNU/Linux %s (%s)\"\n",
		from.number, from.suite, from.number, from.suite))
	for _, f := range vm.Files {
		a[clean(f.Path)] = archived{host: f.Host, text: f.Text, mode: cmp.Or(f.Mode, 0o644)}
	}
	a.underMergedUsr()
	return a
}

// underMergedUsr moves what lies under /bin, /sbin or /lib: those are links, and an archive cannot put files below one.
func (a archive) underMergedUsr() {
	for name, e := range a {
		if moved := clean(merge("/" + name)); moved != name {
			delete(a, name)
			a[moved] = e
		}
	}
}
