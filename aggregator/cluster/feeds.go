package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds, as ClusterSource.kind names them.
const (
	kindNodes        = "nodes"
	kindServices     = "services"
	kindDaemonSets   = "daemonsets"
	kindPods         = "pods"
	kindConfigMaps   = "configmaps"
	kindServiceCIDRs = "servicecidrs"
	kindEvents       = "events"
)

// allFeeds follows every kind. Pods and ConfigMaps are followed in the namespaces of kube-proxy alone.
func (w *Watcher) allFeeds() []*feed {
	core, apps := w.config.Client.CoreV1().RESTClient(), w.config.Client.AppsV1().RESTClient()
	networking := w.config.Client.NetworkingV1().RESTClient()
	feeds := []*feed{
		newFeed(source{kind: kindNodes, resource: "nodes", client: core, object: &corev1.Node{}, trim: trimNode, same: w.sameNode}),
		newFeed(source{kind: kindServices, resource: "services", client: core, object: &corev1.Service{}, trim: trimService}),
		newFeed(source{kind: kindDaemonSets, resource: "daemonsets", client: apps, object: &appsv1.DaemonSet{}, trim: trimDaemonSet}),
		newFeed(source{kind: kindServiceCIDRs, resource: "servicecidrs", client: networking, object: &networkingv1.ServiceCIDR{}, trim: trimMeta}),
	}
	for _, reason := range eventReasons() {
		feeds = append(feeds, newFeed(source{
			kind: kindEvents, resource: "events", client: core, object: &corev1.Event{}, trim: trimMeta,
			fields: fields.OneTermEqualSelector("reason", reason).String(),
		}))
	}
	for _, namespace := range w.config.Namespaces {
		gone := func() bool { return w.gone(namespace) }
		feeds = append(feeds,
			newFeed(source{kind: kindPods, resource: "pods", namespace: namespace, client: core, object: &corev1.Pod{}, trim: trimPod, gone: gone}),
			newFeed(source{kind: kindConfigMaps, resource: "configmaps", namespace: namespace, client: core, object: &corev1.ConfigMap{}, trim: trimConfigMap, gone: gone}))
	}
	return feeds
}

// gone reports whether a namespace is known not to exist.
func (w *Watcher) gone(namespace string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	_, err := w.config.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// eventReasons are those under which kube-proxy warns about its mode.
func eventReasons() []string { return []string{"IPVSDeprecation", "KubeProxyDefaultMode"} }

func trimMeta(item any) (any, error) {
	if object, ok := item.(metav1.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	return item, nil
}

func trimNode(item any) (any, error) {
	if node, ok := item.(*corev1.Node); ok {
		node.Status.Images, node.Status.VolumesAttached, node.Status.VolumesInUse = nil, nil, nil
		node.Status.Capacity, node.Status.Allocatable = nil, nil
		node.Spec.Taints = nil
	}
	return trimMeta(item)
}

func trimService(item any) (any, error) {
	if service, ok := item.(*corev1.Service); ok {
		service.Spec.Selector = nil
		service.Status.Conditions = nil
	}
	return trimMeta(item)
}

func trimDaemonSet(item any) (any, error) {
	if set, ok := item.(*appsv1.DaemonSet); ok {
		trimPodSpec(&set.Spec.Template.Spec)
		set.Status.Conditions = nil
	}
	return trimMeta(item)
}

// trimPod keeps pods that run a kube-proxy; of the others only the name stays.
func trimPod(item any) (any, error) {
	pod, ok := item.(*corev1.Pod)
	if !ok {
		return item, nil
	}
	if kubeProxyContainer(&pod.Spec) == nil {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}, nil
	}
	trimPodSpec(&pod.Spec)
	pod.Status.Conditions, pod.Status.ContainerStatuses = nil, nil
	return trimMeta(pod)
}

func trimPodSpec(spec *corev1.PodSpec) {
	spec.Affinity, spec.Tolerations, spec.InitContainers = nil, nil, nil
	for i := range spec.Containers {
		container := &spec.Containers[i]
		container.LivenessProbe, container.ReadinessProbe, container.StartupProbe = nil, nil, nil
		container.Lifecycle, container.SecurityContext = nil, nil
	}
}

// trimConfigMap keeps the managed fields' times, which tell when a configuration changed, and the data only of ConfigMaps that
// a rule reads: the others may hold what is nobody's business here.
func trimConfigMap(item any) (any, error) {
	config, ok := item.(*corev1.ConfigMap)
	if !ok {
		return item, nil
	}
	config.BinaryData, config.Annotations = nil, nil
	if !wantedConfigMap(config) {
		config.Data, config.ManagedFields = nil, nil
	}
	return config, nil
}
