package nodes_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/nodes"
)

// needed makes these tests run where they would be skipped: they want kubelet, which is built for minutes.
const needed = "OFFRAMP_E2E_DEPLOY"

func need(t *testing.T) {
	t.Helper()
	if os.Getenv(needed) == "" {
		t.Skipf("make e2e-deploy sets %s", needed)
	}
}

// A kubelet runs a pod in the node's network, and one in a network of its own.
func TestAPodRuns(t *testing.T) {
	need(t)
	l := labtest.Start(t)
	c, err := cluster.Start(t.Context(), l, cluster.Options{Log: t.Output(), Kubelets: []string{"first"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n, err := nodes.Add(t.Context(), c, cluster.NodeSpec{Name: "first", Proxy: kube.Proxy137})
	if n != nil {
		t.Cleanup(func() { closeNode(t, n) })
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := runPod(t.Context(), c, "first"); err != nil {
		t.Fatal(err)
	}
}

func closeNode(t *testing.T, n *nodes.Node) {
	t.Helper()
	if t.Failed() {
		for name, log := range n.Logs() {
			t.Logf("%s: %s", name, log[max(0, len(log)-4000):])
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

// runPod has a node run two pods of the one image that it has, and waits until they run.
func runPod(ctx context.Context, c *cluster.Cluster, node string) error {
	for name, hostNetwork := range map[string]bool{"with-node-network": true, "with-own-network": false} {
		pod := map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"nodeName": node, "hostNetwork": hostNetwork, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
				"containers": []any{map[string]any{"name": "pause", "image": nodes.SandboxImage, "imagePullPolicy": "Never"}},
			},
		}
		if err := create(ctx, c, pod); err != nil {
			return err
		}
		if err := waitRunning(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

// create tries again while the controller has not made the namespace's service account.
func create(ctx context.Context, c *cluster.Cluster, pod map[string]any) error {
	var err error
	for range 100 {
		if err = c.API.Do(ctx, "POST", "/api/v1/namespaces/default/pods", pod, nil); err == nil {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

func waitRunning(ctx context.Context, c *cluster.Cluster, name string) error {
	var pod struct {
		Status struct {
			Phase, Message, PodIP string
		}
	}
	for range 300 {
		if err := c.API.Do(ctx, "GET", "/api/v1/namespaces/default/pods/"+name, nil, &pod); err != nil {
			return err
		}
		if pod.Status.Phase == "Running" && pod.Status.PodIP != "" {
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("the pod %s is %+v", name, pod.Status)
}
