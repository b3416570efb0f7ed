package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/e2e/cluster"
)

const (
	kubeletConfig = "/etc/kubernetes/kubelet.yaml"
	kubeletAccess = "/etc/kubernetes/kubelet.kubeconfig"
	// ClusterDNS is where pods ask for names; see DNSManifest.
	ClusterDNS = "10.96.0.10"
)

func (n *Node) startKubelet(ctx context.Context, c *cluster.Cluster) error {
	program, err := kubelet(ctx)
	if err != nil {
		return err
	}
	if program, err = n.named(ctx, "kubelet", program); err != nil {
		return err
	}
	config, err := yaml.Marshal(n.kubeletSettings())
	if err != nil {
		return fmt.Errorf("writing kubelet's configuration: %w", err)
	}
	if err := errors.Join(
		n.write(ctx, kubeletConfig, string(config)), n.write(ctx, kubeletAccess, c.Kubeconfig(c.KubeletToken(n.Name))),
	); err != nil {
		return err
	}
	n.kubelet, err = n.Start(ctx, nil, program, "--config", kubeletConfig, "--kubeconfig", kubeletAccess,
		"--hostname-override", n.Name, "--node-ip", n.V4.String(), "--v", "2")
	return err
}

// kubeletSettings are what a kubelet needs on a host like this one, and what makes it quick.
func (n *Node) kubeletSettings() map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + containerdSocket,
		// The API server has no certificate that it could show.
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":   false, "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + n.sweeper.name,
		"enforceNodeAllocatable": []string{}, "evictionHard": map[string]any{}, "failSwapOn": false,
		"localStorageCapacityIsolation": false, "imageGCHighThresholdPercent": 100,
		"clusterDNS": []string{ClusterDNS}, "clusterDomain": "cluster.local", "resolvConf": "/etc/resolv.conf",
		"volumePluginDir":           "/var/lib/kubelet/plugins-of-others",
		"nodeStatusUpdateFrequency": "5s", "syncFrequency": "5s", "maxPods": 40,
	}
}

// WaitNodeReady waits until a kubelet says that its node is ready.
func WaitNodeReady(ctx context.Context, c *cluster.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		ready, err := nodeReady(ctx, c, name)
		if ready {
			return nil
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return fmt.Errorf("waiting for the node %s: %w", name, errors.Join(err, ctx.Err()))
		}
	}
}

func nodeReady(ctx context.Context, c *cluster.Cluster, name string) (bool, error) {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.API.Do(ctx, "GET", "/api/v1/nodes/"+name, nil, &node); err != nil {
		return false, err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True", errors.New(condition.Message)
		}
	}
	return false, errors.New("the node has no condition yet")
}
