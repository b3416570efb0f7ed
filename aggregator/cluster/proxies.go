package cluster

import (
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	maxArgs     = 64
	maxArgBytes = 256
)

// kubeProxyContainer is the container that runs a kube-proxy, nil when there is none: it is known by its name or by its
// command, as distributions name the pods and images as they like.
func kubeProxyContainer(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		container := &spec.Containers[i]
		if container.Name == "kube-proxy" || slices.ContainsFunc(commandLine(container), isKubeProxy) {
			return container
		}
	}
	return nil
}

func isKubeProxy(arg string) bool {
	return path.Base(arg) == "kube-proxy" && !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=")
}

// commandLine is command and arguments, whole words: a shell's script is one word and stays one.
func commandLine(container *corev1.Container) []string {
	return slices.Concat(container.Command, container.Args)
}

// kubeProxies lists the DaemonSets that run a kube-proxy, and the static pods, which no DaemonSet owns, as one workload for each
// namespace.
func kubeProxies(sets, pods []metav1.Object) []*offrampv1.KubeProxyWorkload {
	var all []*offrampv1.KubeProxyWorkload
	for _, object := range sets {
		set, ok := object.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		if container := kubeProxyContainer(&set.Spec.Template.Spec); container != nil {
			all = append(all, daemonSet(set, container, pods))
		}
	}
	return append(all, staticPods(pods)...)
}

func daemonSet(set *appsv1.DaemonSet, container *corev1.Container, pods []metav1.Object) *offrampv1.KubeProxyWorkload {
	workload := workloadOf(set.Namespace, set.Name, "DaemonSet", container, &set.Spec.Template.Spec)
	workload.Desired, workload.Ready = count(set.Status.DesiredNumberScheduled), count(set.Status.NumberReady)
	workload.Updated = count(set.Status.UpdatedNumberScheduled)
	workload.UpdateStrategy = string(set.Spec.UpdateStrategy.Type)
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return workload
	}
	addPods(workload, pods, func(pod *corev1.Pod) bool {
		return pod.Namespace == set.Namespace && !static(pod) && selector.Matches(labels.Set(pod.Labels))
	})
	return workload
}

func count(number int32) uint32 { return uint32(max(number, 0)) }

// mirror is the annotation of the API's image of a static pod.
const mirror = "kubernetes.io/config.mirror"

// static reports whether kubelet runs the pod from a file of the node.
func static(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" }) ||
		pod.Annotations[mirror] != ""
}

func staticPods(pods []metav1.Object) []*offrampv1.KubeProxyWorkload {
	byNamespace := map[string]*offrampv1.KubeProxyWorkload{}
	var all []*offrampv1.KubeProxyWorkload
	for _, object := range pods {
		pod, ok := object.(*corev1.Pod)
		if !ok || !static(pod) {
			continue
		}
		container := kubeProxyContainer(&pod.Spec)
		if container == nil {
			continue
		}
		workload := byNamespace[pod.Namespace]
		if workload == nil {
			name := strings.TrimSuffix(pod.Name, "-"+pod.Spec.NodeName)
			workload = workloadOf(pod.Namespace, name, "Pod", container, &pod.Spec)
			byNamespace[pod.Namespace] = workload
			all = append(all, workload)
		}
		workload.Desired++
		addPod(workload, pod)
	}
	return all
}

func workloadOf(namespace, name, kind string, container *corev1.Container, spec *corev1.PodSpec) *offrampv1.KubeProxyWorkload {
	args := commandLine(container)
	workload := &offrampv1.KubeProxyWorkload{
		Namespace: namespace, Name: name, Kind: kind, Image: container.Image, Version: imageVersion(container.Image), Mode: modeFlag(args),
	}
	for _, arg := range args[:min(len(args), maxArgs)] {
		workload.Args = append(workload.Args, arg[:min(len(arg), maxArgBytes)])
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--config") }) {
		workload.ConfigMap = configMapOf(namespace, spec, container)
	}
	return workload
}

// configMapOf is the ConfigMap that is mounted into the container for its configuration, "" when none is.
func configMapOf(namespace string, spec *corev1.PodSpec, container *corev1.Container) string {
	config := flag(commandLine(container), "--config")
	for _, mount := range container.VolumeMounts {
		if !strings.HasPrefix(config, strings.TrimSuffix(mount.MountPath, "/")+"/") {
			continue
		}
		for _, volume := range spec.Volumes {
			if volume.Name == mount.Name && volume.ConfigMap != nil {
				return namespace + "/" + volume.ConfigMap.Name
			}
		}
	}
	return ""
}

// flag is the value of a flag, in one word or in two; "" when it is not there. The last one counts, as for kube-proxy.
func flag(args []string, name string) string {
	value := ""
	for i, arg := range args {
		if rest, ok := strings.CutPrefix(arg, name+"="); ok {
			value = rest
		}
		if arg == name && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

func modeFlag(args []string) offrampv1.ProxyMode {
	value := flag(args, "--proxy-mode")
	if value == "" {
		return offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED
	}
	return modeOf(value)
}

// modeOf is the mode of that name; unknown for every other word.
func modeOf(name string) offrampv1.ProxyMode {
	switch name {
	case "iptables":
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	case "ipvs":
		return offrampv1.ProxyMode_PROXY_MODE_IPVS
	case "nftables":
		return offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	default:
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	}
}

// imageVersion is the tag of an image where it is a version, "" otherwise: "registry:5000/kube-proxy:v1.37.2-eksbuild.1@sha256:…".
func imageVersion(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !ok || strings.Trim(tag[:min(len(tag), 2)], "v0123456789") != "" {
		return ""
	}
	return tag
}

func addPods(workload *offrampv1.KubeProxyWorkload, pods []metav1.Object, want func(*corev1.Pod) bool) {
	for _, object := range pods {
		if pod, ok := object.(*corev1.Pod); ok && want(pod) && kubeProxyContainer(&pod.Spec) != nil {
			addPod(workload, pod)
		}
	}
}

func addPod(workload *offrampv1.KubeProxyWorkload, pod *corev1.Pod) {
	if node := pod.Spec.NodeName; node != "" {
		at, found := slices.BinarySearch(workload.GetNodes(), node)
		if !found {
			workload.Nodes = slices.Insert(workload.Nodes, at, node)
		}
	}
	started := pod.Status.StartTime
	if started == nil {
		return
	}
	if oldest := workload.GetOldestPodStartedAt(); oldest == nil || started.Time.Before(oldest.AsTime()) {
		workload.OldestPodStartedAt = timestamppb.New(started.Truncate(time.Second))
	}
}
