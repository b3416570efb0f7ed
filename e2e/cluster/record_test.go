package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// recordVariable names the folder that captures are written into; see make record.
const recordVariable = "OFFRAMP_RECORD_DIR"

// recording takes a world's captures.
type recording struct {
	*world
	dir, prefix string
}

func (r recording) take(t *testing.T, name string, p *cluster.Proxy, log string) {
	t.Helper()
	if p != nil {
		log = p.Output()
	}
	capture, err := r.node.Record(t.Context(), p, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"uname.txt", "ip-addr.txt", "sysctls.txt", "restore-order.txt"} {
		if capture[file] == "" {
			t.Errorf("the capture %s has no %s", name, file)
		}
	}
	if r.dir == "" {
		return
	}
	if err := capture.Write(filepath.Join(r.dir, r.prefix+name)); err != nil {
		t.Fatal(err)
	}
}

// One quick capture with every run, so that the recorder cannot break unseen.
func TestRecord(t *testing.T) {
	t.Parallel()
	r := recording{world: newWorld(t, cluster.NodeSpec{Legacy: true})}
	p := r.start(t, "iptables")
	r.take(t, "iptables", p, "")
	end(t, p)
	bad := p.Output() + "\nE1130 17:20:00.000000      12 proxier.go:1390] \"Failed to execute iptables-restore\" err=<\n\tline 3 failed\n >\n"
	if _, err := r.node.Record(t.Context(), nil, bad); err == nil || !strings.Contains(err.Error(), "proxier.go") {
		t.Errorf("a log with an error that nobody explained made a capture (%v)", err)
	}
}

// All captures: both versions, both backends, strictARP on and off.
func TestRecordAll(t *testing.T) {
	dir := os.Getenv(recordVariable)
	if dir == "" {
		t.Skip("runs by make record")
	}
	for _, proxy := range []kube.Program{kube.Proxy137, kube.Proxy134} {
		for _, legacy := range []bool{false, true} {
			prefix := proxy.Version + "-nft-"
			if legacy {
				prefix = proxy.Version + "-legacy-"
			}
			t.Run(prefix+"vm", func(t *testing.T) {
				t.Parallel()
				recordSwitches(t, dir, prefix, cluster.NodeSpec{Kernel: "6.1", Proxy: proxy, Legacy: legacy})
			})
			t.Run(prefix+"host", func(t *testing.T) {
				t.Parallel()
				r := recording{newWorld(t, cluster.NodeSpec{Proxy: proxy, Legacy: legacy}), dir, prefix}
				p := r.start(t, "iptables")
				r.take(t, "iptables", p, "")
				end(t, p)
				p = r.start(t, "nftables")
				r.take(t, "nftables", p, "")
				end(t, p)
			})
		}
	}
}

func recordSwitches(t *testing.T, dir, prefix string, spec cluster.NodeSpec) {
	t.Helper()
	r := recording{newWorld(t, spec), dir, prefix}
	p := clustertest.StartProxy(t, r.node, cluster.ProxyConfig{Mode: "ipvs", Scheduler: "lc"})
	r.take(t, "ipvs-not-strict", p, "")
	end(t, p)
	p = r.start(t, "ipvs")
	r.take(t, "ipvs", p, "")
	end(t, p)
	p = r.start(t, "nftables")
	r.take(t, "ipvs-then-nftables", p, "")
	end(t, p)
	end(t, r.start(t, "ipvs"))
	p = r.start(t, "iptables")
	r.take(t, "ipvs-then-iptables", p, "")
	end(t, p)
	log, _ := r.cleanup(t)
	r.take(t, "ipvs-then-iptables-cleanup", nil, log)
}
