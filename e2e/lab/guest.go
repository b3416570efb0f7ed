package lab

import (
	"io/fs"
	"os"
	"time"
)

const (
	// bootLimit is the most that a boot may take; in software on a busy machine it takes 10 to 20 s.
	bootLimit = 2 * time.Minute
	// defaultMemory is what a guest gets, in MiB.
	defaultMemory = 1024
)

// VM says what is to be booted.
type VM struct {
	// Name is the guest's host name: letters, digits and dashes.
	Name string
	// Kernel is one of Kernels(): "5.10", "6.1", "6.12".
	Kernel string
	// Memory in MiB; 0 is 1024.
	Memory int
	// Files are put into the guest's file system before it starts.
	Files []File
	// Cmdline is added to the kernel's command line.
	Cmdline string
	// Disk is the size in MiB of a disk with an empty file system, for what is to be durable; 0 is none. See MountDisk.
	Disk int
	// DiskOf is a guest of the same lab, switched off by now, whose disk this one gets, as it was when that one lost power.
	DiskOf *Guest
}

// File is a file for a guest.
type File struct {
	// Path is where it goes.
	Path string
	// Host is the host's file to copy; if empty, Text is the content.
	Host, Text string
	// Mode is its permissions; 0 is 0644.
	Mode fs.FileMode
}

// Guest is a running virtual machine. Its methods may be called from several goroutines.
type Guest struct {
	// Name, Kernel and Release are the host name, the kernel as asked for, and as uname -r gives it.
	Name, Kernel, Release string
	// Accel is how it runs: TCG or KVM.
	Accel Accel
	// BootTime is how long it took from the start of the virtual machine until it took commands.
	BootTime time.Duration

	lab     *Lab
	machine *machine
	disk    *os.File // nil for none; it lives as long as this
	number  int
}

// Log is what the guest's console has said so far.
func (g *Guest) Log() string { return g.machine.console.String() }

// Addr is the guest's address in the lab's network.
func (g *Guest) Addr() string { return address(trafficNetwork, g.number) }

// PID is the process of the virtual machine.
func (g *Guest) PID() int { return g.machine.cmd.Process.Pid }

// Close switches the guest off, hard, and waits until its process is gone.
func (g *Guest) Close() error {
	g.machine.kill()
	return nil
}
