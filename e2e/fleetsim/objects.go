package fleetsim

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// nodeStatusEvery is how often a kubelet writes the status of a node on which nothing changes (nodeStatusReportFrequency).
const nodeStatusEvery = 5 * time.Minute

// objects are the Node objects of a fleet and the pods of its kube-proxy. Lists are made when they are asked for.
type objects struct {
	nodes   []string
	version atomic.Int64
}

func newObjects(nodes []string) *objects {
	o := &objects{nodes: nodes}
	o.version.Store(1)
	return o
}

// serve answers lists and watches of what there is, and reports whether it did.
func (o *objects) serve(w http.ResponseWriter, r *http.Request) bool {
	var list func() []runtime.Object
	var kind string
	switch r.URL.Path {
	case "/api/v1/nodes":
		kind, list = "NodeList", o.allNodes
	case "/api/v1/namespaces/kube-system/pods":
		kind, list = "PodList", o.allPods
	case "/apis/apps/v1/daemonsets":
		kind, list = "DaemonSetList", o.daemonSets
	case "/api/v1/services":
		kind, list = "ServiceList", services
	default:
		return false
	}
	switch query := r.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		// Older API servers do not know it either; the client falls back to a list.
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case query.Get("watch") != "" && kind == "NodeList":
		o.watchNodes(w, r)
	case query.Get("watch") != "":
		flush(w)
		<-r.Context().Done()
	default:
		o.list(w, kind, list())
	}
	return true
}

func (o *objects) list(w http.ResponseWriter, kind string, items []runtime.Object) {
	w.Header().Set("Content-Type", "application/json")
	group := "v1"
	if kind == "DaemonSetList" {
		group = "apps/v1"
	}
	reply(w, map[string]any{
		"apiVersion": group, "kind": kind, "metadata": map[string]string{"resourceVersion": o.next()}, "items": items,
	})
}

func (o *objects) next() string { return strconv.FormatInt(o.version.Add(1), 10) }

// watchNodes sends what kubelets write while nothing changes: each node's status once in nodeStatusEvery.
func (o *objects) watchNodes(w http.ResponseWriter, r *http.Request) {
	flush(w)
	ticker := time.NewTicker(max(time.Millisecond, nodeStatusEvery/time.Duration(max(1, len(o.nodes)))))
	defer ticker.Stop()
	for i := 0; len(o.nodes) > 0; i++ {
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
		raw, err := json.Marshal(o.node(o.nodes[i%len(o.nodes)], o.next()))
		if err != nil {
			return
		}
		reply(w, metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: raw}})
		flush(w)
	}
	<-r.Context().Done()
}

// services are the one that somebody may ask all nodes for.
func services() []runtime.Object {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web", ResourceVersion: "1"}}
	service.Spec = corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Ports: []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}}}
	return []runtime.Object{service}
}

func flush(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if flusher, ok := w.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (o *objects) allNodes() []runtime.Object {
	var all []runtime.Object
	for _, name := range o.nodes {
		all = append(all, o.node(name, "1"))
	}
	return all
}

// node is a Node object of usual size: labels, addresses, conditions.
func (o *objects) node(name, version string) *corev1.Node {
	now := metav1.Now()
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: version, Labels: map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "zone-" + strconv.Itoa(int(hash(name)%3)),
			"node.kubernetes.io/pool": "pool-" + strconv.Itoa(int(hash(name)%20)),
		}},
		Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.0.0/24"}, ProviderID: "simulated:///" + name},
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		KernelVersion: "6.1.0-57-cloud-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)", KubeletVersion: "v1.37.2", OperatingSystem: "linux",
		Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.1.4",
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: name}}
	for _, condition := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", corev1.NodeReady} {
		status := corev1.ConditionFalse
		if condition == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: condition, Status: status, LastHeartbeatTime: now})
	}
	return node
}

func hash(text string) uint32 {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(text))
	return sum.Sum32()
}

func podSpec(node string) corev1.PodSpec {
	return corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{
		Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.37.2",
		Command: []string{"/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"},
	}}}
}

func (o *objects) allPods() []runtime.Object {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	started := metav1.NewTime(time.Now().Add(-time.Hour))
	var all []runtime.Object
	for _, name := range o.nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: fmt.Sprintf("kube-proxy-%08x", hash(name)), UID: types.UID("pod-" + name), ResourceVersion: "1", Labels: labels},
			Spec:       podSpec(name),
		}
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &started
		all = append(all, pod)
	}
	return all
}

func (o *objects) daemonSets() []runtime.Object {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-proxy", UID: "set", ResourceVersion: "1"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("")}
	return []runtime.Object{set}
}
