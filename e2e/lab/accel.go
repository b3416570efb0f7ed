package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// AccelVariable names the environment variable that chooses how virtual machines run.
const AccelVariable = "OFFRAMP_LAB_ACCEL"

// Accel is how virtual machines run.
type Accel string

// The ways: in software, by the processor, or the second where it is seen to work.
const (
	TCG  Accel = "tcg"
	KVM  Accel = "kvm"
	Auto Accel = "auto"
)

// ParseAccel reads what AccelVariable may hold; empty is Auto.
func ParseAccel(text string) (Accel, error) {
	switch accel := Accel(text); accel {
	case "":
		return Auto, nil
	case TCG, KVM, Auto:
		return accel, nil
	default:
		return "", fmt.Errorf("%s=%s: want %s, %s or %s", AccelVariable, text, TCG, KVM, Auto)
	}
}

// probeLimit is when a boot by the processor is given up: where that works it takes 2 s.
const probeLimit = 10 * time.Second

// accel is how to boot. Auto is decided by a boot that is tried, once for as long as the host is up; what came out is
// kept in the cache.
func (l *Lab) accel(ctx context.Context, vm VM, p prepared) (Accel, error) {
	if l.options.Accel != Auto {
		return l.options.Accel, nil
	}
	if !kvmUsable() {
		return TCG, nil
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("telling which boot of the host this is: %w", err)
	}
	path, err := l.cache.entry(ctx, "accel/"+strings.TrimSpace(string(bootID)), func(path string) error {
		works := l.probe(ctx, vm, p)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		return os.WriteFile(path, []byte(works), 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("trying KVM: %w", err)
	}
	known, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading whether KVM works: %w", err)
	}
	return ParseAccel(string(known))
}

// probe boots a machine by KVM.
func (l *Lab) probe(ctx context.Context, vm VM, p prepared) Accel {
	began := time.Now()
	g, err := l.bootWith(ctx, VM{Name: "probe", Kernel: vm.Kernel}, p, KVM, probeLimit)
	if err != nil {
		l.logf(began, "/dev/kvm is there but does not boot a machine: running in software")
		return TCG
	}
	_ = g.Close()
	l.logf(began, "KVM works")
	return KVM
}

// kvmUsable says whether the kernel makes a virtual machine for us. That the device is there says little: in containers
// and nested machines it often is, and fails.
func kvmUsable() bool {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = device.Close() }()
	const createVM = 0xae01 // KVM_CREATE_VM of uapi/linux/kvm.h
	machine, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), createVM, 0)
	return errno == 0 && unix.Close(int(machine)) == nil
}
