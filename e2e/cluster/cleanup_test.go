package cluster_test

import (
	"fmt"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// cleanup runs kube-proxy --cleanup on the node and returns its log and its exit status.
func (w *world) cleanup(t *testing.T) (log string, code int) {
	t.Helper()
	p, err := w.node.StartProxy(t.Context(), cluster.ProxyConfig{Mode: "ipvs", StrictARP: true, Args: []string{"--cleanup"}})
	if err != nil {
		t.Fatal(err)
	}
	code, err = p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	checkLog(t, p.Output())
	return p.Output(), code
}

func exitNote(code int) string { return fmt.Sprintf("exit status %d", code) }
