package lab

import (
	"fmt"
	"os/exec"
	"strings"
)

// Package is a Debian package that the lab needs on its host, with the programs that tell whether it is there.
type Package struct {
	Name     string
	Programs []string
}

// Packages lists what the lab needs beside Go, root and /dev/net/tun. Where two programs are named both are needed.
func Packages() []Package {
	return []Package{
		{"qemu-system-x86", []string{qemuProgram}},
		{"kmod", []string{"modprobe", "depmod"}},
		{"busybox-static", []string{"busybox"}},
		{"e2fsprogs", []string{"mke2fs"}},
		{"iproute2", []string{"ip"}},
		{"iptables", []string{"iptables-nft", "iptables-legacy"}},
		{"nftables", []string{"nft"}},
		{"ipset", []string{"ipset"}},
		{"ipvsadm", []string{"ipvsadm"}},
		{"conntrack", []string{"conntrack"}},
		{"netbase", nil},
		{"apt", []string{"apt-get", "apt-cache"}},
		{"dpkg", []string{"dpkg-deb"}},
		{"debian-archive-keyring", nil},
	}
}

// optionalPrograms go into guests where the host has them.
func optionalPrograms() []string { return []string{"nfacct", "strace", "tcpdump", "ss"} }

// CheckTools says which packages are missing and how to get them.
func CheckTools() error { return checkTools(lookProgram) }

func checkTools(look func(string) (string, error)) error {
	var programs, packages []string
	for _, p := range Packages() {
		before := len(programs)
		for _, program := range p.Programs {
			if _, err := look(program); err != nil {
				programs = append(programs, program)
			}
		}
		if len(programs) > before {
			packages = append(packages, p.Name)
		}
	}
	if len(programs) == 0 {
		return nil
	}
	return fmt.Errorf("the lab needs programs that are not here: %s. On Debian:\n\tapt-get install --no-install-recommends %s",
		strings.Join(programs, ", "), strings.Join(packages, " "))
}

// lookProgram finds a program also where PATH lacks the folders of system programs.
func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("looking for a program: %w", err)
}
