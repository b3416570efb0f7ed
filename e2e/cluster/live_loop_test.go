package cluster_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/traffic"
)

// loop is the request loop: from a pod, the node and another node, each request a new connection that is not tried again, and
// beside those connections that are kept, from the pod and the other node.
type loop struct {
	loads []*cluster.Load
}

// paths are what is asked from one place. The other node has no kube-proxy, so it asks the node's NodePort only. What the node
// itself keeps open is started by tests: it matters when.
func (l *live) paths(from string) []string {
	port, port6 := l.node.V4.String()+":30080", "["+l.node.V6.String()+"]:30080"
	paths := []string{from + "/nodeport=" + port, from + "/nodeport6=" + port6}
	switch from {
	case "other":
		return append(paths, from+"/long=long:"+port, from+"/long6=long:"+port6)
	case "pod":
		paths = append(paths, from+"/long=long:"+clusterIP, from+"/long6=long:"+clusterIP6)
	}
	return append(paths, from+"/cluster="+clusterIP, from+"/cluster6="+clusterIP6, from+"/udp=udp:10.96.0.14:90")
}

// The Service that is asked by its ClusterIP.
const (
	clusterIP  = "10.96.0.10:80"
	clusterIP6 = "[fd00:10:96::10]:80"
)

// around is how long requests go on before and after what is done meanwhile.
const around = 3 * time.Second

// startLoop begins the requests, and returns when they have run for a while.
func (l *live) startLoop(t *testing.T) *loop {
	t.Helper()
	o := &loop{}
	for _, from := range []struct {
		name  string
		start func(paths ...string) (*cluster.Load, error)
	}{
		{"pod", func(paths ...string) (*cluster.Load, error) {
			return l.pods[0].StartLoadAt(t.Context(), l.pace, paths...)
		}},
		{"node", func(paths ...string) (*cluster.Load, error) {
			return l.node.StartLoadAt(t.Context(), l.pace, paths...)
		}},
		{"other", func(paths ...string) (*cluster.Load, error) {
			return l.other.StartLoadAt(t.Context(), l.pace, paths...)
		}},
	} {
		load, err := from.start(l.paths(from.name)...)
		if err != nil {
			t.Fatal(err)
		}
		o.loads = append(o.loads, load)
	}
	time.Sleep(around)
	return o
}

// longs opens connections of the node to the Service, one of each family, and keeps them.
func (l *live) longs(t *testing.T, name string) *cluster.Load {
	t.Helper()
	load, err := l.node.StartLoadAt(t.Context(), l.pace, "node/"+name+"=long:"+clusterIP, "node/"+name+"6=long:"+clusterIP6)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until they are open
	return load
}

// end ends the requests after a while, and those of further loads with them, and says what became of all.
func (o *loop) end(t *testing.T, more ...*cluster.Load) []traffic.Report {
	t.Helper()
	time.Sleep(around)
	return ended(t, append(o.loads, more...)...)
}

func ended(t *testing.T, loads ...*cluster.Load) []traffic.Report {
	t.Helper()
	reports := make([][]traffic.Report, len(loads))
	var stopping sync.WaitGroup
	for i, load := range loads {
		stopping.Go(func() {
			var err error
			if reports[i], err = load.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	stopping.Wait()
	var all []traffic.Report
	for _, some := range reports {
		all = append(all, some...)
	}
	return all
}

// requests sums the requests of several reports.
func requests(reports []traffic.Report) int {
	sum := 0
	for _, r := range reports {
		sum += r.Requests
	}
	return sum
}

// logCounts shows what became of requests, and when they failed.
func logCounts(t *testing.T, when string, reports []traffic.Report) {
	t.Helper()
	for _, r := range reports {
		t.Logf("%s: %-15s %4d requests, %d failed %v, the slowest answer took %d ms", when, r.Target, r.Requests, r.Failures, r.Reasons, r.SlowestMillis)
		for _, at := range r.FailedAt {
			t.Logf("%s: %s failed at %s", when, r.Target, at.UTC().Format("15:04:05.000"))
		}
	}
	t.Logf("%s: %d requests in all, %d failed, on %v", when, requests(reports), traffic.Failures(reports), traffic.Failed(reports))
}

// noFailure fails the test where a request failed, or a path was hardly asked.
func noFailure(t *testing.T, when string, reports []traffic.Report) {
	t.Helper()
	logCounts(t, when, reports)
	for _, r := range reports {
		if r.Failures > 0 || r.Requests < 20 {
			t.Errorf("%s: %s: %d of %d requests failed: %v", when, r.Target, r.Failures, r.Requests, r.Reasons)
		}
	}
}

// allBroke fails the test unless every one of these connections was broken.
func allBroke(t *testing.T, when string, reports []traffic.Report) {
	t.Helper()
	for _, r := range reports {
		if r.Failures == 0 {
			t.Errorf("%s: %s was not broken: %d requests on it", when, r.Target, r.Requests)
		}
	}
}

// sourcesChanged waits until new connections of the node to the Service leave with the node's own address.
func (l *live) sourcesChanged(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, "the sources of the VIPs' routes are changed", func() bool {
		return strings.Contains(l.native(t)["route"], "local 10.96.0.10 dev kube-ipvs0 proto kernel scope host src "+l.node.V4.String()) &&
			strings.Contains(l.native(t)["route"], "local fd00:10:96::10 dev lo ")
	})
}
