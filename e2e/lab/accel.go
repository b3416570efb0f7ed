package lab

import (
	"fmt"
	"os"

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

// kvmUsable says whether the kernel makes a virtual machine for us. That the device is there says little: in containers
// and nested machines it often is, and fails.
func kvmUsable() error {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("opening KVM: %w", err)
	}
	defer func() { _ = device.Close() }()
	const createVM = 0xae01 // KVM_CREATE_VM of uapi/linux/kvm.h
	machine, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), createVM, 0)
	if errno != 0 {
		return fmt.Errorf("making a virtual machine: %w", errno)
	}
	return unix.Close(int(machine))
}
