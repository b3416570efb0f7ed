package cluster

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// An informer of a kind that does not exist fails twice a minute for ever: the first time alone is news.
func TestAFailureIsNewsOnce(t *testing.T) {
	told := 0
	f := &feed{note: func() { told++ }}
	missing := apierrors.NewNotFound(schema.GroupResource{Resource: "servicecidrs"}, "")
	for _, tt := range []struct {
		err  error
		told int
	}{
		{missing, 1}, {missing, 1}, {errors.New("connection refused"), 2}, {errors.New("connection refused"), 2},
		{apierrors.NewResourceExpired("too old"), 2}, {missing, 3}, {apierrors.NewForbidden(schema.GroupResource{}, "", nil), 4},
	} {
		if f.fail(tt.err); told != tt.told {
			t.Errorf("after %v it was told %d times, want %d", tt.err, told, tt.told)
		}
	}
	if f.heal(); !f.takeFailure(missing, false) {
		t.Error("a kind that was there in between is missing again, and that is no news")
	}
}
