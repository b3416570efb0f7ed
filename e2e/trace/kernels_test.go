package trace

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// fullVariable set to "1" does everything on every kernel.
const fullVariable = "OFFRAMP_FULL"

// loaded is the capture with everything in it: all of ipvs mode, and all of iptables mode beside it.
const loaded = "ipvs-then-iptables"

// stateful are the captures that a kernel is given beside loaded, which every kernel is given.
func stateful(kernel string) []string {
	all := slices.DeleteFunc(captures.Names(), func(name string) bool { return name == loaded })
	if os.Getenv(fullVariable) == "1" {
		return all
	}
	// Spread over the kernels, so that each capture is read on one.
	mine := slices.Index(lab.Kernels(), kernel)
	var some []string
	for i, name := range all {
		if i%len(lab.Kernels()) == mine {
			some = append(some, name)
		}
	}
	return some
}

// TestKernels does all that needs a kernel with modules, on each kernel, in one guest per kernel.
func TestKernels(t *testing.T) {
	l := labtest.Start(t)
	certificates := certify(t, l)
	fleet := listen(t, l, certificates)
	for i, version := range lab.Kernels() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			g := boot(t, l, version, certificates)
			// One clock is a day behind, one is right, one a day ahead.
			t.Run("fresh", func(t *testing.T) { fresh(t, g, fleet, time.Duration(i-1)*24*time.Hour) })
			t.Run("legacy tables", func(t *testing.T) { legacy(t, g) })
			t.Run("empty", func(t *testing.T) { emptied(t, g) })
			t.Run(loaded, func(t *testing.T) {
				restore(t, g, loaded)
				agreesWithNative(t, g)
				loadedWithoutTrace(t, g)
			})
			for _, capture := range stateful(version) {
				t.Run(capture, func(t *testing.T) {
					wipe(t, g)
					restore(t, g, capture)
					agreesWithNative(t, g)
				})
			}
			if i == 0 || os.Getenv(fullVariable) == "1" {
				t.Run("zoo", func(t *testing.T) {
					wipe(t, g)
					zooInGuest(t, g)
				})
			}
		})
	}
}

// fresh looks at a guest in which nothing was ever asked for: once in each way, then for ten seconds as a daemon.
func fresh(t *testing.T, g guest, fleet *aggregator, off time.Duration) {
	modules := output(t, g, "cat", "/proc/modules")
	for _, module := range []string{"ip_vs", "ip_set", "nf_tables", "ip_tables", "ip6_tables", "x_tables", "nfnetlink"} {
		if strings.Contains("\n"+modules, "\n"+module+" ") {
			t.Fatalf("%s is loaded in a fresh guest, so that nothing can be shown", module)
		}
	}
	// First of all: whatever the agent loaded would not be missed by a later look.
	leavesNoTrace(t, g, nil)
	says(t, inspect(t, g), freshStates())
	agreesWithNative(t, g)
	setClock(t, g, off)
	before := settled(t, g, fileTraces())
	node := daemon(t, g, fleet)
	same(t, "offramp-agent run", before, look(t, g, fileTraces()))
	if skew := node.GetClockSkew().AsDuration(); (skew - off).Abs() > 20*time.Second {
		t.Errorf("the aggregator says that the clock is %s off, it is %s", skew, off)
	}
	phase := offrampv1.Phase_PHASE_UNAFFECTED
	if got := node.GetAssessment().GetPhase(); !node.GetConnected() || got != phase {
		t.Errorf("the aggregator says %v, connected: %t; want %v", got, node.GetConnected(), phase)
	}
}

// setClock sets a guest's clock off the host's.
func setClock(t *testing.T, g guest, off time.Duration) {
	t.Helper()
	output(t, g, "date", "-s", fmt.Sprintf("@%d", time.Now().Add(off).Unix()))
}

// daemon runs the agent for ten seconds and returns what the aggregator then says of the node.
func daemon(t *testing.T, g guest, fleet *aggregator) *offrampv1.NodeSummary {
	t.Helper()
	process, err := g.Start(t.Context(), lab.Command{Argv: []string{agentPath, "run", "--node", g.Name,
		"--aggregator", fleet.address, "--ca-file", caPath, "--scan-interval", "1s"}})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(10 * time.Second):
	case <-process.Done():
	}
	node := fleet.node(t, g.Name)
	if code, err := process.Stop(10 * time.Second); code != 0 || err != nil {
		t.Errorf("the agent ended with %d (%v):\n%s", code, err, process.Output())
	}
	return node
}

