package cluster_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func kubeProxySet(args []string, configMap string) appsv1.DaemonSet {
	set := appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{Kind: "DaemonSet", APIVersion: "apps/v1"}, ObjectMeta: meta("kube-system", "kube-proxy")}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-proxy"}}
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	set.Status.DesiredNumberScheduled = 3
	set.Spec.Template.Spec.Containers = []corev1.Container{{
		Name: "kube-proxy", Image: "mirror.example:5000/kube-proxy:v1.37.2-eksbuild.1@sha256:00", Command: append([]string{"/usr/local/bin/kube-proxy"}, args...),
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/var/lib/kube-proxy-config/"}},
	}}
	if configMap != "" {
		volume := corev1.Volume{Name: "config"}
		volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}
		set.Spec.Template.Spec.Volumes = []corev1.Volume{volume}
	}
	return set
}

func kubeProxyPod(name, node string, started time.Time, static bool) corev1.Pod {
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta("kube-system", name)}
	pod.Labels = map[string]string{"k8s-app": "kube-proxy"}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "kube-proxy", Image: "k:v1.37.2", Args: []string{"--proxy-mode", "ipvs"}}}
	at := metav1.NewTime(started)
	pod.Status.StartTime = &at
	if static {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: node, APIVersion: "v1"}}
	}
	return pod
}

// An EKS-like cluster, written down by hand: the mode is in a ConfigMap of another name and key, and the flags do not count.
func TestAnEKSLikeCluster(t *testing.T) {
	a, client := newAPI(t)
	began := time.Unix(1_700_000_000, 0)
	a.lists["/apis/apps/v1/daemonsets"] = []any{kubeProxySet([]string{"--proxy-mode=iptables", "--config=/var/lib/kube-proxy-config/config"}, "kube-proxy-config")}
	a.lists["/api/v1/namespaces/kube-system/pods"] = []any{
		kubeProxyPod("kube-proxy-b", "b", began.Add(time.Hour), false), kubeProxyPod("kube-proxy-a", "a", began, false),
		corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: meta("kube-system", "coredns")},
	}
	config := configMap("kube-proxy-config", map[string]string{"config": `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
ipvs: {scheduler: lc, strictARP: true, excludeCIDRs: [10.103.97.2/32]}
iptables: {masqueradeAll: true, masqueradeBit: 15}
clusterCIDR: 10.244.0.0/16,fd00::/64
featureGates: {KubeProxyIPVS: true}
shceduler: typo
`, "other": "x"})
	written := metav1.NewTime(began.Add(2 * time.Hour))
	labelled := metav1.NewTime(began.Add(3 * time.Hour))
	config.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: &written, FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:config":{}}}`)},
		// A label that was put on later did not change the configuration.
		{Time: &labelled, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)},
	}
	secretive := configMap("app", map[string]string{"password": "x"})
	kubeconfig := configMap("kube-proxy", map[string]string{"kubeconfig": "kind: Config"})
	a.lists["/api/v1/namespaces/kube-system/configmaps"] = []any{config, secretive, kubeconfig}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool {
		return len(facts.GetKubeProxyConfigs()) == 1 && allRead(facts)
	})

	if len(facts.GetKubeProxies()) != 1 {
		t.Fatalf("kube-proxies: %v", facts.GetKubeProxies())
	}
	workload := facts.GetKubeProxies()[0]
	if workload.GetKind() != "DaemonSet" || workload.GetVersion() != "v1.37.2-eksbuild.1" || workload.GetMode() != offrampv1.ProxyMode_PROXY_MODE_IPTABLES ||
		workload.GetConfigMap() != "kube-system/kube-proxy-config" || workload.GetUpdateStrategy() != "OnDelete" || workload.GetDesired() != 3 ||
		strings.Join(workload.GetNodes(), " ") != "a b" || !workload.GetOldestPodStartedAt().AsTime().Equal(began) {
		t.Errorf("workload: %v", workload)
	}
	got := facts.GetKubeProxyConfigs()[0]
	settings := got.GetSettings()
	if got.GetKey() != "config" || got.GetMode() != offrampv1.ProxyMode_PROXY_MODE_IPVS || got.GetModeOrigin() != offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT ||
		!got.GetIpvsBlock() || !got.GetLenient() || len(got.GetUnknownFields()) != 1 || !strings.Contains(got.GetUnknownFields()[0], "shceduler") ||
		!got.GetChangedAt().AsTime().Equal(written.Time) || strings.Join(got.GetOtherKeys(), " ") != "other" {
		t.Errorf("configuration: %v", got)
	}
	if settings.GetIpvsScheduler() != "lc" || !settings.GetIpvsStrictArp() || settings.GetIptablesMasqueradeBit() != 15 || settings.GetNftablesMasqueradeBit() != -1 ||
		!settings.GetIptablesMasqueradeAll() || strings.Join(settings.GetClusterCidrs(), " ") != "10.244.0.0/16 fd00::/64" ||
		strings.Join(settings.GetFeatureGates(), " ") != "KubeProxyIPVS=true" || strings.Join(settings.GetIpvsExcludeCidrs(), " ") != "10.103.97.2/32" {
		t.Errorf("settings: %v", settings)
	}
	if facts.GetServerVersion() != "v1.37.2" {
		t.Errorf("server version %q", facts.GetServerVersion())
	}
}

