package deploycheck

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Object is a Kubernetes object as decoded from YAML.
type Object map[string]any

// Manifests is the tree of deploy/, in memory.
type Manifests struct{ files filesys.FileSystem }

// tried is where kustomizations are written that only a test has.
const tried = "/deploy/tried"

// ReadManifests reads every YAML and JSON file of a folder, which is deploy/ of the repository.
func ReadManifests(folder string) (*Manifests, error) {
	m := &Manifests{filesys.MakeFsInMemory()}
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".yaml") && !strings.HasSuffix(name, ".json") {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		return m.files.WriteFile(path.Join("/deploy", filepath.ToSlash(below)), content)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests: %w", err)
	}
	return m, nil
}

// Build builds a kustomization, a path below deploy/.
func (m *Manifests) Build(kustomization string) ([]Object, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(m.files, path.Join("/deploy", kustomization))
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", kustomization, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("write what was built of %s: %w", kustomization, err)
	}
	return Decode(text)
}

// BuildWith builds an overlay with some of the components, as a kustomization of a user's own would.
func (m *Manifests) BuildWith(overlay string, components ...string) ([]Object, error) {
	own := map[string]any{"resources": []string{"../overlays/" + overlay}, "components": below("../components/", components)}
	text, err := yaml.Marshal(own)
	if err != nil {
		return nil, err
	}
	if err := m.files.WriteFile(tried+"/kustomization.yaml", text); err != nil {
		return nil, fmt.Errorf("write a kustomization: %w", err)
	}
	return m.Build("tried")
}

func below(folder string, names []string) []string {
	paths := make([]string, 0, len(names))
	for _, name := range names {
		paths = append(paths, folder+name)
	}
	return paths
}

// Names lists the folders of a folder below deploy/ that hold a kustomization, sorted.
func (m *Manifests) Names(folder string) ([]string, error) {
	found, err := m.files.Glob(path.Join("/deploy", folder, "*", "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	names := make([]string, 0, len(found))
	for _, name := range found {
		names = append(names, path.Base(path.Dir(name)))
	}
	return names, nil
}

// Decode decodes the objects of a text with several documents; empty ones are left out.
func Decode(text []byte) ([]Object, error) {
	var objects []Object
	for document := range strings.SplitSeq(string(text), "\n---") {
		var object Object
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return nil, fmt.Errorf("decode: %w\n%s", err, document)
		}
		if len(object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}
