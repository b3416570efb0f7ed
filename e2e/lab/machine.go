package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"offramp.dev/offramp/e2e/lab/wire"
)

const qemuProgram = "qemu-system-x86_64"

// machine is one running QEMU.
type machine struct {
	cmd     *exec.Cmd
	console *console
	alive   context.Context //nolint:containedctx // it is the machine's life
	err     error           // why it ended; read it after alive is done
}

// machineSpec is all that a machine is made from.
type machineSpec struct {
	accel   Accel
	memory  int // MiB
	image   string
	initrd  *os.File
	disk    *os.File // nil for none
	number  int
	cmdline string
}

// startMachine starts a virtual machine in the namespace; it is not waited for.
func startMachine(n *namespace, spec machineSpec) (*machine, error) {
	program, err := lookProgram(qemuProgram)
	if err != nil {
		return nil, err
	}
	taps, err := openTaps(n, spec.number)
	if err != nil {
		return nil, err
	}
	defer closeAll(taps)

	alive, end := context.WithCancel(context.Background())
	m := &machine{console: newConsole(wire.Ready), alive: alive}
	m.cmd = exec.Command(program, arguments(spec)...)
	m.cmd.ExtraFiles = append([]*os.File{spec.initrd}, taps...)
	if spec.disk != nil {
		m.cmd.ExtraFiles = append(m.cmd.ExtraFiles, spec.disk)
	}
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	if err := n.start(m.cmd); err != nil {
		end()
		return nil, fmt.Errorf("starting a virtual machine: %w", err)
	}
	go func() {
		m.err = m.cmd.Wait()
		end()
	}()
	return m, nil
}

// openTaps opens a guest's two tap links: for its own traffic and for the lab's control.
func openTaps(n *namespace, number int) ([]*os.File, error) {
	var taps []*os.File
	err := n.do(func() error {
		for _, name := range []string{"tap", "ctl"} {
			tap, err := openTap(fmt.Sprintf("%s%d", name, number))
			if err != nil {
				return err
			}
			taps = append(taps, tap)
		}
		return nil
	})
	if err != nil {
		closeAll(taps)
	}
	return taps, err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}

// arguments builds QEMU's command line. The initial file system is its file 3, the tap links are its files 4 and 5, and the
// disk, if there is one, is its file 6.
func arguments(spec machineSpec) []string {
	accel, cpu := "tcg,thread=multi", "max"
	if spec.accel == KVM {
		// Nested KVM may refuse to set this model-specific register, and QEMU then aborts.
		accel, cpu = "kvm", "max,arch-capabilities=off"
	}
	end := fmt.Sprintf("%02x:%02x", spec.number>>8, spec.number&0xff)
	all := []string{
		"-M", "q35,usb=off,vmport=off", "-accel", accel, "-cpu", cpu, "-smp", "1", "-m", strconv.Itoa(spec.memory) + "M",
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio", "-monitor", "none",
		"-netdev", "tap,id=n0,fd=4", "-device", "virtio-net-pci,netdev=n0,romfile=,mac=" + wire.LinkMAC + end,
		"-netdev", "tap,id=n1,fd=5", "-device", "virtio-net-pci,netdev=n1,romfile=,mac=" + wire.ControlMAC + end,
		"-kernel", spec.image, "-initrd", "/proc/self/fd/3", "-append", spec.cmdline,
	}
	if spec.disk != nil {
		all = append(all, "-drive", "file=/proc/self/fd/6,format=raw,if=none,id=d0", "-device", "virtio-blk-pci,drive=d0")
	}
	return all
}

// errEnded stands for a machine that ended without an error, by a power-off.
var errEnded = errors.New("power off")

// kill ends the machine at once: its state is in memory only.
func (m *machine) kill() {
	_ = m.cmd.Process.Kill()
	<-m.alive.Done()
}

// waitReady waits until the guest's server listens.
func (m *machine) waitReady(ctx context.Context) error {
	select {
	case <-m.console.ready:
		return nil
	case <-m.alive.Done():
		return fmt.Errorf("the virtual machine ended before it was up: %w; its console said:\n%s", cmp.Or(m.err, errEnded), m.console.tail())
	case <-ctx.Done():
		return fmt.Errorf("the virtual machine is not up: %w; its console said:\n%s", ctx.Err(), m.console.tail())
	}
}
