package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"offramp.dev/offramp/e2e/cluster/kube"
)

// DNSImage is the name of the image of CoreDNS.
const DNSImage = "offramp.lab/coredns:1"

// WriteDNSImage writes the image of CoreDNS into a folder and returns its path. The first time it builds CoreDNS.
func WriteDNSImage(ctx context.Context, dir string) (string, error) {
	program, err := kube.Build(ctx, kube.CoreDNS, os.Stderr)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "coredns.tar")
	return path, WriteImage(path, Image{Name: DNSImage, Files: map[string]string{"/coredns": program}, Command: []string{"/coredns"}})
}

// DNSManifest is CoreDNS as kubeadm installs it, but for its size.
func DNSManifest() string { return fmt.Sprintf(dnsManifest, ClusterDNS, DNSImage) }

const dnsManifest = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:coredns}
rules:
  - {apiGroups: [""], resources: [endpoints, services, pods, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: %[1]s
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      errors
      health
      ready
      kubernetes cluster.local in-addr.arpa ip6.arpa {
        ttl 5
      }
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      terminationGracePeriodSeconds: 1
      dnsPolicy: Default
      containers:
        - name: coredns
          image: %[2]s
          imagePullPolicy: Never
          args: [-conf, /etc/coredns/Corefile]
          readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
          volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: coredns}}]
`
