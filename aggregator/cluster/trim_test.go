package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is nobody's business here is dropped before it is kept.
func TestOnlyWhatRulesReadIsKept(t *testing.T) {
	secretive := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Data: map[string]string{"password": "x"}, BinaryData: map[string][]byte{"k": {1}}}
	kept, err := trimConfigMap(secretive)
	if config, _ := kept.(*corev1.ConfigMap); err != nil || len(config.Data) != 0 || len(config.BinaryData) != 0 || config.Name != "app" {
		t.Errorf("kept %v, %v", kept, err)
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other-name"}, Data: map[string]string{"x": "kind: KubeProxyConfiguration\n"}}
	if kept, _ := trimConfigMap(wanted); len(kept.(*corev1.ConfigMap).Data) != 1 {
		t.Error("a configuration of kube-proxy under another name was dropped")
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app"}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "x"}}}}
	if kept, _ := trimPod(pod); len(kept.(*corev1.Pod).Spec.Containers) != 0 || kept.(*corev1.Pod).Name != "app" {
		t.Errorf("kept %v", kept)
	}
}
