package deploycheck

import (
	"fmt"
	"os"
	"path/filepath"
)

// shared are the files that kustomize and the chart both have, by name in the chart's files/, each with its place below deploy/.
func shared() map[string]string {
	return map[string]string{
		"rbac.yaml":        "base/rbac.yaml",
		"crd.yaml":         "base/crd.yaml",
		"node-labels.yaml": "components/node-labels/rbac.yaml",
		"monitors.yaml":    "components/service-monitors/monitors.yaml",
		"certificate.yaml": "components/cert-manager/certificate.yaml",
		"constraints.yaml": "components/openshift/constraints.yaml",
	}
}

// CopyShared writes the chart's copies anew, since a chart may hold nothing that lies outside of it.
func CopyShared(deploy string) error {
	for name, from := range shared() {
		content, err := os.ReadFile(filepath.Join(deploy, from))
		if err != nil {
			return fmt.Errorf("read what the chart shares: %w", err)
		}
		if err := os.WriteFile(filepath.Join(deploy, "chart/offramp/files", name), content, 0o644); err != nil {
			return fmt.Errorf("write the chart's copy: %w", err)
		}
	}
	return nil
}
