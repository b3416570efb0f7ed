// Program deps installs the Debian packages that tests and demo need, or says exactly what to install.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"offramp.dev/offramp/e2e/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make deps:", err)
		os.Exit(1)
	}
}

// run installs what is missing where it may: as root, on a host with apt.
func run(ctx context.Context) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	command := append([]string{"apt-get", "install", "--yes", "--no-install-recommends"}, missing...)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this host has no apt-get; install what corresponds to Debian's packages %s", strings.Join(missing, " "))
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("run this first:\n\tsudo %s", strings.Join(command, " "))
	}
	fmt.Println("make deps: installing", strings.Join(missing, " "))
	if err := apt(ctx, "apt-get", "update"); err != nil {
		return err
	}
	return apt(ctx, command...)
}

// runtimes are what real kubelets run their pods with.
func runtimes() []lab.Package {
	return []lab.Package{{Name: "containerd", Programs: []string{"containerd", "ctr"}}, {Name: "runc", Programs: []string{"runc"}}}
}

// missingPackages tells which packages have a program that is not here, or are not installed where they have none.
func missingPackages() []string {
	var missing []string
	for _, p := range slices.Concat(lab.Packages(), compilers(), bases(), neighbours(), runtimes()) {
		if !installed(p) {
			missing = append(missing, p.Name)
		}
	}
	return missing
}

// compilers are for the race detector.
func compilers() []lab.Package {
	return []lab.Package{{Name: "gcc", Programs: []string{"gcc"}}, {Name: "libc6-dev"}}
}

// bases are for the base image of Offramp's own images, which the lab makes itself.
func bases() []lab.Package {
	return []lab.Package{{Name: "debootstrap", Programs: []string{"debootstrap"}}, {Name: "ca-certificates"}}
}

// neighbours are programs whose state a clean-up must leave alone, run for real by tests.
func neighbours() []lab.Package {
	return []lab.Package{
		{Name: "keepalived", Programs: []string{"keepalived"}},
		{Name: "firewalld", Programs: []string{"firewalld", "firewall-cmd"}},
		{Name: "dbus", Programs: []string{"dbus-daemon"}},
		{Name: "docker.io", Programs: []string{"dockerd", "docker"}},
		{Name: "containernetworking-plugins"},
		{Name: "nfacct", Programs: []string{"nfacct"}},
	}
}

func installed(p lab.Package) bool {
	for _, program := range p.Programs {
		if !inPath(program) {
			return false
		}
	}
	if len(p.Programs) > 0 {
		return true
	}
	status, err := exec.Command("dpkg-query", "--show", "--showformat=${db:Status-Status}", p.Name).Output()
	return err == nil && string(status) == "installed"
}

// inPath also looks where PATH may lack the folders of system programs.
func inPath(program string) bool {
	for _, candidate := range []string{program, "/usr/sbin/" + program, "/sbin/" + program} {
		if _, err := exec.LookPath(candidate); err == nil {
			return true
		}
	}
	return false
}

func apt(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w", strings.Join(argv, " "), err)
	}
	return nil
}
