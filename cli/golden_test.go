package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/program"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

var update = flag.Bool("update", false, "write the golden files again; look at the difference before committing it")

func before(span time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon.Add(-span)) }

// story is a fleet in the middle of its move: one node on ipvs, one dirty, one done, one silent.
func story() *fakeFleet {
	answers := serviceAnswers(&offrampv1.ServiceSummary{Asked: 3, Answered: 2, SilentSamples: []string{"worker-4"}}, onIPVS("worker-1", 12),
		&offrampv1.NodeService{Node: "worker-3", RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, Entries: []*offrampv1.ServiceEntry{
			{Kind: "nftables entry", Text: "ip kube-proxy service-ips 10.96.7.7 . tcp . 80 : goto service-ABC", Mode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}}},
		&offrampv1.NodeService{Node: "worker-4", Error: "the node is not connected"})
	return &fakeFleet{
		readiness: storyReadiness(), nodes: storyNodes(), answers: answers,
		node: &offrampv1.GetNodeResponse{Summary: storyNodes()[1], Facts: &offrampv1.NodeFacts{Node: "worker-2", AgentVersion: "v1.0.0"}},
		changes: &offrampv1.ListChangesResponse{Incomplete: 1, IncompleteSamples: []string{"worker-4"}, Changes: []*offrampv1.Change{
			{At: before(time.Hour), Node: "worker-3", Kind: "clean-up", What: "130 artefacts removed"},
			{At: before(2 * time.Hour), Node: "worker-3", Kind: "mode", What: "ipvs -> nftables"}}},
		accepted: []*offrampv1.Acceptance{storyAcceptance()},
	}
}

func storyAcceptance() *offrampv1.Acceptance {
	return &offrampv1.Acceptance{Id: "a1b2c3d4", FindingId: "ipvs-sysctls-left", Selector: "pool=web", Reason: "harmless here, OPS-17", Author: "ada",
		At: before(time.Hour), Until: before(-30 * 24 * time.Hour)}
}

func storyNodes() []*offrampv1.NodeSummary {
	node := func(name string, mode offrampv1.ProxyMode, phase offrampv1.Phase, ready offrampv1.Verdict, sets uint64) *offrampv1.NodeSummary {
		return &offrampv1.NodeSummary{Node: name, Pool: "web", AgentVersion: "v1.0.0", KernelRelease: "6.1.0-49-amd64", OsPrettyName: "Debian GNU/Linux 12 (bookworm)",
			KubeProxyVersion: "v1.37.2", KubeletVersion: "v1.37.2", Connected: true, LastSeen: before(12 * time.Second), ClockSkew: durationpb.New(0),
			Assessment: &offrampv1.Assessment{Target: offrampv1.Target_TARGET_NFTABLES, RunningMode: mode, Phase: phase, Ready: ready, Leftovers: &offrampv1.Leftovers{Ipsets: sets}}}
	}
	const ready = offrampv1.Verdict_VERDICT_READY
	onIPVS := node("worker-1", offrampv1.ProxyMode_PROXY_MODE_IPVS, offrampv1.Phase_PHASE_ON_IPVS, offrampv1.Verdict_VERDICT_BLOCKED, 0)
	onIPVS.KernelRelease = "5.10.0-30-amd64"
	onIPVS.Assessment.Findings = []*offrampv1.Finding{{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Title: "The kernel is too old"}}
	dirty := node("worker-2", offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.Phase_PHASE_SWITCHED_DIRTY, ready, 34)
	done := node("worker-3", offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.Phase_PHASE_DONE, ready, 0)
	silent := node("worker-4", offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.Phase_PHASE_SILENT, offrampv1.Verdict_VERDICT_UNKNOWN, 0)
	silent.Connected, silent.LastSeen = false, before(3*time.Hour)
	return []*offrampv1.NodeSummary{onIPVS, dirty, done, silent}
}

