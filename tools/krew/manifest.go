package main

import (
	"bytes"
	"fmt"
	"regexp"

	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

// Platforms are those that archives are made for, as GOOS-GOARCH.
func Platforms() []string {
	return []string{"darwin-amd64", "darwin-arm64", "linux-amd64", "linux-arm64", "windows-amd64", "windows-arm64"}
}

var sum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Fill puts version, address and sums (by platform, in hex) into a manifest that has none, and refuses one that krew would not take.
func Fill(template []byte, version, base string, sums map[string]string) ([]byte, error) {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(version) {
		return nil, fmt.Errorf("krew wants a version such as v0.1.0, not %q", version)
	}
	plugin := &index.Plugin{}
	if err := yaml.UnmarshalStrict(template, plugin); err != nil {
		return nil, fmt.Errorf("the manifest: %w", err)
	}
	plugin.Spec.Version = version
	for i := range plugin.Spec.Platforms {
		one := &plugin.Spec.Platforms[i]
		platform := one.Selector.MatchLabels["os"] + "-" + one.Selector.MatchLabels["arch"]
		if !sum.MatchString(sums[platform]) {
			return nil, fmt.Errorf("no sum of the archive of %s", platform)
		}
		one.URI = fmt.Sprintf("%s/%s/kubectl-offramp-%s.tar.gz", base, version, platform)
		one.Sha256 = sums[platform]
	}
	if len(plugin.Spec.Platforms) != len(Platforms()) {
		return nil, fmt.Errorf("the manifest has %d platforms, and archives are made for %d", len(plugin.Spec.Platforms), len(Platforms()))
	}
	filled, err := yaml.Marshal(plugin)
	return bytes.ReplaceAll(filled, []byte("  creationTimestamp: null\n"), nil), err
}
