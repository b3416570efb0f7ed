package cleanup_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/nstest"
)

// What kube-proxy left in both backends and both families goes, in one run. What others have there is byte for byte the same
// in the native tools' output, and a second run has nothing to do.
func TestApplyLeavesTheZooAlone(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	for _, capture := range captures.Names() {
		t.Run(capture, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			zoo(t)
			before := look(t)
			kubeProxy(t, capture)
			dirty := look(t)
			if dirty == before {
				t.Fatal("the capture put nothing into the kernel")
			}
			n := newNode(t)
			mustClean(t, n.apply())
			if diff := cmp.Diff(before, look(t)); diff != "" {
				t.Errorf("before kube-proxy (-), after the clean-up (+):\n%s", diff)
			}
			if again := n.plan(); len(again.GetOperations()) != 0 {
				t.Errorf("a second run would do %d operations", len(again.GetOperations()))
			}
		})
	}
}
