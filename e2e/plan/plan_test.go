// Package plan_test holds the plans that the real agent makes on real kernels against what a person counted in the captures.
package plan_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

const agent = "/usr/local/bin/offramp-agent"

// counted is what a person counted in a capture (agent/cleanup/plan_captures_test.go says how), for one target.
type counted struct {
	capture, target string
	// source, virtual servers, link, rules, ipsets, rest
	stages [6]int
	guards []string
	exit   int
}

// The capture without nfacct objects comes first: the kernel lets go of them some time after their rules are gone.
func expectations() []counted {
	return []counted{
		{"ipvs", "ipvs", [6]int{}, nil, 0},
		{"ipvs", "iptables", [6]int{68, 85, 1, 22, 34, 32}, []string{"mode-is-not-target", "shared-chain-matches-sets"}, 2},
		{"ipvs-then-iptables", "iptables", [6]int{68, 85, 1, 22, 34, 32}, nil, 3},
		{"ipvs-then-iptables", "nftables", [6]int{68, 85, 1, 410, 34, 34}, []string{"mode-is-not-target"}, 2},
		{"iptables-sync-failed", "iptables", [6]int{68, 5, 1, 22, 34, 32},
			[]string{"not-in-sync", "target-never-synced", "shared-chain-matches-sets", "kept-server-needs-link"}, 2},
		{"ipvs-then-nftables", "nftables", [6]int{0, 0, 0, 0, 17, 2}, nil, 3},
	}
}

// kernels is all of them where everything is asked for, else one.
func kernels() []string {
	if os.Getenv("OFFRAMP_FULL") == "1" {
		return lab.Kernels()
	}
	return []string{"6.1"}
}

func TestPlansOnRealKernels(t *testing.T) {
	l := labtest.Start(t)
	for _, kernel := range kernels() {
		t.Run(kernel, func(t *testing.T) {
			g := labtest.Boot(t, l, lab.VM{Name: "plan", Kernel: kernel, Files: []lab.File{{Path: agent, Host: programs.Agent(), Mode: 0o755}}})
			last := ""
			var proxy *lab.Process
			for _, want := range expectations() {
				if want.capture != last {
					stop(t, proxy)
					proxy = become(t, g, want.capture)
					last = want.capture
				}
				t.Run(want.capture+" to "+want.target, func(t *testing.T) { check(t, g, want) })
			}
			stop(t, proxy)
		})
	}
}

func stop(t *testing.T, proxy *lab.Process) {
	t.Helper()
	if proxy == nil {
		return
	}
	if _, err := proxy.Stop(10 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// become gives the guest the state of a capture, and a stand-in for its kube-proxy.
func become(t *testing.T, g *lab.Guest, capture string) *lab.Process {
	t.Helper()
	result, err := g.Run(t.Context(), "sh", "-c", `ipvsadm -C; nft flush ruleset; ipset destroy
		for link in eth0 kube-ipvs0; do ip link del $link; done; true`)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%v: %+v", err, result)
	}
	if err := lab.Restore(t.Context(), g, capture); err != nil {
		t.Fatal(err)
	}
	proxy, err := lab.StandIn(t.Context(), g, capture)
	if err != nil {
		t.Fatal(err)
	}
	return proxy
}

func check(t *testing.T, g *lab.Guest, want counted) {
	t.Helper()
	plan, exit := planOn(t, g, want.target)
	var stages [6]int
	for _, operation := range plan.GetOperations() {
		stages[operation.GetStage()-1]++
	}
	if stages != want.stages {
		t.Errorf("operations by stage: %v, want %v", stages, want.stages)
	}
	var guards []string
	for _, guard := range plan.GetGuards() {
		// A guest has no disk.
		if guard.GetId() != "no-durable-storage" {
			guards = append(guards, guard.GetId())
			t.Logf("%s: %q", guard.GetId(), guard.GetEvidence())
		}
	}
	if diff := cmp.Diff(want.guards, guards); diff != "" {
		t.Errorf("guards differ (-want +got):\n%s", diff)
	}
	if noDisk := len(guards) < len(plan.GetGuards()); noDisk {
		want.exit = 2
	}
	if exit != want.exit {
		t.Errorf("exit code %d, want %d", exit, want.exit)
	}
	again, _ := planOn(t, g, want.target)
	if !slices.Equal(plan.GetDigest(), again.GetDigest()) {
		t.Error("two plans of an unchanged node have different digests")
	}
}

func planOn(t *testing.T, g *lab.Guest, target string) (*offrampv1.Plan, int) {
	t.Helper()
	result, err := g.Run(t.Context(), agent, "cleanup", "plan", "--target", target, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	plan := &offrampv1.Plan{}
	if err := protojson.Unmarshal([]byte(result.Stdout), plan); err != nil {
		t.Fatalf("%v: exit code %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	return plan, result.ExitCode
}
