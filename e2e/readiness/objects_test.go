package readiness

import (
	"fmt"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/e2e/cluster"
)

// manifest is what a cluster's administrator applies.
const manifest = "../../deploy/base/rbac.yaml"

// plural is how the API server calls the kinds that are made here.
func plural() map[string]string {
	return map[string]string{
		"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Secret": "secrets", "ConfigMap": "configmaps", "Node": "nodes",
		"Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
		"Service": "services", "Lease": "leases", "DaemonSet": "daemonsets", "Pod": "pods",
	}
}

type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name, Namespace, UID string
	} `json:"metadata"`
	Status map[string]any `json:"status"`
}

// create makes the objects of a text, with their status, and returns the UID of the last one.
func (s *stage) create(text string) string {
	s.Helper()
	var made object
	for part := range strings.SplitSeq(text, "\n---\n") {
		var whole map[string]any
		var told object
		if err := yaml.Unmarshal([]byte(part), &whole); err != nil {
			s.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(part), &told); err != nil {
			s.Fatal(err)
		}
		path := "/apis/" + told.APIVersion
		if told.APIVersion == "v1" {
			path = "/api/v1"
		}
		if told.Metadata.Namespace != "" {
			path += "/namespaces/" + told.Metadata.Namespace
		}
		path += "/" + plural()[told.Kind]
		if err := s.cluster.API.Do(s.Context(), "POST", path, whole, &made); err != nil {
			s.Fatal(err)
		}
		if told.Status == nil {
			continue
		}
		if err := s.cluster.API.Do(s.Context(), "PATCH", path+"/"+told.Metadata.Name+"/status", map[string]any{"status": told.Status}, nil); err != nil {
			s.Fatal(err)
		}
	}
	return made.Metadata.UID
}

func (s *stage) applyManifest() {
	s.Helper()
	content, err := os.ReadFile(manifest)
	if err != nil {
		s.Fatal(err)
	}
	s.create(string(content))
}

// token asks for one of an account of Offramp's; pod and uid are of the pod that it is bound to, if any. An empty audience is
// the API server.
func (s *stage) token(account, audience, pod, uid string) string {
	s.Helper()
	spec := map[string]any{"expirationSeconds": 3600}
	if audience != "" {
		spec["audiences"] = []string{audience}
	}
	if pod != "" {
		spec["boundObjectRef"] = map[string]string{"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
	}
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
	path := fmt.Sprintf("/api/v1/namespaces/offramp/serviceaccounts/%s/token", account)
	if err := s.cluster.API.Do(s.Context(), "POST", path, body, &answer); err != nil {
		s.Fatal(err)
	}
	return answer.Status.Token
}

// agentToken is what kubelet would give the agent's pod on a node.
func (s *stage) agentToken(node string) string {
	s.Helper()
	uid := s.create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: agent-%s, namespace: offramp},
spec: {nodeName: %s, serviceAccountName: offramp-agent, containers: [{name: agent, image: offramp-agent}]}}`, node, node))
	return s.token("offramp-agent", "offramp", "agent-"+node, uid)
}

// kubeProxies are the objects of kube-proxy as kubeadm and EKS make them, with a pod of the first on each node, and of a Cilium
// that took over.
func (s *stage) kubeProxies(nodes ...*cluster.Node) {
	s.Helper()
	const set = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NAME, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: NAME}}
  template:
    metadata: {labels: {k8s-app: NAME}}
    spec:
      containers:
      - {name: kube-proxy, image: "kube-proxy:v1.37.2", command: [kube-proxy, "--config=/var/lib/kube-proxy/KEY"],
         volumeMounts: [{name: config, mountPath: /var/lib/kube-proxy}]}
      volumes: [{name: config, configMap: {name: MAP}}]`
	const config = `apiVersion: v1
kind: ConfigMap
metadata: {name: MAP, namespace: kube-system}
data: {KEY: "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nMODE\n"}`
	for _, distribution := range [][]string{{"kube-proxy", "kube-proxy", "config.conf", "mode: ipvs"}, {"kube-proxy-eks", "kube-proxy-config", "config", "bindAddress: 0.0.0.0"}} {
		words := strings.NewReplacer("NAME", distribution[0], "MAP", distribution[1], "KEY", distribution[2], "MODE", distribution[3])
		s.create(words.Replace(set + "\n---\n" + config))
	}
	for _, node := range nodes {
		s.create(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: kube-proxy-%s, namespace: kube-system, labels: {k8s-app: kube-proxy}},
spec: {nodeName: %s, containers: [{name: kube-proxy, image: "kube-proxy:v1.37.2", command: [kube-proxy]}]},
status: {phase: Running, startTime: %q}}`, node.Name, node.Name, time.Now().UTC().Format(time.RFC3339)))
	}
	s.create(`apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template: {metadata: {labels: {k8s-app: cilium}}, spec: {containers: [{name: cilium-agent, image: "cilium/cilium:v1.18.2"}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config, namespace: kube-system}, data: {kube-proxy-replacement: "true"}}`)
}

// otherObjects are nodes on which no agent runs, and Services of their own: one with the address of such a node, one that is to be
// deleted.
func (s *stage) otherObjects() {
	s.Helper()
	s.create(`{apiVersion: v1, kind: Node, metadata: {name: windows}, status: {nodeInfo: {machineID: "", systemUUID: "", bootID: "", kernelVersion: "10.0", osImage: Windows, containerRuntimeVersion: "", kubeletVersion: v1.37.2, kubeProxyVersion: "", operatingSystem: windows, architecture: amd64}}}
---
{apiVersion: v1, kind: Node, metadata: {name: virtual, labels: {type: virtual-kubelet}}}
---
{apiVersion: v1, kind: Node, metadata: {name: silent}, status: {addresses: [{type: InternalIP, address: 198.18.250.7}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: clash, namespace: default}, spec: {clusterIP: 10.96.0.98, externalIPs: [198.18.250.7], ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: doomed, namespace: default}, spec: {clusterIP: 10.96.0.99, ports: [{port: 80}]}}`)
}
