package deploycheck

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func strictlyTaken(t *testing.T, s *stage) {
	for _, r := range s.results {
		for _, object := range r.objects {
			if _, err := s.types.Decode(object); err != nil {
				t.Errorf("%s with %v: %v", r.overlay, r.components, err)
			}
		}
	}
}

func plainApply(t *testing.T, s *stage) {
	plain, err := s.manifests.Build(".")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.built(t, "observe"), plain); diff != "" {
		t.Errorf("kubectl apply -k deploy/ is not the overlay observe (-want +got):\n%s", diff)
	}
}

func typesRefuse(t *testing.T, s *stage) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: []}\n",
		"apiVersion: apps/v1\nkind: DaemonSets\nmetadata: {name: a}\n",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: maybe}\n",
	} {
		objects, err := Decode([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.types.Decode(objects[0]); err == nil {
			t.Errorf("%s is taken", fmt.Sprint(objects[0]))
		}
	}
}

// The alerts and the dashboard are for whoever has Prometheus Operator, beside what it scrapes.
func monitoringBuilds(t *testing.T, s *stage) {
	objects, err := s.manifests.BuildWith("observe", "service-monitors", "../monitoring")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[any]bool{}
	for _, object := range objects {
		kinds[object["kind"]] = true
		if _, err := s.types.Decode(object); err != nil {
			t.Error(err)
		}
	}
	if !kinds["PrometheusRule"] || !kinds["ServiceMonitor"] || !kinds["PodMonitor"] {
		t.Errorf("the kinds are %v", kinds)
	}
}