// legacy loads iptables-legacy and makes one table: looking makes no other.
func legacy(t *testing.T, g guest) {
	script(t, g, "modprobe iptable_filter; modprobe iptable_nat; modprobe ip6table_filter; iptables-legacy -t filter -N mine")
	leavesNoTrace(t, g, nil)
	agreesWithNative(t, g)
	if names := strings.Fields(output(t, g, "cat", "/proc/net/ip_tables_names")); !slices.Contains(names, "filter") {
		t.Errorf("the tables are %v", names)
	}
	script(t, g, "iptables-legacy -t filter -X mine")
}

// emptied loads one module after the other: what was absent is empty from then on.
func emptied(t *testing.T, g guest) {
	state := nativeStates(t, g)
	for _, step := range []struct {
		module string
		kinds  []offrampv1.SectionKind
	}{
		{"ip_set", []offrampv1.SectionKind{ipsets}},
		{"ip_vs", []offrampv1.SectionKind{ipvs}},
		{"nf_tables", []offrampv1.SectionKind{nftIPv4, nftIPv6, nftables}},
	} {
		output(t, g, "modprobe", step.module)
		state = state.with(empty, step.kinds...)
		says(t, inspect(t, g), state)
	}
	leavesNoTrace(t, g, nil)
}

func restore(t *testing.T, g guest, capture string) {
	t.Helper()
	if err := lab.Restore(t.Context(), g.Guest, capture); err != nil {
		t.Fatal(err)
	}
}

// loadedWithoutTrace looks where everything is there. nft monitor is the native witness of the generation: it tells each
// commit of anybody.
func loadedWithoutTrace(t *testing.T, g guest) {
	monitor, err := g.Start(t.Context(), lab.Command{Argv: []string{"nft", "monitor"}})
	if err != nil {
		t.Fatal(err)
	}
	before := generation(t, g)
	leavesNoTrace(t, g, toolTraces(true))
	if now := generation(t, g); now != before {
		t.Errorf("the generation of nf_tables was %d and is %d", before, now)
	}
	if heard := monitor.Output(); heard != "" {
		t.Errorf("nft monitor heard of changes:\n%s", heard)
	}
	output(t, g, "nft", "add", "table", "ip", "witness")
	heard := waitFor(func() bool { return strings.Contains(monitor.Output(), "witness") })
	if !heard || generation(t, g) == before {
		t.Errorf("a change that was made is seen neither by nft monitor (%q) nor in the generation (%d)", monitor.Output(), generation(t, g))
	}
	output(t, g, "nft", "delete", "table", "ip", "witness")
	if _, err := monitor.Kill(); err != nil {
		t.Error(err)
	}
}

func waitFor(done func() bool) bool {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func generation(t *testing.T, m machine) uint32 {
	t.Helper()
	return section(t, inspect(t, m), nftables).GetVolatile().GetNftables().GetGeneration()
}

// wipe makes a guest empty for the next capture. Only a test that owns the whole machine may do it so.
func wipe(t *testing.T, g guest) {
	t.Helper()
	script(t, g, `ipvsadm -C; nft flush ruleset; ipset destroy
		for link in eth0 kube-ipvs0; do ip link del $link 2>/dev/null || true; done`)
}

// aggregator is the real one, on the lab's network.
type aggregator struct {
	lab     *lab.Lab
	address string
	ca      string
}

// listen starts the aggregator. It ends with the lab.
func listen(t *testing.T, l *lab.Lab, certificates authority.Files) *aggregator {
	t.Helper()
	a := &aggregator{lab: l, address: l.HostAddr() + ":8443", ca: certificates.CA}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := l.Command(ctx, programs.Aggregator(), "run", "--auth", "none", "--listen", a.address, "--heartbeat-interval", "1s",
		"--tls-cert-file", certificates.ServerCert, "--tls-key-file", certificates.ServerKey)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	return a
}

// node is what kubectl-offramp says of a node.
func (a *aggregator) node(t *testing.T, name string) *offrampv1.NodeSummary {
	t.Helper()
	out, err := a.lab.Command(t.Context(), programs.Kubectl(), "nodes", "-o", "json", "--aggregator", a.address, "--ca-file", a.ca).Output()
	if err != nil {
		t.Fatalf("kubectl-offramp nodes: %v", err)
	}
	answer := &offrampv1.ListNodesResponse{}
	if err := protojson.Unmarshal(out, answer); err != nil {
		t.Fatal(err)
	}
	for _, node := range answer.GetNodes() {
		if node.GetNode() == name {
			return node
		}
	}
	t.Fatalf("%s did not report", name)
	return nil
}
