package deploycheck

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const chart = "../../deploy/chart/offramp"

// valuesOf are the values that do what a component does.
func valuesOf(t *testing.T, components []string) map[string]any {
	t.Helper()
	agent, top := map[string]any{}, map[string]any{}
	var folders []any
	for _, component := range components {
		switch component {
		case "agent-metrics":
			agent["metrics"] = true
		case "cert-manager":
			top["certManager"] = true
		case "ebpf-maps":
			agent["ebpfMaps"] = true
		case "kube-proxy-folder":
			folders = append(folders, map[string]any{"name": "host-kube-proxy", "path": "/var/lib/kube-proxy"})
		case "node-labels":
			top["aggregator"] = map[string]any{"nodeLabels": true}
		case "openshift":
			top["openshift"] = true
		case "recursive-read-only":
			agent["recursiveReadOnly"] = true
		case "rke2":
			folders = append(folders, map[string]any{"name": "host-rke2-pods", "path": "/var/lib/rancher/rke2/agent/pod-manifests"})
		case "service-monitors":
			top["serviceMonitors"] = true
		case "stateless":
			agent["state"] = false
		case "sysctl-reset":
			agent["resetSysctls"] = true
		default:
			t.Fatalf("which value is for the component %s?", component)
		}
	}
	agent["hostFolders"] = folders
	top["agent"] = agent
	return top
}

// refused: the chart's schema keeps people from what kustomize cannot.
func refused(c combination) bool {
	for _, component := range c.components {
		if component == "stateless" && c.overlay == "enforce" || component == "sysctl-reset" && c.overlay == "observe" {
			return true
		}
	}
	return false
}

func sameObjects(t *testing.T, s *stage) {
	for _, c := range s.results {
		values := valuesOf(t, c.components)
		values["mode"] = c.overlay
		if refused(c.combination) {
			if _, err := s.chart.Render("offramp", values); err == nil {
				t.Errorf("the chart takes %s with %v", c.overlay, c.components)
			}
			continue
		}
		rendered, err := s.chart.Render("offramp", values)
		if err != nil {
			t.Fatal(err)
		}
		want, got := comparable(t, c.objects), comparable(t, rendered)
		// Helm makes the namespace, or finds it there.
		delete(want, "Namespace/offramp")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %v (-kustomize +chart):\n%s", c.overlay, c.components, diff)
		}
	}
}

// comparable are objects by name, without the labels that Helm adds, and with lists that are sets in one order.
func comparable(t *testing.T, objects []Object) map[string]Object {
	t.Helper()
	byName := map[string]Object{}
	for _, object := range objects {
		object = object.clone()
		if _, twice := byName[object.Name()]; twice {
			t.Errorf("%s is there twice", object.Name())
		}
		labels, _ := object["metadata"].(map[string]any)["labels"].(map[string]any)
		maps.DeleteFunc(labels, func(name string, _ any) bool {
			return name == "app.kubernetes.io/managed-by" || name == "app.kubernetes.io/instance" || name == "helm.sh/chart"
		})
		sortSets(object)
		byName[object.Name()] = object
	}
	return byName
}

// A release in another namespace has that everywhere.
func elsewhere(t *testing.T, s *stage) {
	values := map[string]any{"certManager": true, "openshift": true, "serviceMonitors": true}
	objects, err := s.chart.Render("elsewhere", values)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if strings.Contains(object.Name(), "/offramp/") || strings.Contains(text(t, object), "offramp.svc") ||
			strings.Contains(text(t, object), "serviceaccount:offramp:") || strings.Contains(text(t, object), `"namespace":"offramp"`) {
			t.Errorf("%s names the namespace offramp:\n%s", object.Name(), text(t, object))
		}
	}
}

func sharedFiles(t *testing.T, _ *stage) {
	for name, from := range shared() {
		want, err := os.ReadFile(filepath.Join("../../deploy", from))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(chart, "files", name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is no copy of deploy/%s (%v); run go -C e2e/deploycheck run ./write", name, from, err)
		}
	}
}
