package cluster_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestGarbledConfigurations(t *testing.T) {
	cases := map[string]struct {
		text, problem string
		mode          offrampv1.ProxyMode
		origin        offrampv1.ModeOrigin
		lenient       bool
	}{
		"empty mode":     {"kind: KubeProxyConfiguration\n", "", offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED, false},
		"duplicate":      {"kind: KubeProxyConfiguration\nmode: ipvs\nmode: nftables\n", "", offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT, true},
		"unknown mode":   {"kind: KubeProxyConfiguration\nmode: userspace\n", "", offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT, false},
		"wrong type":     {"kind: KubeProxyConfiguration\nmode: [1]\n", "no KubeProxyConfiguration", offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN, false},
		"not YAML":       {"kind: KubeProxyConfiguration\n\tmode: {", "not YAML", offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN, false},
		"JSON":           {"{\n\"kind\": \"KubeProxyConfiguration\",\n\"mode\": \"nftables\"}", "", offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT, false},
		"a MiB of noise": {"kind: KubeProxyConfiguration\n# " + strings.Repeat("x", 1<<20), "more than", offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ModeOrigin_MODE_ORIGIN_UNKNOWN, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, client := newAPI(t)
			a.lists["/api/v1/namespaces/kube-system/configmaps"] = []any{configMap("kube-proxy", map[string]string{"config.conf": c.text})}
			facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetKubeProxyConfigs()) == 1 })
			got := facts.GetKubeProxyConfigs()[0]
			if got.GetMode() != c.mode || got.GetModeOrigin() != c.origin || got.GetLenient() != c.lenient ||
				!strings.Contains(got.GetError(), c.problem) || (c.problem == "") != (got.GetError() == "") {
				t.Errorf("got %v", got)
			}
		})
	}
}

func daemonSet(name, image string, env ...corev1.EnvVar) appsv1.DaemonSet {
	set := appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{Kind: "DaemonSet", APIVersion: "apps/v1"}, ObjectMeta: meta("kube-system", name)}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: image, Env: env}}
	return set
}

func TestNetworksAreRecognised(t *testing.T) {
	a, client := newAPI(t)
	a.lists["/apis/apps/v1/daemonsets"] = []any{
		daemonSet("calico-node", "docker.io/calico/node:v3.29.1", corev1.EnvVar{Name: "FELIX_BPFENABLED", Value: "true"}),
		daemonSet("cilium", "quay.example/cilium/cilium:v1.18.2@sha256:11"), daemonSet("kube-flannel-ds", "ghcr.example/flannel-io/flannel:v0.27.0"),
		daemonSet("some-node", "example/something/node:v9"), daemonSet("lb", "quay.example/metallb/speaker:v0.15.0"), daemonSet("tannoy", "example/acme/speaker:v1"),
		daemonSet("untagged", "example/antrea/antrea-agent-ubuntu"),
	}
	a.lists["/api/v1/namespaces/kube-system/configmaps"] = []any{configMap("cilium-config", map[string]string{"kube-proxy-replacement": "true"})}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool { return allRead(facts) && len(facts.GetNetworks()) > 0 })
	var got []string
	for _, network := range facts.GetNetworks() {
		line := network.GetName() + " " + network.GetVersion()
		if network.GetReplacesKubeProxy() {
			line += " replaces"
		}
		got = append(got, line)
	}
	want := "antrea |calico v3.29.1 replaces|cilium v1.18.2 replaces|flannel v0.27.0|metallb v0.15.0"
	if strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q", strings.Join(got, "|"), want)
	}
}

func TestNodes(t *testing.T) {
	a, client := newAPI(t)
	node := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta("", "a")}
	node.Labels = map[string]string{"eks.amazonaws.com/nodegroup": "blue"}
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", KernelVersion: "6.1.0", OSImage: "Debian", OperatingSystem: "linux"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}, {Type: corev1.NodeHostName, Address: "a"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	fargate := corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta("", "fargate-1")}
	fargate.Labels = map[string]string{"eks.amazonaws.com/compute-type": "fargate"}
	a.lists["/api/v1/nodes"] = []any{node, fargate}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetNodes()) == 2 })
	got := facts.GetNodes()[0]
	if got.GetPool() != "blue" || got.GetKubeletVersion() != "v1.37.2" || strings.Join(got.GetAddresses(), " ") != "192.0.2.10" || !got.GetReady() || got.GetVirtual() {
		t.Errorf("node: %v", got)
	}
	if bare := facts.GetNodes()[1]; !bare.GetVirtual() || len(bare.GetAddresses()) != 0 || bare.GetReady() {
		t.Errorf("a node without addresses: %v", bare)
	}
}

func TestEvents(t *testing.T) {
	a, client := newAPI(t)
	event := func(name, node string, second int64) corev1.Event {
		e := corev1.Event{TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"}, ObjectMeta: meta("default", name), Reason: "IPVSDeprecation", Message: "since " + name}
		e.InvolvedObject.Name = node
		e.LastTimestamp = metav1.Unix(second, 0)
		return e
	}
	a.lists["/api/v1/events?reason=IPVSDeprecation"] = []any{event("old", "a", 10), event("new", "a", 20), event("b", "b", 5)}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetEvents()) == 2 })
	if got := facts.GetEvents()[0]; got.GetNode() != "a" || got.GetMessage() != "since new" || got.GetAt().GetSeconds() != 20 {
		t.Errorf("event: %v", got)
	}
}
