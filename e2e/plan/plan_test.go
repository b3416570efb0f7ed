// Package plan_test holds the plans that the real agent makes on real kernels against what a person counted in the captures.
package plan_test

import (
	"encoding/hex"
	"os"
	"slices"
	"strings"
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
		{"ipvs-then-iptables", "nftables", [6]int{68, 85, 1, 410, 34, 34}, []string{"mode-is-not-target"}, 2},
		{"ipvs-then-iptables", "iptables", [6]int{68, 85, 1, 22, 34, 32}, nil, 3},
		// After that clean-up, which is applied, the node is as if iptables mode had always run there.
		{"ipvs-then-iptables", "nftables", [6]int{0, 0, 0, 388, 0, 2}, []string{"mode-is-not-target"}, 2},
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
			g := labtest.Boot(t, l, lab.VM{Name: "plan", Kernel: kernel, Disk: 64, Files: []lab.File{{Path: agent, Host: programs.Agent(), Mode: 0o755}}})
			if err := g.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
				t.Fatal(err)
			}
			t.Run("fresh", func(t *testing.T) { leavesNothingLoaded(t, g) })
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
		guards = append(guards, guard.GetId())
		t.Logf("%s: %d of %q", guard.GetId(), len(guard.GetEvidence()), guard.GetEvidence()[0])
	}
	if diff := cmp.Diff(want.guards, guards); diff != "" {
		t.Errorf("guards differ (-want +got):\n%s", diff)
	}
	if exit != want.exit {
		t.Errorf("exit code %d, want %d", exit, want.exit)
	}
	again, _ := planOn(t, g, want.target)
	if !slices.Equal(plan.GetDigest(), again.GetDigest()) {
		t.Error("two plans of an unchanged node have different digests")
	}
	if want.exit == 3 {
		applied(t, g, want.target, plan)
	}
}

// applied does the plan by its digest. Afterwards there is nothing to do, by the agent and by the native tools.
func applied(t *testing.T, g *lab.Guest, target string, plan *offrampv1.Plan) {
	t.Helper()
	var result lab.Result
	var err error
	// A stand-in for kube-proxy that does not answer in time on a busy machine is an answer of its own, 4.
	for range 5 {
		result, err = g.Run(t.Context(), agent, "cleanup", "apply", "--target", target, "--plan", hex.EncodeToString(plan.GetDigest())[:12])
		if err != nil || result.ExitCode != 4 {
			break
		}
	}
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("apply: %v, exit code %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	if again, exit := planOn(t, g, target); exit != 0 || len(again.GetOperations()) > 0 {
		t.Errorf("after apply: exit code %d, %d operations", exit, len(again.GetOperations()))
	}
	for what, command := range map[string]string{
		"virtual servers": "ipvsadm -Sn", "ipsets": "ipset list -n", "the link": "ip -o link | grep kube-ipvs0 || true",
		"ipvs mode's rules": "(iptables-nft-save; ip6tables-nft-save) | grep -e KUBE-IPVS -e match-set -e 'KUBE-NODE-PORT ' -e KUBE-LOAD-BALANCER || true",
		"routes on lo":      "ip -6 route show table local dev lo proto 207",
	} {
		if left := output(t, g, command); left != "" {
			t.Errorf("%s are left:\n%s", what, left)
		}
	}
	if kept := output(t, g, "iptables-nft-save -t filter | grep -c KUBE-FIREWALL"); kept != "4\n" {
		t.Errorf("KUBE-FIREWALL with its jumps and its rule: %s lines, want 4", kept)
	}
	if journal := output(t, g, agent+" cleanup journal && "+agent+" cleanup backups"); !strings.Contains(journal, "apply "+target) {
		t.Errorf("the journal says %s", journal)
	}
}

func output(t *testing.T, g *lab.Guest, command string) string {
	t.Helper()
	result, err := g.Run(t.Context(), "sh", "-c", command)
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("%s: %v, exit code %d: %s%s", command, err, result.ExitCode, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// leavesNothingLoaded plans in a guest where nothing was ever asked for: it stays so.
func leavesNothingLoaded(t *testing.T, g *lab.Guest) {
	t.Helper()
	const traces = "cut -d' ' -f1 /proc/modules | sort; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>&1 || true"
	before := output(t, g, traces)
	for _, target := range []string{"nftables", "iptables", "none", "ipvs"} {
		if plan, exit := planOn(t, g, target); exit != 0 || len(plan.GetOperations()) > 0 {
			t.Errorf("%s: exit code %d, guards %v", target, exit, plan.GetGuards())
		}
	}
	if diff := cmp.Diff(before, output(t, g, traces)); diff != "" {
		t.Errorf("planning left traces (-before +after):\n%s", diff)
	}
}

func planOn(t *testing.T, g *lab.Guest, target string, flags ...string) (*offrampv1.Plan, int) {
	t.Helper()
	result, err := g.Run(t.Context(), append([]string{agent, "cleanup", "plan", "--target", target, "-o", "json"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	plan := &offrampv1.Plan{}
	if err := protojson.Unmarshal([]byte(result.Stdout), plan); err != nil {
		t.Fatalf("%v: exit code %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	return plan, result.ExitCode
}
