package deploycheck

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// whole are the typed objects of one build, by "kind/name".
type whole map[string]runtime.Object

func (s *stage) decoded(t *testing.T, objects []Object) whole {
	t.Helper()
	all := whole{}
	for _, object := range objects {
		typed, err := s.types.Decode(object)
		if err != nil {
			t.Fatal(err)
		}
		if typed != nil {
			all[object["kind"].(string)+"/"+object["metadata"].(map[string]any)["name"].(string)] = typed
		}
	}
	return all
}

// pods are the templates by "kind/name".
func (w whole) pods() map[string]core.PodTemplateSpec {
	pods := map[string]core.PodTemplateSpec{}
	for name, object := range w {
		switch o := object.(type) {
		case *apps.DaemonSet:
			pods[name] = o.Spec.Template
		case *apps.Deployment:
			pods[name] = o.Spec.Template
		}
	}
	return pods
}

func fits(selector map[string]string, pod core.PodTemplateSpec) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels))
}

// hasPort tells whether a container listens at a port, by number or name.
func hasPort(pod core.PodTemplateSpec, port intstr.IntOrString) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p core.ContainerPort) bool {
		return port.Type == intstr.Int && p.ContainerPort == port.IntVal || port.Type == intstr.String && p.Name == port.StrVal
	})
}

func namesFit(t *testing.T, s *stage) {
	for _, c := range s.results {
		w := s.decoded(t, c.objects)
		for name, pod := range w.pods() {
			w.checkPod(t, name, pod)
		}
		for name, object := range w {
			w.checkObject(t, name, object)
		}
		if t.Failed() {
			t.Fatalf("with %s and %v", c.overlay, c.components)
		}
	}
}

func (w whole) checkPod(t *testing.T, name string, pod core.PodTemplateSpec) {
	t.Helper()
	w.want(t, name, "ServiceAccount/"+pod.Spec.ServiceAccountName)
	w.want(t, name, "PriorityClass/"+pod.Spec.PriorityClassName)
	volumes := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		volumes[volume.Name] = false
		if volume.ConfigMap != nil {
			w.want(t, name, "ConfigMap/"+volume.ConfigMap.Name)
		}
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if _, found := volumes[mount.Name]; !found {
			t.Errorf("%s mounts %s, which is no volume", name, mount.Name)
		}
		volumes[mount.Name] = true
	}
	for volume, mounted := range volumes {
		if !mounted {
			t.Errorf("%s has a volume %s that nothing mounts", name, volume)
		}
	}
	for _, probe := range []*core.Probe{
		pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].StartupProbe,
	} {
		if probe != nil && !hasPort(pod, probe.HTTPGet.Port) {
			t.Errorf("%s is probed at %s, where nothing listens", name, probe.HTTPGet.Port.String())
		}
	}
}

func (w whole) want(t *testing.T, by, name string) {
	t.Helper()
	if _, found := w[name]; !found {
		t.Errorf("%s names %s, which is not there", by, name)
	}
}

func (w whole) checkObject(t *testing.T, name string, object runtime.Object) {
	t.Helper()
	aggregator := w.pods()["Deployment/offramp-aggregator"]
	switch o := object.(type) {
	case *apps.DaemonSet:
		if !fits(o.Spec.Selector.MatchLabels, o.Spec.Template) {
			t.Errorf("%s does not select its own pods", name)
		}
	case *apps.Deployment:
		if !fits(o.Spec.Selector.MatchLabels, o.Spec.Template) {
			t.Errorf("%s does not select its own pods", name)
		}
	case *core.Service:
		if !fits(o.Spec.Selector, aggregator) {
			t.Errorf("%s does not select the aggregators", name)
		}
		for _, port := range o.Spec.Ports {
			if !hasPort(aggregator, port.TargetPort) {
				t.Errorf("%s leads to %s, where nothing listens", name, port.TargetPort.String())
			}
		}
	case *policy.PodDisruptionBudget:
		if !fits(o.Spec.Selector.MatchLabels, aggregator) {
			t.Errorf("%s does not select the aggregators", name)
		}
	case *networking.NetworkPolicy:
		w.checkPolicy(t, o, aggregator)
	case *rbac.RoleBinding:
		w.checkBinding(t, name, o.RoleRef, o.Subjects)
	case *rbac.ClusterRoleBinding:
		w.checkBinding(t, name, o.RoleRef, o.Subjects)
	}
}

