package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/readiness"
)

func TestMinorsLeft(t *testing.T) {
	for version, want := range map[string]struct {
		refused, removed int
		ok               bool
	}{
		"v1.37.2":           {3, 6, true},
		"v1.40.0":           {0, 3, true},
		"v1.44.1-eks-1a2b3": {-4, -1, true},
		"":                  {0, 0, false},
		"v2.0.0":            {0, 0, false},
		"unknown":           {0, 0, false},
	} {
		refused, removed, ok := readiness.MinorsLeft(version)
		if refused != want.refused || removed != want.removed || ok != want.ok {
			t.Errorf("%q: %d, %d, %t", version, refused, removed, ok)
		}
	}
}
