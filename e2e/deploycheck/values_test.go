package deploycheck

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func valuesChecked(t *testing.T, s *stage) {
	for text, good := range map[string]bool{
		"{}":            true,
		"mode: enforce": true,
		"mode: enforc":  false,
		"mode: plan":    false,
		"mod: enforce":  false,
		"image: {tag: v1.2.3, registry: r:5000/a}":                  true,
		"image: {tag: ''}":                                          false,
		"image: {tag: 'a b'}":                                       false,
		"image: {registry: 'https://r/'}":                           false,
		"image: {pullPolicy: Sometimes}":                            false,
		"agent: {metrics: 'yes'}":                                   false,
		"agent: {metric: true}":                                     false,
		"agent: {hostPID: true}":                                    false,
		"agent: {privileged: true}":                                 false,
		"agent: {state: false}":                                     true,
		"{mode: enforce, agent: {state: false}}":                    false,
		"{mode: enforce, agent: {resetSysctls: true}}":              true,
		"{mode: observe, agent: {resetSysctls: true}}":              false,
		"agent: {extraArgs: ['--scan-interval=1m']}":                true,
		"agent: {extraArgs: ['scan-interval=1m']}":                  false,
		"agent: {extraArgs: ['-o']}":                                false,
		"agent: {hostFolders: [{name: a, path: /opt/kube-proxy}]}":  true,
		"agent: {hostFolders: [{name: a, path: opt}]}":              false,
		"agent: {hostFolders: [{name: a, path: /}]}":                false,
		"agent: {hostFolders: [{name: a, path: /run}]}":             false,
		"agent: {hostFolders: [{name: a, path: /run/containerd}]}":  false,
		"agent: {hostFolders: [{name: a, path: /var/run/docker}]}":  false,
		"agent: {hostFolders: [{name: a, path: /opt/../run}]}":      false,
		"agent: {hostFolders: [{name: a, path: /var}]}":             false,
		"agent: {hostFolders: [{name: a, path: /var/lib/kubelet}]}": false,
		"agent: {hostFolders: [{name: A, path: /opt}]}":             false,
		"agent: {hostFolders: [{path: /opt}]}":                      false,
		"agent: {resources: {limits: {memory: 200Mi}}}":             true,
		"agent: {resources: {limits: {memory: 200 MB}}}":            false,
		"agent: {resources: {limits: {storage: 1Gi}}}":              false,
		"agent: {tolerations: []}":                                  true,
		"agent: {tolerations: [{operator: Maybe}]}":                 false,
		"aggregator: {replicas: 3}":                                 true,
		"aggregator: {replicas: 0}":                                 false,
		"aggregator: {replicas: 2.5}":                               false,
		"aggregator: {replicas: '2'}":                               false,
		"priorityClass: {name: system-node-critical}":               true,
		"priorityClass: {value: 2000000000}":                        false,
		"networkPolicy: {enabled: false}":                           true,
		"networkPolicy: {apiServerPorts: []}":                       false,
		"networkPolicy: {apiServerPorts: [70000]}":                  false,
		"networkPolicy: {apiServerPorts: [https]}":                  false,
		"certManager: 1":                                            false,
	} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		if _, err := s.chart.Render("offramp", values); (err == nil) != good {
			t.Errorf("%s: taken is %v, want %v: %v", text, err == nil, good, err)
		}
	}
}
