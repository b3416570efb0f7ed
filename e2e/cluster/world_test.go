package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/facts"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// world is a cluster with one node under test, another node, and pods on both with a Service of every kind.
type world struct {
	lab     *lab.Lab
	cluster *cluster.Cluster
	node    *cluster.Node // under test
	other   *cluster.Node // a namespace of the host
	pods    []*cluster.Pod
	spec    cluster.NodeSpec
}

// newWorld makes a cluster around one node; its kube-proxy is not started.
func newWorld(t *testing.T, spec cluster.NodeSpec) *world {
	t.Helper()
	spec.Name = "under-test"
	if spec.Proxy.Name == "" {
		spec.Proxy = kube.Proxy137
	}
	c, l := clustertest.Start(t)
	w := &world{lab: l, cluster: c, node: clustertest.AddNode(t, c, spec), spec: spec}
	w.other = clustertest.AddNode(t, c, cluster.NodeSpec{Name: "other", Proxy: kube.Proxy137})
	for _, at := range []struct {
		name string
		node *cluster.Node
	}{{"near", w.node}, {"far", w.other}} {
		pod, err := at.node.AddPod(t.Context(), at.name)
		if err != nil {
			t.Fatal(err)
		}
		w.pods = append(w.pods, pod)
	}
	w.waitReachable(t)
	if err := c.CreateServices(t.Context(), w.node, w.pods); err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts the node's kube-proxy and waits until it is in sync.
func (w *world) start(t *testing.T, mode string) *cluster.Proxy {
	t.Helper()
	return clustertest.StartProxy(t, w.node, cluster.ProxyConfig{Mode: mode, StrictARP: true})
}

// end stops a kube-proxy; an error in its log that nobody explained fails the test.
func end(t *testing.T, p *cluster.Proxy) {
	t.Helper()
	if err := p.End(); err != nil {
		t.Error(err)
	}
	checkLog(t, p.Output())
}

func checkLog(t *testing.T, log string) {
	t.Helper()
	for _, line := range cluster.Unexplained(log) {
		t.Errorf("kube-proxy logged an error that nobody explained: %s: %s", line.File, line.Text)
	}
}

// look is the state of the node under test.
func (w *world) look(t *testing.T) cluster.State {
	t.Helper()
	s, err := w.node.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// keep writes a transition down.
func (w *world) keep(t *testing.T, order int, transition string, before, after cluster.State, log string, notes ...string) {
	t.Helper()
	row := facts.Row{
		Order: order, Transition: transition, Proxy: w.spec.Proxy.Version, Kernel: w.spec.Kernel, Backend: "iptables-nft",
		Before: before, After: after, Errors: errorsOf(log), Notes: notes,
	}
	if row.Kernel == "" {
		row.Kernel = "host"
	}
	if w.spec.Legacy {
		row.Backend = "iptables-legacy"
	}
	if err := facts.Keep(row); err != nil {
		t.Errorf("keeping what was seen: %v", err)
	}
	t.Logf("%s: before %+v", transition, before)
	t.Logf("%s: after  %+v", transition, after)
}

// errorsOf counts the kinds of errors in a log.
func errorsOf(log string) []string {
	counts := map[string]int{}
	for _, line := range cluster.ErrorLines(log) {
		text, _, _ := strings.Cut(line.Text, " err=")
		counts[line.File+": "+text]++
	}
	var found []string
	for text, count := range counts {
		if strings.HasPrefix(text, "metrics_linux.go:") {
			found = append(found, text) // once for each time that metrics are asked for
			continue
		}
		found = append(found, fmt.Sprintf("%d x %s", count, text))
	}
	slices.Sort(found)
	return found
}

// ipvsNode is what every node in ipvs mode has, whatever its Services.
func checkIPVSNode(t *testing.T, s cluster.State) {
	t.Helper()
	r := s.NFT
	if r.Chains4 == 0 {
		r = s.Legacy
	}
	if s.VirtualServers == 0 || s.RealServers == 0 || s.Sets4 != 17 || s.Sets6 != 17 || !s.Link || s.Addresses == 0 || len(s.Tables) > 0 {
		t.Errorf("this is no node in ipvs mode: %+v", s)
	}
	if r.Chains4 < 11 || r.Chains6 < 11 {
		t.Errorf("kube-proxy has %d and %d chains, want at least the 11 of ipvs mode", r.Chains4, r.Chains6)
	}
	for name, want := range map[string]string{
		"vs/conntrack": "1", "vs/expire_nodest_conn": "1", "vs/expire_quiescent_template": "1", "conf/all/arp_ignore": "1", "conf/all/arp_announce": "2",
	} {
		if s.Sysctls[name] != want {
			t.Errorf("sysctl %s is %q, want %s", name, s.Sysctls[name], want)
		}
	}
}

// check reports a value that is not as wanted.
func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// eventually waits for a condition, which is asked for every half second.
func eventually(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not so within %s", what, limit)
		}
	}
}