func TestStaticPodsAreOneWorkload(t *testing.T) {
	a, client := newAPI(t)
	began := time.Unix(1_700_000_000, 0)
	a.lists["/api/v1/namespaces/kube-system/pods"] = []any{
		kubeProxyPod("kube-proxy-a", "a", began, true), kubeProxyPod("kube-proxy-b", "b", began.Add(time.Hour), true),
	}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetKubeProxies()) == 1 })
	got := facts.GetKubeProxies()[0]
	if got.GetKind() != "Pod" || got.GetName() != "kube-proxy" || got.GetDesired() != 2 || got.GetMode() != offrampv1.ProxyMode_PROXY_MODE_IPVS || got.GetConfigMap() != "" {
		t.Errorf("workload: %v", got)
	}
}

// One kind that may not be listed and one that the API server does not know leave the others as they are.
func TestWhatCannotBeListedIsSaid(t *testing.T) {
	a, client := newAPI(t)
	a.fails["/api/v1/services"] = 403
	a.fails["/apis/networking.k8s.io/v1/servicecidrs"] = 404
	a.lists["/api/v1/nodes"] = []any{corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: meta("", "a")}}
	state := func(facts *offrampv1.ClusterFacts, kind string) *offrampv1.ClusterSource {
		for _, source := range facts.GetSources() {
			if source.GetKind() == kind {
				return source
			}
		}
		return nil
	}
	facts := await(t, follow(t, client), func(facts *offrampv1.ClusterFacts) bool {
		return allRead(facts) && len(facts.GetNodes()) == 1 && state(facts, "services").GetError() != "not answered yet"
	})
	if got := state(facts, "services"); got.GetState() != offrampv1.SectionState_SECTION_STATE_UNREADABLE || !strings.Contains(got.GetError(), "not today") {
		t.Errorf("services: %v", got)
	}
	if got := state(facts, "servicecidrs"); got.GetState() != offrampv1.SectionState_SECTION_STATE_ABSENT {
		t.Errorf("servicecidrs: %v", got)
	}
	if got := state(facts, "nodes"); got.GetState() != offrampv1.SectionState_SECTION_STATE_PRESENT || got.GetSyncedAt() == nil {
		t.Errorf("nodes: %v", got)
	}
}

// A role cannot be given in a namespace that is not there: what may not be read in it is nothing.
func TestForbiddenInANamespaceThatIsNotThere(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace int
		want      offrampv1.SectionState
	}{
		"there":     {0, offrampv1.SectionState_SECTION_STATE_UNREADABLE},
		"not there": {404, offrampv1.SectionState_SECTION_STATE_PRESENT},
		"who knows": {403, offrampv1.SectionState_SECTION_STATE_UNREADABLE},
	} {
		t.Run(name, func(t *testing.T) {
			a, client := newAPI(t)
			a.lists["/api/v1/namespaces/kube-system/configmaps"] = []any{configMap("kube-proxy", map[string]string{"config.conf": "kind: KubeProxyConfiguration\nmode: ipvs\n"})}
			a.fails["/api/v1/namespaces/elsewhere/configmaps"], a.fails["/api/v1/namespaces/elsewhere/pods"] = 403, 403
			a.fails["/api/v1/namespaces/elsewhere"] = tt.namespace
			await(t, follow(t, client, "kube-system", "elsewhere"), func(facts *offrampv1.ClusterFacts) bool {
				states := map[string]offrampv1.SectionState{}
				for _, source := range facts.GetSources() {
					if source.GetError() != "not answered yet" {
						states[source.GetKind()] = source.GetState()
					}
				}
				return states["pods"] == tt.want && states["configmaps"] == tt.want && len(facts.GetKubeProxyConfigs()) == 1
			})
		})
	}
}

func TestChangesAreFollowed(t *testing.T) {
	a, client := newAPI(t)
	a.lists["/api/v1/services"] = []any{corev1.Service{
		TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: meta("default", "web"),
		Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.10"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}}
	watcher := follow(t, client)
	facts := await(t, watcher, func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetServices()) == 1 })
	if got := facts.GetServices()[0]; got.GetPorts()[0].GetProtocol() != "TCP" || got.GetClusterIps()[0] != "10.96.0.10" {
		t.Errorf("service: %v", got)
	}
	changed := corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: meta("default", "broken")}
	changed.Spec.ClusterIP = "None"
	a.tell("/api/v1/services", "ADDED", changed)
	facts = await(t, watcher, func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetServices()) == 2 })
	if got := facts.GetServices()[0]; got.GetName() != "broken" || !got.GetHeadless() || len(got.GetPorts()) != 0 {
		t.Errorf("a Service without ports: %v", got)
	}
	a.tell("/api/v1/services", "DELETED", changed)
	await(t, watcher, func(facts *offrampv1.ClusterFacts) bool { return len(facts.GetServices()) == 1 })
}
