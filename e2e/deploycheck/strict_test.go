package deploycheck

import "testing"

func manifests(t *testing.T) *Manifests {
	t.Helper()
	m, err := ReadManifests("../../deploy")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPlainApplyIsObserve(t *testing.T) {
	m := manifests(t)
	plain, err := m.Build(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range plain {
		if _, err := Typed(o); err != nil {
			t.Error(err)
		}
		t.Log(o.Name())
	}
}
