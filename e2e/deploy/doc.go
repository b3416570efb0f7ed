// Package deploy installs Offramp as people do, with kubectl and with Helm, from its images, on a cluster with real kubelets
// and containerd, and removes it again.
//
// A node is a network namespace: the part of a dirty state that needs ip_vs is not here; see e2e/cluster.
package deploy
