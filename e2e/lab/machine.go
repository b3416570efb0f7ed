package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

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

// arguments builds QEMU's command line. The initial file system is its file 3 and the tap links are its files 4 and 5.
func arguments(spec machineSpec) []string {
	accel, cpu := "tcg,thread=multi", "max"
	if spec.accel == KVM {
		// Nested KVM may refuse to set this model-specific register, and QEMU then aborts.
		accel, cpu = "kvm", "max,arch-capabilities=off"
	}
	end := fmt.Sprintf("%02x:%02x", spec.number>>8, spec.number&0xff)
	return []string{
		"-M", "q35,usb=off,vmport=off", "-accel", accel, "-cpu", cpu, "-smp", "1", "-m", strconv.Itoa(spec.memory) + "M",
		"-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio", "-monitor", "none",
		"-netdev", "tap,id=n0,fd=4", "-device", "virtio-net-pci,netdev=n0,romfile=,mac=" + wire.LinkMAC + end,
		"-netdev", "tap,id=n1,fd=5", "-device", "virtio-net-pci,netdev=n1,romfile=,mac=" + wire.ControlMAC + end,
		"-kernel", spec.image, "-initrd", "/proc/self/fd/3", "-append", spec.cmdline,
	}
}

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
		return fmt.Errorf("the virtual machine ended (%v) before it was up; its console said:\n%s", m.err, m.console.tail())
	case <-ctx.Done():
		return fmt.Errorf("the virtual machine is not up: %w; its console said:\n%s", ctx.Err(), m.console.tail())
	}
}

// initrd puts archives one after the other into a file that has no name, so that nothing can be left behind.
func initrd(parts []string, last archive) (*os.File, error) {
	fd, err := unix.MemfdCreate("initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "initrd")
	for _, part := range parts {
		if err := copyTo(file, part); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	if err := last.write(file); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// console keeps what a machine writes to its serial line, and notices one line in it.
type console struct {
	want  string
	ready chan struct{}

	mu   sync.Mutex
	text bytes.Buffer
	seen bool
}

func newConsole(want string) *console { return &console{want: want, ready: make(chan struct{})} }

// Write implements io.Writer.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(p)
	if !c.seen && bytes.Contains(c.text.Bytes(), []byte(c.want)) {
		c.seen = true
		close(c.ready)
	}
	return len(p), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(c.text.String(), "\r\n", "\n")
}

// tail is the last lines, enough to see why a boot failed.
func (c *console) tail() string {
	const most = 40
	lines := strings.Split(strings.TrimSpace(c.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
