package nodes_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/nodes"
)

// holding makes a process started by the test below one that holds a node.
const holding = "OFFRAMP_NODES_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holding) != "" {
		if err := hold(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// hold has a node with a pod that runs, says so, and waits to be killed.
func hold(ctx context.Context) error {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, l, cluster.Options{Kubelets: []string{"held"}})
	if err != nil {
		return err
	}
	n, err := nodes.Add(ctx, c, cluster.NodeSpec{Name: "held", Proxy: kube.Proxy137})
	if err != nil {
		return err
	}
	if err := runPod(ctx, c, "held"); err != nil {
		return err
	}
	fmt.Println("held", n.Disk())
	select {}
}

// A node with a pod that runs, ended from outside in ways that let it do nothing about it.
func TestNothingIsLeftBehind(t *testing.T) {
	need(t)
	for name, signal := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "Ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			before := traces(t)
			holder, disk := startHolder(t)
			family := descendants(holder.Process.Pid)
			for _, program := range []string{"machine", "containerd", "containerd-shim", "kubelet", "pause"} {
				if !slices.ContainsFunc(family, func(pid int) bool { return strings.HasPrefix(commandOf(pid), program) }) {
					t.Errorf("the holder has no %s", program)
				}
			}
			if during := traces(t); len(during) <= len(before) {
				t.Errorf("no cgroup of the node is there: %v", during)
			}
			if err := holder.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = holder.Wait()
			eventually(t, "all processes are gone", func() bool {
				return !slices.ContainsFunc(family, func(pid int) bool { return commandOf(pid) != "" })
			})
			eventually(t, "cgroups, mounts, links and files are as before", func() bool { return slices.Equal(traces(t), before) })
			if _, err := os.Stat(disk); !os.IsNotExist(err) {
				t.Errorf("the node's disk is there: %v", err)
			}
		})
	}
}

func startHolder(t *testing.T) (holder *exec.Cmd, disk string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), holding+"=1")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	disk, found := strings.CutPrefix(strings.TrimSpace(line), "held ")
	if !found {
		t.Fatalf("the holder said %q (%v): %s", line, err, problems.String())
	}
	return cmd, disk
}

// traces are what a node might leave on the host: cgroups, mounts, links, and folders of its disks.
func traces(t *testing.T) []string {
	t.Helper()
	var all []string
	cache, err := lab.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/offramp-*", filepath.Join(cache, "nodes", "*"), filepath.Join(os.TempDir(), "nodes-*")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		all = append(all, link.Name)
	}
	return append(all, string(mounts))
}

// descendants are the processes that a process started, and those that they did.
func descendants(root int) []int {
	family := []int{root}
	for i := 0; i < len(family); i++ {
		for _, children := range childrenOf(family[i]) {
			pid, err := strconv.Atoi(children)
			if err == nil {
				family = append(family, pid)
			}
		}
	}
	return family[1:]
}

func childrenOf(pid int) []string {
	var all []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		content, _ := os.ReadFile(task)
		all = append(all, strings.Fields(string(content))...)
	}
	return all
}

// commandOf is the name of a process that has not ended.
func commandOf(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || strings.Contains(string(content), "\nState:\tZ") {
		return ""
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return strings.TrimSpace(strings.TrimPrefix(first, "Name:"))
}

func eventually(t *testing.T, what string, happens func() bool) {
	t.Helper()
	const limit = 30 * time.Second
	for deadline := time.Now().Add(limit); !happens(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}
