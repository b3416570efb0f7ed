package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// A cluster that runs, ended from outside in ways that let it do nothing about it.
func TestNothingIsLeftBehind(t *testing.T) {
	clustertest.Start(t) // or skips; and what is built is built
	for name, signal := range map[string]syscall.Signal{"SIGKILL": syscall.SIGKILL, "Ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			files, links := scratchFiles(t), hostLinks(t)
			holder := startHolder(t)
			family := descendants(t, holder.Process.Pid)
			checkHeld(t, family)
			t.Cleanup(func() { endAll(family) })
			spaces := spacesOf(family)
			if len(spaces) < 3 {
				t.Errorf("the holder's network namespaces are %v, want the lab's, a node's and a pod's", spaces)
			}
			if err := holder.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = holder.Wait()
			eventually(t, 20*time.Second, "all processes are gone", func() bool { return len(running(family)) == 0 })
			// A network namespace that nothing uses is gone, and with it its bridge, tap devices and pairs of links.
			eventually(t, 20*time.Second, "nothing uses the cluster's network namespaces", func() bool { return len(usersOf(t, spaces)) == 0 })
			if left := scratchFiles(t); !slices.Equal(left, files) {
				t.Errorf("files in the temporary folder were %v and are %v", files, left)
			}
			if left := hostLinks(t); !slices.Equal(left, links) {
				t.Errorf("the host's links were %v and are %v", links, left)
			}
		})
	}
}

// startHolder starts a process that holds a cluster, and waits until it does.
func startHolder(t *testing.T) *exec.Cmd {
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
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q (%v): %s", line, err, problems.String())
	}
	return cmd
}

// checkHeld fails the test where the holder does not have all that should go with it.
func checkHeld(t *testing.T, family []int) {
	t.Helper()
	var programs []string
	for _, pid := range family {
		programs = append(programs, commandOf(pid))
	}
	for _, want := range []string{"etcd", "kube-apiserver", "kube-proxy", "endpoint", "qemu-system-x86"} {
		if !slices.ContainsFunc(programs, func(name string) bool {
			return strings.HasPrefix(name, want) || strings.HasPrefix(want, name) && name != ""
		}) {
			t.Errorf("the holder's programs are %v, without %s", programs, want)
		}
	}
}
