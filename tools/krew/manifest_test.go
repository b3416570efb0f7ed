package main

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/krew/pkg/index"
	"sigs.k8s.io/yaml"
)

func sums() map[string]string {
	all := map[string]string{}
	for _, platform := range Platforms() {
		all[platform] = strings.Repeat("0a", 32)
	}
	return all
}

func template(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../deploy/krew/offramp.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The manifest in the repository says nothing that it cannot know.
func TestTemplateHasNoSums(t *testing.T) {
	if text := string(template(t)); strings.Contains(text, "sha256") || strings.Contains(text, "uri") || strings.Contains(text, "version:") {
		t.Error("the manifest pretends to know archives")
	}
}

// What krew's own validation asks for, as in internal/index/validation of krew.
func TestFill(t *testing.T) {
	filled, err := Fill(template(t), "v0.1.0", "https://example.test/releases", sums())
	if err != nil {
		t.Fatal(err)
	}
	var plugin index.Plugin
	if err := yaml.UnmarshalStrict(filled, &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || plugin.Kind != "Plugin" || plugin.Name != "offramp" ||
		plugin.Spec.ShortDescription == "" || strings.ContainsAny(plugin.Spec.ShortDescription, "\r\n") || plugin.Spec.Version != "v0.1.0" {
		t.Errorf("%+v", plugin)
	}
	for _, one := range plugin.Spec.Platforms {
		if !strings.HasPrefix(one.URI, "https://example.test/releases/v0.1.0/kubectl-offramp-"+one.Selector.MatchLabels["os"]) || len(one.Sha256) != 64 ||
			one.Bin == "" || len(one.Files) != 2 {
			t.Errorf("%+v", one)
		}
	}
}

func TestRefused(t *testing.T) {
	missing := sums()
	delete(missing, "linux-arm64")
	for name, err := range map[string]error{
		"a version of git's": second(Fill(template(t), "4ebea8f-dirty", "https://example.test", sums())),
		"no sum":             second(Fill(template(t), "v0.1.0", "https://example.test", missing)),
		"an unknown field":   second(Fill(append(template(t), "  surprise: true\n"...), "v0.1.0", "https://example.test", sums())),
	} {
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func second(_ []byte, err error) error { return err }
