package cluster_test

import (
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// world is a cluster with one node under test, another node, and pods on both with a Service of every kind.
type world struct {
	cluster *cluster.Cluster
	node    *cluster.Node // under test
	other   *cluster.Node // a namespace of the host
	pods    []*cluster.Pod
}

// newWorld makes a cluster around one node; its kube-proxy is not started.
func newWorld(t *testing.T, spec cluster.NodeSpec) *world {
	t.Helper()
	c, _ := clustertest.Start(t)
	w := &world{cluster: c, node: clustertest.AddNode(t, c, spec)}
	w.other = clustertest.AddNode(t, c, cluster.NodeSpec{Name: "other", Proxy: kube.Proxy137})
	for _, at := range []struct {
		name string
		node *cluster.Node
	}{{"near", w.node}, {"far", w.other}} {
		pod, err := at.node.AddPod(t.Context(), at.name)
		if err != nil {
			t.Fatal(err)
		}
		w.pods = append(w.pods, pod)
	}
	if err := c.CreateServices(t.Context(), w.node, w.pods); err != nil {
		t.Fatal(err)
	}
	return w
}

// look is the state of the node under test.
func (w *world) look(t *testing.T) cluster.State {
	t.Helper()
	s, err := w.node.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
