package deploycheck

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func manifests(t *testing.T) *Manifests {
	t.Helper()
	m, err := ReadManifests("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func names(t *testing.T, m *Manifests, folder string) []string {
	t.Helper()
	found, err := m.Names(folder)
	if err != nil || len(found) == 0 {
		t.Fatalf("nothing is in %s (%v)", folder, err)
	}
	return found
}

// built are the objects of an overlay with components.
func built(t *testing.T, m *Manifests, overlay string, components ...string) []Object {
	t.Helper()
	objects, err := m.BuildWith(overlay, components...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func types(t *testing.T) *Types {
	t.Helper()
	known, err := NewTypes()
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// combination is an overlay with components.
type combination struct {
	overlay    string
	components []string
}

// combinations are both overlays, each plain, with each component, and with all of them.
func combinations(t *testing.T, m *Manifests) []combination {
	t.Helper()
	components := names(t, m, "components")
	var all []combination
	for _, overlay := range names(t, m, "overlays") {
		all = append(all, combination{overlay, nil}, combination{overlay, components})
		for _, one := range components {
			all = append(all, combination{overlay, []string{one}})
		}
	}
	return all
}

func TestEveryCombinationIsTakenStrictly(t *testing.T) {
	m, known := manifests(t), types(t)
	for _, c := range combinations(t, m) {
		for _, object := range built(t, m, c.overlay, c.components...) {
			if _, err := known.Decode(object); err != nil {
				t.Errorf("%s with %v: %v", c.overlay, c.components, err)
			}
		}
	}
}

func TestPlainApplyIsObserve(t *testing.T) {
	m := manifests(t)
	plain, err := m.Build(".")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(built(t, m, "observe"), plain); diff != "" {
		t.Errorf("kubectl apply -k deploy/ is not the overlay observe (-want +got):\n%s", diff)
	}
}

func TestTypesRefuseWhatTheAPIDoesNotKnow(t *testing.T) {
	known := types(t)
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: []}\n",
		"apiVersion: apps/v1\nkind: DaemonSets\nmetadata: {name: a}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: maybe}\n",
	} {
		objects, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := known.Decode(objects[0]); err == nil {
			t.Errorf("%s is taken", fmt.Sprint(objects[0]))
		}
	}
}
