package deploycheck

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// What an admin who reads the pod looks for first, for every combination.
func notStronger(t *testing.T, s *stage) {
	for _, c := range s.results {
		pods := s.decoded(t, c.objects).pods()
		for name, pod := range pods {
			for fact, holds := range soundness(pod) {
				if !holds {
					t.Errorf("%s with %v: of %s it does not hold: %s", c.overlay, c.components, name, fact)
				}
			}
		}
		want := []core.Capability{"NET_ADMIN"}
		if c.overlay == "enforce" {
			want = append(want, "NET_RAW")
		}
		agent, aggregator := pods["DaemonSet/offramp-agent"].Spec, pods["Deployment/offramp-aggregator"].Spec
		if got := agent.Containers[0].SecurityContext.Capabilities.Add; !slices.Equal(got, want) {
			t.Errorf("%s with %v: the agent's capabilities are %v, want %v", c.overlay, c.components, got, want)
		}
		if *agent.AutomountServiceAccountToken {
			t.Errorf("%s with %v: the agent has a token for the API server", c.overlay, c.components)
		}
		if ports := agent.Containers[0].Ports; len(ports) > 0 && !slices.Contains(c.components, "agent-metrics") {
			t.Errorf("%s with %v: the agent listens at %v", c.overlay, c.components, ports)
		}
		if flag := slices.Index(agent.Containers[0].Args, "--cleanup=never"); (flag >= 0) != (c.overlay == "observe") {
			t.Errorf("%s with %v: the agent's arguments are %v", c.overlay, c.components, agent.Containers[0].Args)
		}
		if !restricted(aggregator) {
			t.Errorf("%s with %v: the aggregator is not as the level restricted wants it", c.overlay, c.components)
		}
		writable := writableHostPaths(agent)
		if want := wantWritable(c.combination); !slices.Equal(writable, want) {
			t.Errorf("%s with %v: the agent can write to %v of the node, want %v", c.overlay, c.components, writable, want)
		}
	}
}

func wantWritable(c combination) []string {
	var want []string
	if c.overlay == "enforce" {
		want = append(want, "/run/xtables.lock")
	}
	if slices.Contains(c.components, "sysctl-reset") {
		want = append(want, "/proc/sys/net")
	}
	if !slices.Contains(c.components, "stateless") {
		want = append(want, "/var/lib/offramp")
	}
	slices.Sort(want)
	return want
}

// soundness are facts that hold for every pod of Offramp's.
func soundness(pod core.PodTemplateSpec) map[string]bool {
	spec, container := pod.Spec, pod.Spec.Containers[0]
	security := container.SecurityContext
	_, hasLimit := container.Resources.Limits[core.ResourceMemory]
	_, hasRequest := container.Resources.Requests[core.ResourceCPU]
	return map[string]bool{
		"one container":                len(spec.Containers) == 1 && len(spec.InitContainers) == 0,
		"not privileged":               !*security.Privileged,
		"no way to more rights":        !*security.AllowPrivilegeEscalation,
		"its root is read-only":        *security.ReadOnlyRootFilesystem,
		"all capabilities are dropped": slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}),
		"seccomp's default profile":    spec.SecurityContext.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
		"not the node's process ids":   !spec.HostPID && !spec.HostIPC,
		"its memory has a limit":       hasLimit && hasRequest,
		"no folder with others' sockets or secrets": !slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool {
			return v.HostPath != nil && exposes(v.HostPath.Path)
		}),
		"no Secret of the agent's own": spec.ServiceAccountName != "offramp-agent" ||
			!slices.ContainsFunc(spec.Volumes, func(v core.Volume) bool { return v.Secret != nil }),
		"nothing is propagated to the node": !slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool {
			return m.MountPropagation != nil
		}),
	}
}

// exposes: below this are sockets of the container runtime or kubelet, or other pods' secrets.
func exposes(path string) bool {
	for _, place := range []string{"/run/containerd", "/run/crio", "/var/run/docker.sock", "/run/k3s", "/var/lib/kubelet/pods", "/var/lib/kubelet/plugins"} {
		if strings.HasPrefix(place+"/", strings.TrimSuffix(path, "/")+"/") {
			return true
		}
	}
	return false
}

// restricted is what the strictest level of pod security asks for (Pod Security Standards).
func restricted(pod core.PodSpec) bool {
	hostPath := slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.HostPath != nil })
	return *pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.RunAsUser != 0 && !pod.HostNetwork && !hostPath &&
		len(pod.Containers[0].SecurityContext.Capabilities.Add) == 0
}

func writableHostPaths(pod core.PodSpec) []string {
	var writable []string
	for _, mount := range pod.Containers[0].VolumeMounts {
		if path := hostPathOf(core.PodTemplateSpec{Spec: pod}, mount.Name); path != "" && !mount.ReadOnly {
			writable = append(writable, path)
		}
	}
	slices.Sort(writable)
	return writable
}
