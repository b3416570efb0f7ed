package deploycheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// sandbox runs the agent as a container runtime does: with runc, in a network namespace of the test's own, with what the
// manifest of its pod says. What an API server gives (token, authority) is left out.
type sandbox struct {
	*testing.T
	pod    core.PodSpec
	folder string
	netns  string
	// more are mounts of the test's own: where the image would have its programs.
	more []mount
	// links lead from the root to folders of the same name below usr.
	links []string
	// instead are sources by the host's path, so that the test writes to no folder of the host's.
	instead map[string]string
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// missing is what a run lacks: a capability or the path of a mount; "" for nothing.
type missing string

// newSandbox skips where there is no root or no runc, or fails where kernel tests are required.
func newSandbox(t *testing.T, pod core.PodSpec) *sandbox {
	t.Helper()
	for _, tool := range []string{"runc", "ip", "nft", "ipset", "iptables-legacy", "ip6tables-legacy", "iptables-nft"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			if os.Getenv("OFFRAMP_REQUIRE_KERNEL") == "1" {
				t.Fatalf("root and %s are needed (%v)", tool, err)
			}
			t.Skipf("root and %s are needed (%v)", tool, err)
		}
	}
	s := &sandbox{T: t, pod: pod, folder: t.TempDir(), netns: fmt.Sprintf("offramp-%d-%d", os.Getpid(), len(t.Name()))}
	s.do("ip", "netns", "add", s.netns)
	t.Cleanup(func() { s.do("ip", "netns", "del", s.netns) })
	return s
}

func (s *sandbox) do(name string, args ...string) {
	s.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		s.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// inside runs a line of shell in the sandbox's network.
func (s *sandbox) inside(script string) {
	s.Helper()
	s.do("ip", "netns", "exec", s.netns, "sh", "-ec", script)
}

// freshRoot makes an image's root, as each container has its own: a mount point that an earlier run left would be a folder of it.
func (s *sandbox) freshRoot() {
	s.Helper()
	root := filepath.Join(s.folder, "rootfs")
	err := errors.Join(os.RemoveAll(root), os.Mkdir(root, 0o755), os.Link(program("agent"), filepath.Join(root, "offramp-agent")))
	for _, link := range s.links {
		err = errors.Join(err, os.Symlink("usr/"+link, filepath.Join(root, link)))
	}
	if err != nil {
		s.Fatal(err)
	}
}

// run runs the agent with the roots that its pod names, and what was asked of it, lacking something.
func (s *sandbox) run(without missing, args ...string) (stdout, stderr string, code int) {
	s.Helper()
	for _, arg := range s.pod.Containers[0].Args {
		if strings.HasPrefix(arg, "--host-root=") || strings.HasPrefix(arg, "--proc-root=") {
			args = append(args, arg)
		}
	}
	text, err := json.Marshal(s.spec(without, args))
	if err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.folder, "config.json"), text, 0o600); err != nil {
		s.Fatal(err)
	}
	s.freshRoot()
	run := exec.CommandContext(s.Context(), "runc", "run", s.netns)
	run.Dir = s.folder
	var out, complaint bytes.Buffer
	run.Stdout, run.Stderr = &out, &complaint
	err = run.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		s.Fatal(err)
	}
	return out.String(), complaint.String(), run.ProcessState.ExitCode()
}

// spec is what containerd hands to runc, where it matters.
func (s *sandbox) spec(without missing, args []string) map[string]any {
	security := s.pod.Containers[0].SecurityContext
	capabilities := []string{}
	for _, capability := range security.Capabilities.Add {
		if missing(capability) != without {
			capabilities = append(capabilities, "CAP_"+string(capability))
		}
	}
	ro := []string{"nosuid", "noexec", "nodev", "ro"}
	mounts := []mount{
		{"/proc", "proc", "proc", nil}, {"/dev", "tmpfs", "tmpfs", []string{"nosuid", "mode=755"}}, {"/sys", "sysfs", "sysfs", ro},
	}
	mounts = append(mounts, s.more...)
	for _, m := range s.pod.Containers[0].VolumeMounts {
		source := hostPathOf(core.PodTemplateSpec{Spec: s.pod}, m.Name)
		if source == "" || missing(m.MountPath) == without {
			continue
		}
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		if other, found := s.instead[source]; found {
			source = other
		}
		mounts = append(mounts, mount{m.MountPath, "bind", source, []string{"rbind", "rprivate", access}})
	}
	slices.SortStableFunc(mounts, func(a, b mount) int { return strings.Compare(a.Destination, b.Destination) })
	return map[string]any{
		"ociVersion": "1.0.2", "hostname": "node", "mounts": mounts,
		"root": map[string]any{"path": "rootfs", "readonly": *security.ReadOnlyRootFilesystem},
		"process": map[string]any{
			"cwd": "/", "args": append([]string{"/offramp-agent"}, args...), "env": []string{"PATH=/usr/sbin:/usr/bin"},
			"user": map[string]any{"uid": *security.RunAsUser, "gid": *security.RunAsGroup}, "noNewPrivileges": !*security.AllowPrivilegeEscalation,
			"capabilities": map[string]any{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
		},
		"linux": map[string]any{
			"namespaces": []map[string]any{
				{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network", "path": "/var/run/netns/" + s.netns},
			},
			"maskedPaths":   []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"},
			"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// given is what the pod gives that can be taken away here.
func (s *sandbox) given() []missing {
	var all []missing
	for _, capability := range s.pod.Containers[0].SecurityContext.Capabilities.Add {
		all = append(all, missing(capability))
	}
	for _, m := range s.pod.Containers[0].VolumeMounts {
		if hostPathOf(core.PodTemplateSpec{Spec: s.pod}, m.Name) != "" {
			all = append(all, missing(m.MountPath))
		}
	}
	slices.Sort(all)
	return all
}
