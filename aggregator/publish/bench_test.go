package publish

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"offramp.dev/offramp/aggregator/fleet"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// large is a fleet of many nodes, each with a memory and a finding.
func large(w *world, nodes int) {
	w.client = fake.NewClientset()
	w.facts.Nodes, w.looks = nil, nil
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		w.facts.Nodes = append(w.facts.Nodes, &v1.ClusterNode{Name: name, Labels: map[string]string{"offramp.dev/phase": "on-ipvs", "offramp.dev/proxy-mode": "nftables"}})
		w.looks = append(w.looks, look(name, noon(), judged(v1.Phase_PHASE_ON_IPVS, nil, "kernel-too-old"), entry(noon(), "mode", "ipvs to nftables", 0)))
	}
}

// What a replica keeps of a node beside the fleet itself.
func TestMemoryPerNode(t *testing.T) {
	const nodes = 10_000
	w := newWorld(t)
	large(w, nodes)
	p := w.publisher("one", nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p.round()
	runtime.GC()
	runtime.ReadMemStats(&after)
	perNode := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / nodes
	t.Logf("%d bytes per node", perNode)
	if perNode > 400 {
		t.Errorf("%d bytes per node are kept, more than 400", perNode)
	}
	runtime.KeepAlive(p)
	runtime.KeepAlive(w)
}

// A mode that is switched everywhere at once: no round takes long, and what is written stays within bounds.
func TestEverythingAtOnce(t *testing.T) {
	const nodes = 10_000
	w := newWorld(t)
	large(w, nodes)
	p := w.leading("one", nil)
	p.round()
	began := time.Now()
	var looks []fleet.Look
	for i := range nodes {
		at := noon().Add(time.Second)
		looks = append(looks, look(fmt.Sprintf("node-%05d", i), at, judged(v1.Phase_PHASE_SWITCHED_DIRTY, &v1.Leftovers{Links: 1}), entry(at, "mode", "ipvs to iptables", 0)))
	}
	w.see(looks...)
	w.advance(5 * time.Second)
	p.round()
	writes := w.writes()
	if writes["create events"] != 20 || writes["patch nodes"] != 50 || len(p.news.items) > maxNews || lines(w, "more news than Events") != 1 {
		t.Errorf("%v after %s, %d are waiting; log: %s", writes, time.Since(began), len(p.news.items), w.log)
	}
}

func BenchmarkRound10000(b *testing.B) {
	w := newWorld(&testing.T{})
	large(w, 10_000)
	p := w.publisher("one", nil)
	b.ReportAllocs()
	for b.Loop() {
		p.write(context.Background(), p.look())
	}
}
