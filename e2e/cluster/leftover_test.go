package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
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
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// holding makes a process started by the test below one that holds a cluster.
const holding = "OFFRAMP_CLUSTER_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holding) != "" {
		if err := holdCluster(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// holdCluster starts all kinds of things that a cluster has, says so, and waits to be killed.
func holdCluster(ctx context.Context) error {
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, l, cluster.Options{})
	if err != nil {
		return err
	}
	n, err := c.AddNode(ctx, cluster.NodeSpec{Name: "held", Proxy: kube.Proxy137, SecondNIC: true})
	if err != nil {
		return err
	}
	pod, err := n.AddPod(ctx, "held")
	if err != nil {
		return err
	}
	if _, err := n.SyncedProxy(ctx, cluster.ProxyConfig{Mode: "nftables"}); err != nil {
		return err
	}
	if _, err := pod.StartLoad(ctx, "self="+pod.V4.String()+":8080"); err != nil {
		return err
	}
	if _, err := c.AddNode(ctx, cluster.NodeSpec{Name: "held-vm", Kernel: "6.1", Proxy: kube.Proxy137}); err != nil {
		return err
	}
	fmt.Println("held")
	select {}
}

func TestNothingIsLeftBehind(t *testing.T) {
	clustertest.Start(t) // or skips; and what is built is built
	files := scratchFiles(t)
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
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q (%v): %s", line, err, problems.String())
	}
	family := descendants(t, cmd.Process.Pid)
	var programs, spaces []string
	for _, pid := range family {
		programs = append(programs, commandOf(pid))
		spaces = append(spaces, spaceOf(pid))
	}
	for _, want := range []string{"etcd", "kube-apiserver", "kube-proxy", "endpoint", "qemu-system-x86"} {
		if !slices.ContainsFunc(programs, func(name string) bool {
			return strings.HasPrefix(name, want) || strings.HasPrefix(want, name) && name != ""
		}) {
			t.Errorf("the holder's programs are %v, without %s", programs, want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, 20*time.Second, "all processes are gone", func() bool {
		return !slices.ContainsFunc(family, func(pid int) bool { return commandOf(pid) != "" && slices.Contains(spaces, spaceOf(pid)) })
	})
	own := spaceOf(os.Getpid())
	for _, pid := range processes(t) {
		if space := spaceOf(pid); space != own && space != "" && slices.Contains(spaces, space) {
			t.Errorf("process %d (%s) is still in a namespace of the cluster", pid, commandOf(pid))
		}
	}
	if left := scratchFiles(t); !slices.Equal(left, files) {
		t.Errorf("files in the temporary folder were %v and are %v", files, left)
	}
}

func processes(t *testing.T) []int {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, folder := range folders {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// descendants are the processes that a process started, and those that they did.
func descendants(t *testing.T, root int) []int {
	t.Helper()
	family := []int{root}
	for i := 0; i < len(family); i++ {
		for _, pid := range processes(t) {
			if parentOf(pid) == family[i] {
				family = append(family, pid)
			}
		}
	}
	return family[1:]
}

// status is a line of /proc/PID/status, or "" for a process that has ended, reaped or not.
func status(pid int, key string) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || strings.Contains(string(content), "\nState:\tZ") {
		return ""
	}
	for line := range strings.Lines(string(content)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func commandOf(pid int) string { return status(pid, "Name") }

func parentOf(pid int) int {
	parent, err := strconv.Atoi(status(pid, "PPid"))
	if err != nil {
		return -1
	}
	return parent
}

func spaceOf(pid int) string {
	space, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return ""
	}
	return space
}

// scratchFiles are what the cluster might leave in the folder for temporary files.
func scratchFiles(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"offramp-*", "endpoint-*"} {
		found, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}
