// Package clustertest starts clusters for tests.
package clustertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// Start starts a lab with a control plane. Both end with the test. When it has failed, the end of the control plane's
// logs is in its output, and all of them are in the folder of the test's artifacts (go test -artifacts).
func Start(t *testing.T) (*cluster.Cluster, *lab.Lab) {
	t.Helper()
	l := labtest.Start(t)
	t.ArtifactDir() // made before all that cleans up into it, so removed after
	c, err := cluster.Start(t.Context(), l, cluster.Options{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
		for name, log := range c.Logs() {
			keep(t, name, log)
		}
	})
	return c, l
}

// AddNode adds a node. When the test has failed, a guest's console is in its output.
func AddNode(t *testing.T, c *cluster.Cluster, spec cluster.NodeSpec) *cluster.Node {
	t.Helper()
	n, err := c.AddNode(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.Guest != nil {
			keep(t, "console-"+n.Name, n.Guest.Log())
		}
	})
	return n
}

// StartProxy starts kube-proxy and waits until it is in sync.
func StartProxy(t *testing.T, n *cluster.Node, config cluster.ProxyConfig) *cluster.Proxy {
	t.Helper()
	p, err := n.SyncedProxy(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep(t, "kube-proxy-"+n.Name, p.Output()) })
	return p
}

// keep shows and saves a log of a test that has failed.
func keep(t *testing.T, name, log string) {
	t.Helper()
	const most = 12
	if !t.Failed() {
		return
	}
	path := filepath.Join(t.ArtifactDir(), name+".log")
	if err := os.WriteFile(path, []byte(log), 0o644); err != nil {
		t.Errorf("keeping a log: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	t.Logf("%s (all of it in %s):\n%s", name, path, strings.Join(lines[max(0, len(lines)-most):], "\n"))
}
