package deploycheck

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// combination is an overlay with components.
type combination struct {
	overlay    string
	components []string
}

// result is what kustomize builds of a combination.
type result struct {
	combination
	objects []Object
}

// stage has what takes long, once for all tests.
type stage struct {
	manifests *Manifests
	types     *Types
	chart     *Chart
	reasons   Reasons
	// results are of both overlays, each plain, with each component, and with all of them.
	results []result
}

// TestManifests builds every combination once and has the tests look at them.
func TestManifests(t *testing.T) {
	s := newStage(t)
	for name, test := range map[string]func(*testing.T, *stage){
		"every combination is taken strictly":         strictlyTaken,
		"a plain apply is observe":                    plainApply,
		"the types refuse what the API does not know": typesRefuse,
		"names fit":                               namesFit,
		"arguments fit":                           argumentsFit,
		"flags exist":                             flagsExist,
		"pods are not stronger than said":         notStronger,
		"everything asked for has its reason":     reasonsGiven,
		"privileges are written":                  privilegesWritten,
		"asks are seen":                           asksSeen,
		"the chart renders the same objects":      sameObjects,
		"the chart goes into another namespace":   elsewhere,
		"the chart has the shared files":          sharedFiles,
		"values are checked":                      valuesChecked,
		"alerts and dashboard build":              monitoringBuilds,
		"observe is enough, and all of it needed": observeEnoughAndNeeded,
		"enforce is enough, and all of it needed": enforceEnoughAndNeeded,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{}
	var err error
	if s.manifests, err = ReadManifests("../../deploy"); err != nil {
		t.Fatal(err)
	}
	if s.types, err = NewTypes(); err != nil {
		t.Fatal(err)
	}
	if s.chart, err = LoadChart(chart); err != nil {
		t.Fatal(err)
	}
	if s.reasons, err = ReadReasons(); err != nil {
		t.Fatal(err)
	}
	components := s.names(t, "components")
	for _, overlay := range s.names(t, "overlays") {
		s.add(t, overlay)
		s.add(t, overlay, components...)
		for _, one := range components {
			s.add(t, overlay, one)
		}
	}
	return s
}

func (s *stage) names(t *testing.T, folder string) []string {
	t.Helper()
	found, err := s.manifests.Names(folder)
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing is in %s (%v)", folder, err)
	}
	return found
}

func (s *stage) add(t *testing.T, overlay string, components ...string) {
	t.Helper()
	objects, err := s.manifests.BuildWith(overlay, components...)
	if err != nil {
		t.Fatal(err)
	}
	s.results = append(s.results, result{combination{overlay, components}, objects})
}

// built are the objects of an overlay without components.
func (s *stage) built(t *testing.T, overlay string) []Object {
	t.Helper()
	for _, r := range s.results {
		if r.overlay == overlay && len(r.components) == 0 {
			return r.objects
		}
	}
	t.Fatalf("there is no overlay %s", overlay)
	return nil
}

// clone is a copy that may be changed.
func (o Object) clone() Object { return runtime.DeepCopyJSON(o) }