func (w whole) checkBinding(t *testing.T, name string, role rbac.RoleRef, subjects []rbac.Subject) {
	t.Helper()
	if !strings.HasPrefix(role.Name, "system:") {
		w.want(t, name, role.Kind+"/"+role.Name)
	}
	for _, subject := range subjects {
		w.want(t, name, subject.Kind+"/"+subject.Name)
		if subject.Name == "offramp-agent" {
			t.Errorf("%s gives agents a right at the API server", name)
		}
	}
}

func (w whole) checkPolicy(t *testing.T, p *networking.NetworkPolicy, aggregator core.PodTemplateSpec) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil || !selector.Matches(labels.Set(aggregator.Labels)) {
		t.Errorf("the policy %s does not select the aggregators (%v)", p.Name, err)
	}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			if !hasPort(aggregator, *port.Port) {
				t.Errorf("the policy %s lets in at %s, where nothing listens", p.Name, port.Port.String())
			}
		}
	}
}

// arguments are the flags of a container by name, without the dashes.
func arguments(t *testing.T, pod core.PodTemplateSpec) map[string]string {
	t.Helper()
	args := pod.Spec.Containers[0].Args
	if len(args) == 0 || args[0] != "run" {
		t.Fatalf("the arguments are %v, and do not begin with run", args)
	}
	flags := map[string]string{}
	for _, arg := range args[1:] {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if _, twice := flags[name]; twice {
			t.Errorf("--%s is there twice", name)
		}
		flags[name] = value
	}
	return flags
}

// What one program is told of the other, and of what is mounted where.
func argumentsFit(t *testing.T, s *stage) {
	w := s.decoded(t, s.built(t, "observe"))
	agent, aggregator := w.pods()["DaemonSet/offramp-agent"], w.pods()["Deployment/offramp-aggregator"]
	flags := arguments(t, agent)
	host, port, _ := strings.Cut(flags["aggregator"], ":")
	service := strings.TrimSuffix(host, ".offramp.svc")
	if at, found := w["Service/"+service].(*core.Service); !found || port != "8443" || at.Spec.ClusterIP != "None" || at.Spec.PublishNotReadyAddresses {
		t.Errorf("--aggregator=%s is no headless Service of ready pods", flags["aggregator"])
	}
	w.want(t, "--server-name", "Service/"+strings.TrimSuffix(flags["server-name"], ".offramp.svc"))
	mounts := map[string]core.VolumeMount{}
	for _, mount := range agent.Spec.Containers[0].VolumeMounts {
		mounts[mount.MountPath] = mount
	}
	for flag, mount := range map[string]string{
		"proc-root": "/host/proc", "state-dir": "/var/lib/offramp", "ca-file": "/var/run/offramp/authority", "token-file": "/var/run/secrets/offramp",
	} {
		if _, found := mounts[mount]; !found || !strings.HasPrefix(flags[flag], mount) {
			t.Errorf("--%s=%s is not below the mount %s", flag, flags[flag], mount)
		}
	}
	for path, mount := range mounts {
		if below, found := strings.CutPrefix(path, flags["host-root"]+"/"); found && hostPathOf(agent, mount.Name) != "/"+below {
			t.Errorf("%s is the node's %s", path, hostPathOf(agent, mount.Name))
		}
	}
	for flag, port := range map[string]int{"listen": 8443, "metrics-listen": 9091} {
		if at := intstr.FromInt32(int32(port)); arguments(t, aggregator)[flag] != ":"+at.String() || !hasPort(aggregator, at) {
			t.Errorf("--%s=%s is not the port that is told", flag, arguments(t, aggregator)[flag])
		}
	}
}

func hostPathOf(pod core.PodTemplateSpec, volume string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return v.HostPath.Path
		}
	}
	return ""
}

// Flags of every combination are the programs' own, and only values that they take.
func flagsExist(t *testing.T, s *stage) {
	known := map[string]map[string]bool{"DaemonSet/offramp-agent": flagsOf(t, "agent"), "Deployment/offramp-aggregator": flagsOf(t, "aggregator")}
	for _, c := range s.results {
		for name, pod := range s.decoded(t, c.objects).pods() {
			for flag := range maps.Keys(arguments(t, pod)) {
				if !known[name][flag] {
					t.Errorf("%s with %v: %s has no flag --%s", c.overlay, c.components, name, flag)
				}
			}
		}
	}
}
