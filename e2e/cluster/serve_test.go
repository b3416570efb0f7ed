package cluster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/traffic"
)

// source is where requests come from.
type source struct {
	name  string
	start func(targets ...string) (*cluster.Load, error)
}

// sources are a pod of the node under test, the node itself, and another node.
func (w *world) sources(t *testing.T) []source {
	return []source{
		{"pod", func(targets ...string) (*cluster.Load, error) { return w.pods[0].StartLoad(t.Context(), targets...) }},
		{"node", func(targets ...string) (*cluster.Load, error) { return w.node.StartLoad(t.Context(), targets...) }},
		{"other", func(targets ...string) (*cluster.Load, error) { return w.other.StartLoad(t.Context(), targets...) }},
	}
}

// waitReachable waits until pods and nodes reach the pods' own addresses in both families: links need a moment.
func (w *world) waitReachable(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "pods are reached by their own addresses", func() bool {
		for _, s := range w.sources(t) {
			var targets []string
			for _, p := range w.pods {
				targets = append(targets, p.Name+"="+p.V4.String()+":8080", p.Name+"6=["+p.V6.String()+"]:8080")
			}
			load, err := s.start(targets...)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond)
			reports, err := load.Stop()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range reports {
				if r.Failures > 0 || r.Requests == 0 {
					return false
				}
			}
		}
		return true
	})
}

// targets are the ClusterIP and the NodePort of a Service, for the node under test. Another node reaches its ClusterIPs
// by a kube-proxy of its own, so that one asks for the NodePort only.
func (w *world) targets(from string) []string {
	port := from + "/nodeport=" + w.node.V4.String() + ":30080"
	port6 := from + "/nodeport6=[" + w.node.V6.String() + "]:30080"
	long := from + "/long=long:"
	if from == "other" {
		return []string{port, port6, long + w.node.V4.String() + ":30080"}
	}
	return []string{
		port, port6, from + "/cluster=10.96.0.10:80", from + "/cluster6=[fd00:10:96::10]:80",
		from + "/udp=udp:10.96.0.14:90", long + "10.96.0.10:80",
	}
}

// during makes requests from everywhere while f runs, and then for a while longer.
func (w *world) during(t *testing.T, f func()) []traffic.Report {
	t.Helper()
	const around = 3 * time.Second
	var loads []*cluster.Load
	for _, s := range w.sources(t) {
		load, err := s.start(w.targets(s.name)...)
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, load)
	}
	time.Sleep(around)
	f()
	time.Sleep(around)
	var all []traffic.Report
	var mu sync.Mutex
	var stopping sync.WaitGroup
	for _, load := range loads {
		stopping.Go(func() {
			reports, err := load.Stop()
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, reports...)
		})
	}
	stopping.Wait()
	return all
}

// serve makes requests from everywhere for some seconds.
func (w *world) serve(t *testing.T) []traffic.Report {
	t.Helper()
	return w.during(t, func() {})
}

// mustServe fails the test when a request is not answered, or a target was hardly asked. It asks once more after a failure: a
// machine in software on a busy host loses a request now and then, and what is broken fails again.
func (w *world) mustServe(t *testing.T) {
	t.Helper()
	wrong := failing(w.serve(t))
	if len(wrong) == 0 {
		return
	}
	t.Logf("asked once more after %v", wrong)
	for _, line := range failing(w.serve(t)) {
		t.Error(line)
	}
}

// failing says what was wrong with requests, a line for each target.
func failing(reports []traffic.Report) []string {
	var lines []string
	for _, r := range reports {
		if r.Failures > 0 || r.Requests < 5 {
			lines = append(lines, fmt.Sprintf("%s: %d of %d requests failed: %v", r.Target, r.Failures, r.Requests, r.Reasons))
		}
	}
	return lines
}

// checkFailures fails the test where targets whose label ends so had failures and should not have, or had none and should.
func checkFailures(t *testing.T, when string, reports []traffic.Report, suffix string, want bool) {
	t.Helper()
	for _, r := range reports {
		if strings.HasSuffix(r.Target, suffix) && (r.Failures > 0) != want {
			t.Errorf("%s: %s: %d of %d requests failed, want failures: %v (%v)", when, r.Target, r.Failures, r.Requests, want, r.Reasons)
		}
	}
}

// logReports shows what became of requests.
func logReports(t *testing.T, when string, reports []traffic.Report) {
	t.Helper()
	for _, r := range reports {
		t.Logf("%s: %-16s %3d requests, %3d failed %v, longest gap %s", when, r.Target, r.Requests, r.Failures, r.Reasons, time.Duration(r.GapMillis)*time.Millisecond)
	}
}
