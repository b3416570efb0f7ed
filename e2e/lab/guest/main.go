// Command guest is the init program of the lab's virtual machines.
//
// As PID 1 it mounts the kernel's file systems, brings the link to the lab up, starts itself again as the server that
// runs the lab's commands, and from then on only reaps. It loads no module but those that its own links need: what a
// test finds loaded, the test loaded. The server has a link and a network namespace of its own, so that no rule which a
// test makes in the guest's can cut it off; the commands run in the guest's.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/e2e/lab/wire"
)

const serveArgument = "serve"

func main() {
	if len(os.Args) > 1 && os.Args[1] == serveArgument {
		fatal(serve(os.Args[2]))
	}
	if os.Getpid() != 1 {
		fatal(fmt.Errorf("this is the init program of a lab guest; see e2e/lab"))
	}
	err := boot()
	fmt.Fprintf(os.Stderr, "\nofframp-guest: %v\n", err)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "\nofframp-guest: %v\n", err)
	os.Exit(1)
}

// boot does all of PID 1's work and returns only when the server has ended.
func boot() error {
	if err := mountAll(); err != nil {
		return err
	}
	cmdline, err := configure()
	if err != nil {
		return err
	}
	server := exec.Command("/init", serveArgument, wire.Parameter(cmdline, wire.ControlKey))
	server.Stdout, server.Stderr = os.Stdout, os.Stderr
	server.Env = environment()
	server.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := server.Start(); err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	control, err := findLink(wire.ControlMAC)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNsPid(control, server.Process.Pid); err != nil {
		return fmt.Errorf("giving the server its link: %w", err)
	}
	return reap(server.Process.Pid)
}

// reap waits for whatever is left to PID 1, until the server ends.
func reap(server int) error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting for processes: %w", err)
		}
		if pid == server {
			return fmt.Errorf("the server ended with status %d", status)
		}
	}
}

func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TMPDIR=/tmp"}
}
