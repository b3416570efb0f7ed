package nodes_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// exported is what make cluster tells a person to type.
var exported = regexp.MustCompile(`(?m)^    export KUBECONFIG=(\S+) PATH=(\S+):\$PATH$`)

// A person reaches what make cluster starts by what it prints, and it leaves nothing, also when it is killed.
func TestAClusterToTryThingsOn(t *testing.T) {
	need(t)
	program := filepath.Join(t.TempDir(), "up")
	// As go run builds it: it looks for e2e/kube where it was compiled from.
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "offramp.dev/offramp/e2e/nodes/up").CombinedOutput(); err != nil {
		t.Fatalf("building it: %v: %s", err, out)
	}
	for name, signal := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "Ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			cmd, said := startUp(t, program)
			export := exported.FindStringSubmatch(said)
			if export == nil {
				t.Fatalf("it does not say how to reach the cluster: %s", said)
			}
			family := descendants(cmd.Process.Pid)
			kubectl := exec.CommandContext(t.Context(), filepath.Join(export[2], "kubectl"), "get", "nodes", "--no-headers")
			kubectl.Env = append(os.Environ(), "KUBECONFIG="+export[1])
			if out, err := kubectl.CombinedOutput(); err != nil || strings.Count(string(out), " Ready ") != 2 {
				t.Errorf("kubectl get nodes: %v: %s", err, out)
			}
			if tracesOf(t, cmd.Process.Pid) == 0 {
				t.Error("no cgroup and no folder of it is there")
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil && signal == syscall.SIGINT {
				t.Errorf("after a Ctrl-C: %v", err)
			}
			eventually(t, "all processes are gone", func() bool {
				return !slices.ContainsFunc(family, func(pid int) bool { return commandOf(pid) != "" })
			})
			eventually(t, "its cgroups, mounts and files are gone", func() bool { return tracesOf(t, cmd.Process.Pid) == 0 })
		})
	}
}

// tracesOf counts what of one process is left on the host, where others may run the same.
func tracesOf(t *testing.T, pid int) (n int) {
	t.Helper()
	name := regexp.MustCompile(fmt.Sprintf(`\bofframp-%d\b`, pid))
	for _, trace := range traces(t) {
		n += len(name.FindAllString(trace, -1))
	}
	return n
}

// startUp returns what the program says until the cluster is there.
func startUp(t *testing.T, program string) (cmd *exec.Cmd, said string) {
	t.Helper()
	cmd = exec.Command(program, "-images", t.TempDir())
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		said += lines.Text() + "\n"
		if strings.HasPrefix(lines.Text(), "Ctrl-C ") {
			return cmd, said
		}
	}
	t.Fatalf("it ended too soon: %s", said)
	return nil, ""
}
