package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// poolLabels name a node's pool with the usual providers: GKE, EKS and eksctl, AKS, OpenShift MachineSets by role excepted,
// kops, DigitalOcean, Karpenter, Gardener, Cluster API, Scaleway.
func poolLabels() []string {
	return []string{
		"cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "kubernetes.azure.com/agentpool",
		"karpenter.sh/nodepool", "worker.gardener.cloud/pool", "kops.k8s.io/instancegroup", "doks.digitalocean.com/node-pool",
		"cluster.x-k8s.io/deployment-name", "k8s.scaleway.com/pool-name", "node.kubernetes.io/pool",
	}
}

func (w *Watcher) nodes(objects []metav1.Object) []*offrampv1.ClusterNode {
	var all []*offrampv1.ClusterNode
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			all = append(all, w.node(node))
		}
	}
	return all
}

// sameNode reports whether two versions of a Node object say the same here. A kubelet writes its node's status every five minutes
// although nothing changed: with 20,000 nodes all facts would be made anew each second for nothing.
func (w *Watcher) sameNode(before, now any) bool {
	a, ok := before.(*corev1.Node)
	b, also := now.(*corev1.Node)
	return ok && also && proto.Equal(w.node(a), w.node(b))
}

func (w *Watcher) node(node *corev1.Node) *offrampv1.ClusterNode {
	info := node.Status.NodeInfo
	facts := &offrampv1.ClusterNode{
		Name: node.Name, KubeletVersion: info.KubeletVersion, KernelVersion: info.KernelVersion, OsImage: info.OSImage,
		OperatingSystem: info.OperatingSystem, Architecture: info.Architecture, ContainerRuntime: info.ContainerRuntimeVersion,
		Labels: node.Labels, PodCidrs: node.Spec.PodCIDRs, Pool: w.pool(node.Labels), Virtual: virtual(node),
		Unschedulable: node.Spec.Unschedulable, CreatedAt: timestamppb.New(node.CreationTimestamp.Time), ProviderId: node.Spec.ProviderID,
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP {
			facts.Addresses = append(facts.Addresses, address.Address)
		}
	}
	facts.Ready = slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
	return facts
}

func (w *Watcher) pool(labels map[string]string) string {
	if w.config.PoolLabel != "" {
		return labels[w.config.PoolLabel]
	}
	for _, label := range poolLabels() {
		if pool := labels[label]; pool != "" {
			return pool
		}
	}
	return ""
}

// virtual reports whether there is no kernel of the node's own behind it: virtual kubelets and Fargate.
func virtual(node *corev1.Node) bool {
	return node.Labels["type"] == "virtual-kubelet" || node.Labels["eks.amazonaws.com/compute-type"] == "fargate" ||
		node.Labels["kubernetes.azure.com/cluster-type"] == "virtual-kubelet"
}
