package cluster

import (
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// knownNetworks tells network plugins and their like by the last part of an image's name, which survives mirrors and renamed
// DaemonSets.
func knownNetworks() map[string]string {
	return map[string]string{
		"node": "calico", "calico-node": "calico", "cilium": "cilium", "flannel": "flannel", "antrea-agent-ubuntu": "antrea", "antrea-ubuntu": "antrea",
		"kube-router": "kube-router", "weave-kube": "weave", "amazon-k8s-cni": "aws-vpc-cni", "azure-cns": "azure-cni", "azure-ipam": "azure-cni",
		"ovn-kube-f": "ovn-kubernetes", "ovn-kubernetes": "ovn-kubernetes", "k8s-dns-node-cache": "node-local-dns", "speaker": "metallb", "kube-vip": "kube-vip",
	}
}

// networks recognises network plugins in DaemonSets, each name once, and what replaces kube-proxy.
func networks(sets, configs []metav1.Object) []*offrampv1.ClusterNetwork {
	found := map[string]*offrampv1.ClusterNetwork{}
	for _, object := range sets {
		set, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		for i := range set.Spec.Template.Spec.Containers {
			container := &set.Spec.Template.Spec.Containers[i]
			if name := networkName(container.Image); name != "" && found[name] == nil {
				found[name] = network(name, set, container)
			}
		}
	}
	addConfigured(found, configs)
	all := make([]*offrampv1.ClusterNetwork, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all
}

// networkName names the plugin behind an image, "" for every other image. Calico's image is called "node", so that its parent's
// name is asked for as well.
func networkName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	last := path.Base(image)
	last, _, _ = strings.Cut(last, ":")
	parent := path.Base(path.Dir(image))
	name := knownNetworks()[last]
	if last == "node" && parent != "calico" {
		return ""
	}
	if last == "speaker" && parent != "metallb" {
		return ""
	}
	return name
}

func network(name string, set *appsv1.DaemonSet, container *corev1.Container) *offrampv1.ClusterNetwork {
	facts := &offrampv1.ClusterNetwork{Name: name, Version: imageVersion(container.Image), Source: set.Namespace + "/" + set.Name}
	switch name {
	case "calico":
		for _, variable := range container.Env {
			if variable.Name == "FELIX_BPFENABLED" && strings.EqualFold(variable.Value, "true") {
				facts.ReplacesKubeProxy, facts.Settings = true, []string{"FELIX_BPFENABLED=true"}
			}
		}
	case "kube-router":
		if value := flag(commandLine(container), "--run-service-proxy"); value != "false" {
			facts.ReplacesKubeProxy, facts.Settings = true, []string{"run-service-proxy=true"}
		}
	}
	return facts
}

// addConfigured notes what ConfigMaps say: Cilium's and Antrea's replacement of kube-proxy.
func addConfigured(found map[string]*offrampv1.ClusterNetwork, configs []metav1.Object) {
	for _, object := range configs {
		config, ok := object.(*corev1.ConfigMap)
		if !ok {
			continue
		}
		if cilium := found["cilium"]; cilium != nil && config.Name == "cilium-config" {
			value := config.Data["kube-proxy-replacement"]
			cilium.ReplacesKubeProxy = value == "true" || value == "strict"
			cilium.Settings = []string{"kube-proxy-replacement=" + value}
		}
		if antrea := found["antrea"]; antrea != nil && strings.HasPrefix(config.Name, "antrea-config") && strings.Contains(config.Data["antrea-agent.conf"], "\n  proxyAll: true") {
			antrea.ReplacesKubeProxy, antrea.Settings = true, []string{"proxyAll=true"}
		}
	}
}
