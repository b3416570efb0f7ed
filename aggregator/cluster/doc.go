// Package cluster reads what the Kubernetes API says of a cluster, trimmed to what rules need, and follows it.
//
// It only reads, apart from one ConfigMap of Offramp's own that holds accepted findings. Every kind of object is followed on its
// own: one that may not be listed, or that the API server does not know, leaves the others as they are and says so.
package cluster
