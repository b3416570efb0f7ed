// Program machine is what makes namespaces look like a machine to kubelet and containerd.
//
//	machine init NAME DISK    is PID 1: it makes a root of its own, which writes to the folder DISK; then it reaps
//	machine sweep NAME DISK   makes the cgroup NAME and the folder, waits for the end of its input, and removes both; an
//	                          empty NAME is no cgroup
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "init" {
		return live(args[1], args[2])
	}
	if len(args) == 3 && args[0] == "sweep" {
		return sweep("/sys/fs/cgroup", args[1], args[2], os.Stdin, os.Stdout)
	}
	return fmt.Errorf("do not know what to do with %q", args)
}
