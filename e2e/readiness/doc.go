// Package readiness holds tests of what Offramp finds in a real cluster, with the real programs: etcd, kube-apiserver,
// kube-proxy, the aggregator with the rights of deploy/base/rbac.yaml and no other, and an agent on each node.
package readiness
