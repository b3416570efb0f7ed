package cluster

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What kubelet writes while nothing changes is no news; everything that somebody here reads is.
func TestANodeThatOnlyBeatsIsNoNews(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Labels: map[string]string{"pool": "x"}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(n)
		return n
	}
	w := &Watcher{}
	before := node(func(*corev1.Node) {})
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		same   bool
	}{
		"a beat": {func(n *corev1.Node) {
			n.ResourceVersion, n.Status.Conditions[0].LastHeartbeatTime = "2", metav1.NewTime(time.Unix(9, 0))
		}, true},
		"not ready": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, false},
		"a label":   {func(n *corev1.Node) { n.Labels["pool"] = "y" }, false},
		"a kernel":  {func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "6.12" }, false},
		"cordoned":  {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
	} {
		if got := w.sameNode(before, node(tt.change)); got != tt.same {
			t.Errorf("%s: the same is %v, want %v", name, got, tt.same)
		}
	}
	if w.sameNode(before, &corev1.Pod{}) {
		t.Error("a pod is the same as a node")
	}
}