func storyReadiness() *offrampv1.GetReadinessResponse {
	fleet := fleetOf(4, 2, 1, 1)
	fleet.Verdict, fleet.Silent, fleet.SilentSamples = offrampv1.Verdict_VERDICT_BLOCKED, 1, []string{"worker-4"}
	fleet.WithLeftovers, fleet.Leftovers = 1, &offrampv1.Leftovers{Ipsets: 34}
	for _, phase := range []offrampv1.Phase{offrampv1.Phase_PHASE_ON_IPVS, offrampv1.Phase_PHASE_SWITCHED_DIRTY, offrampv1.Phase_PHASE_DONE, offrampv1.Phase_PHASE_SILENT} {
		fleet.Phases = append(fleet.Phases, &offrampv1.PhaseCount{Phase: phase, Nodes: 1})
	}
	fleet.Pools = []*offrampv1.GroupCount{{Name: "web", Nodes: 4, Ready: 2, Blocked: 1, Unknown: 1, WithLeftovers: 1}}
	fleet.Findings = []*offrampv1.FindingCount{
		{Id: "kernel-too-old", Severity: offrampv1.Severity_SEVERITY_BLOCKER, Title: "The kernel is too old", Remedy: "Boot 5.13 or newer.", Nodes: 1, NodeSamples: []string{"worker-1"}},
		{Id: "ipvs-sysctls-left", Severity: offrampv1.Severity_SEVERITY_INFO, Title: "Kernel parameters of ipvs mode are left", Nodes: 2, Accepted: 2, NodeSamples: []string{"worker-2", "worker-3"}}}
	fleet.ClusterFindings = []*offrampv1.Finding{{Id: "ipvs-configured", Severity: offrampv1.Severity_SEVERITY_WARNING, Scope: offrampv1.Scope_SCOPE_CLUSTER,
		Title: "The cluster's configuration asks for ipvs mode", Evidence: []string{"kube-system/kube-proxy config.conf: mode ipvs"}, Remedy: "Change mode when the nodes are ready."}}
	fleet.Steps = []*offrampv1.Step{{Id: "clean-up", Title: "Clean these nodes, or drain and reboot them", Why: "What is left still takes traffic.",
		Commands: []string{"kubectl offramp cleanup NODE"}, Nodes: 1, NodeSamples: []string{"worker-2"}}}
	fleet.Upgrade = &offrampv1.UpgradeAnswer{Version: "1.40", Verdict: offrampv1.Verdict_VERDICT_BLOCKED, Reasons: []string{"1 nodes: on ipvs, with which kube-proxy 1.40 does not start (worker-1)"}}
	return fleet
}

// questions are all commands that ask the fleet and have formats, with the exit code that the story gives.
func questions() map[string]struct {
	args []string
	code int
} {
	type question = struct {
		args []string
		code int
	}
	return map[string]question{
		"status": {[]string{"status"}, 0}, "ready": {[]string{"ready"}, 2}, "next": {[]string{"next"}, 0}, "nodes": {[]string{"nodes"}, 0},
		"node": {[]string{"node", "worker-2"}, 0}, "leftovers": {[]string{"leftovers"}, 4}, "findings": {[]string{"findings"}, 0},
		"changes": {[]string{"changes", "--since", "24h"}, 4}, "history": {[]string{"history", "worker-3"}, 0}, "service": {[]string{"service", "default/web"}, 4},
		"accept-list": {[]string{"accept", "--list"}, 0}, "timeline": {[]string{"timeline"}, 0},
		"accept": {[]string{"accept", "ipvs-sysctls-left", "-l", "pool=web", "--reason", "harmless here, OPS-17", "--until", "2026-12-30"}, 0},
	}
}

// atNoon runs the program with its clock at noon.
func atNoon(t *testing.T, fleet *fakeFleet, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	environment := map[string]string{"OFFRAMP_AGGREGATOR": serve(t, fleet), "OFFRAMP_INSECURE_PLAINTEXT": "true"}
	lookup := func(name string) (string, bool) { value, found := environment[name]; return value, found }
	code := program.Run(t.Context(), newRoot(func() time.Time { return noon }), args, lookup, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// formats are what a command says that it can print, but for templates.
func formats(t *testing.T, args []string) []string {
	t.Helper()
	cmd, _, err := newRoot(time.Now).Find(args)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(offered(cmd), func(format string) bool { return strings.HasPrefix(format, pathWord) })
}

func offered(cmd *cobra.Command) []string {
	_, words, _ := strings.Cut(cmd.Flags().Lookup("output").Usage, "format of the output: ")
	words, _, _ = strings.Cut(words, " [$")
	return strings.Split(words, ", ")
}

// Every command in every format, word for word.
func TestGolden(t *testing.T) {
	used := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(questions())) {
		asked := questions()[name]
		for _, format := range formats(t, asked.args) {
			file := fmt.Sprintf("%s.%s", name, format)
			used[file] = true
			t.Run(file, func(t *testing.T) {
				got := atNoon(t, story(), append(slices.Clone(asked.args), "-o", format)...)
				got.want(t, asked.code, "", "")
				compareGolden(t, filepath.Join("testdata", file), got.stdout)
				if format == "text" {
					fitsColumns(t, got.stdout)
				}
			})
		}
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !used[file.Name()] {
			t.Errorf("testdata/%s belongs to no command", file.Name())
		}
	}
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
}

func fitsColumns(t *testing.T, text string) {
	t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 && !strings.HasPrefix(strings.TrimSpace(line), "$ ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}
