package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A daemon leaves nothing, also when it is killed: no process, no mount, no cgroup, no folder in /run, and in the host's network it made no
// table and no link.
func TestDaemonLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(*Daemon) error{
		"asked to end": (*Daemon).Stop,
		"killed": func(d *Daemon) error {
			_ = d.command.Process.Signal(syscall.SIGKILL)
			<-d.ended
			return d.Stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			before := network(t)
			d, err := Start(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := d.Run(t.Context(), nil, "info", "--format", "{{.DockerRootDir}}"); err != nil || strings.TrimSpace(out) != data {
				t.Errorf("it keeps its images in %q (%v), want %s", out, err, data)
			}
			if err := end(d); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(before, network(t)); diff != "" {
				t.Errorf("the host's network before (-) and after (+):\n%s", diff)
			}
			if _, err := os.Stat(d.scratch); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v", d.scratch, err)
			}
			gone(t, d.scratch, data)
			if groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(d.scratch)); len(groups) > 0 {
				t.Errorf("cgroups are left: %v", groups)
			}
		})
	}
}

// network is what a daemon with a network of its own would change.
func network(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, path := range []string{"/proc/net/ip_tables_names", "/proc/net/ip6_tables_names", "/proc/sys/net/ipv4/ip_forward"} {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		all.WriteString(path + ": " + string(text) + "\n")
	}
	links, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if strings.HasPrefix(link.Name(), "docker") || strings.HasPrefix(link.Name(), "br-") {
			all.WriteString(link.Name() + "\n")
		}
	}
	return all.String()
}

// gone holds that neither a mount nor a process names one of these folders. What a killed process held goes a moment later.
func gone(t *testing.T, folders ...string) {
	t.Helper()
	var left []string
	for range 50 {
		if left = named(t, folders); len(left) == 0 {
			return
		}
		time.Sleep(poll)
	}
	t.Errorf("left: %v", left)
}

func named(t *testing.T, folders []string) []string {
	t.Helper()
	var left []string
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, "/proc/self/mounts") {
		text, err := os.ReadFile(path)
		if err == nil && slices.ContainsFunc(folders, func(folder string) bool { return strings.Contains(string(text), folder) }) {
			left = append(left, path)
		}
	}
	return left
}
