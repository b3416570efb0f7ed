package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// leftSet is a node in nftables mode, in sync, on which one ipset was left; dirty is false where nothing was.
func leftSet(dirty bool) (*offrampv1.NodeFacts, *inventory.Node) {
	node := &offrampv1.NodeFacts{Node: "worker-1"}
	for kind := range offrampv1.SectionKind_name {
		if kind != 0 {
			node.Sections = append(node.Sections, &offrampv1.Section{Kind: offrampv1.SectionKind(kind), Stable: &offrampv1.SectionStable{
				State: offrampv1.SectionState_SECTION_STATE_ABSENT}})
		}
	}
	fill := func(kind offrampv1.SectionKind, stable *offrampv1.SectionStable, volatile *offrampv1.SectionVolatile) {
		stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		at := slices.IndexFunc(node.Sections, func(s *offrampv1.Section) bool { return s.GetKind() == kind })
		node.Sections[at] = &offrampv1.Section{Kind: kind, Stable: stable, Volatile: volatile}
	}
	fill(offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{
		KubeProxy: &offrampv1.KubeProxyFacts{RunningMode: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}}},
		&offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: &offrampv1.KubeProxyVolatile{
			HealthStatus: 200, Syncs: []*offrampv1.FamilySync{{LastSync: timestamppb.New(time.Unix(1800000000, 0))}}}}})
	fill(offrampv1.SectionKind_SECTION_KIND_NFTABLES, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Nftables{
		Nftables: &offrampv1.NftablesFacts{Owners: []*offrampv1.OwnerCount{{Owner: "kube-proxy/nftables", Count: 1}}}}}, nil)
	exact := &inventory.Node{BootID: "boot-1", Tables: []inventory.Table{{Table: kubeproxy.Table{Family: "ip", Name: "kube-proxy"}}}}
	if dirty {
		exact.Sets = []inventory.Set{{Set: kubeproxy.Set{Name: "KUBE-6-CLUSTER-IP", Type: "hash:ip,port", Family: kubeproxy.IPv6}, Entries: 2}}
	}
	return node, exact
}

// fakeExecutor notes what it was asked to do, and does it all.
type fakeExecutor struct {
	found   []*offrampv1.GuardFinding
	request *cleanup.Request
	dir     string

	// applied is called when it was done.
	applied func()

	restored   *cleanup.RestoreResult
	restoreErr error
	restore    *cleanup.RestoreRequest
}

func (f *fakeExecutor) Restore(_ context.Context, request cleanup.RestoreRequest) (*cleanup.RestoreResult, error) {
	f.restore = &request
	return f.restored, f.restoreErr
}

func (f *fakeExecutor) Guards(context.Context, *offrampv1.Plan, *cleanup.Reading) []*offrampv1.GuardFinding {
	return f.found
}

func (f *fakeExecutor) Apply(ctx context.Context, request cleanup.Request) (*offrampv1.CleanupResult, error) {
	f.request = &request
	plan, _, err := request.Plan(ctx)
	if err != nil {
		return nil, err
	}
	if f.applied != nil {
		f.applied()
	}
	result := &offrampv1.CleanupResult{Node: plan.GetNode(), PlanDigest: plan.GetDigest(), BackupId: "b1"}
	for range plan.GetOperations() {
		result.Operations = append(result.Operations, &offrampv1.OperationResult{Outcome: offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE})
	}
	return result, nil
}

func cleaningStage(dirty bool) *stage {
	s := newStage()
	s.facts, s.inventory = leftSet(dirty)
	s.executor = &fakeExecutor{}
	return s
}

func digestOf(t *testing.T, printed string) string {
	t.Helper()
	found := regexp.MustCompile(`digest: ([0-9a-f]{64})`).FindStringSubmatch(printed)
	if found == nil {
		t.Fatalf("no digest in %s", printed)
	}
	return found[1]
}

func TestCleanupPlan(t *testing.T) {
	cleaningStage(false).call(t.Context(), nil, "cleanup", "plan").want(t, 0, "nothing to do", "")
	s := cleaningStage(true)
	got := s.call(t.Context(), nil, "cleanup", "plan")
	got.want(t, 3, "destroy ipset KUBE-6-CLUSTER-IP, hash:ip,port with 2 entries", "")
	got.want(t, 3, "cleanup apply --target nftables --plan "+digestOf(t, got.stdout)[:12], "")
	s.call(t.Context(), nil, "cleanup", "plan", "--target", "iptables").want(t, 2, "mode-is-not-target", "")
	s.call(t.Context(), nil, "cleanup", "plan", "-o", "yaml").want(t, 3, "\ndigest: ", "")
	var plan offrampv1.Plan
	if err := protojson.Unmarshal([]byte(s.call(t.Context(), nil, "cleanup", "plan", "-o", "json").stdout), &plan); err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(plan.GetDigest()) != digestOf(t, got.stdout) || plan.GetNode() != "worker-1" {
		t.Errorf("the plan as json is another one: %v", &plan)
	}
	if s.executor.request != nil {
		t.Error("a plan was applied")
	}
}

// What the agent that ran remembers of ipvs.excludeCIDRs counts; where that cannot be told, nothing is planned.
func TestCleanupRecalls(t *testing.T) {
	s := cleaningStage(true)
	s.excluded = []string{"10.9.0.0/16"}
	s.call(t.Context(), nil, "cleanup", "plan", "--state-dir", "/x").want(t, 3, "", "")
	if !slices.Equal(s.config.ExcludeCIDRs, s.excluded) || s.recalled != "/x" {
		t.Errorf("from %q recalled, the reading is told %q", s.recalled, s.config.ExcludeCIDRs)
	}
	s.recallErr = errors.New("history.json is garbled")
	for _, action := range [][]string{{"plan"}, {"apply", "--yes"}} {
		s.call(t.Context(), nil, append([]string{"cleanup"}, action...)...).want(t, 1, "", "history.json is garbled")
	}
}

// Guards of doing stand in a plan too; and what could not be read is an answer of its own.
func TestCleanupPlanGuards(t *testing.T) {
	s := cleaningStage(true)
	s.executor.found = []*offrampv1.GuardFinding{cleanup.Finding(cleanup.GuardNoDurableStorage, "tmpfs")}
	s.call(t.Context(), nil, "cleanup", "plan").want(t, 2, "no-durable-storage", "")
	s = cleaningStage(false)
	s.inventory.Problems = map[offrampv1.SectionKind]string{offrampv1.SectionKind_SECTION_KIND_IPSETS: "operation not permitted"}
	s.call(t.Context(), nil, "cleanup", "plan").want(t, 4, "section-unread", "")
}

func TestCleanupApply(t *testing.T) {
	s := cleaningStage(true)
	digest := digestOf(t, s.call(t.Context(), nil, "cleanup", "plan").stdout)
	s.call(t.Context(), nil, "cleanup", "apply", "--plan", digest[:12], "--state-dir", "/elsewhere", "--wait-drained", "1m", "--close-sockets").
		want(t, 0, "done: 1", "")
	request := s.executor.request
	if request == nil || hex.EncodeToString(request.Digest) != digest || s.executor.dir != "/elsewhere" ||
		request.Wait != time.Minute || !request.CloseSockets {
		t.Errorf("asked for %+v in %s", request, s.executor.dir)
	}
	s.call(t.Context(), nil, "cleanup", "apply", "--yes").want(t, 0, "destroy ipset KUBE-6-CLUSTER-IP", "")
	got := s.call(t.Context(), nil, "cleanup", "apply", "--yes", "-o", "json")
	var result offrampv1.CleanupResult
	if err := protojson.Unmarshal([]byte(got.stdout), &result); err != nil || result.GetBackupId() != "b1" {
		t.Errorf("%v: %s", err, got.stdout)
	}
}

// A plan that is not the one that was asked for, and one with a guard in its way, never reach the executor.
func TestCleanupApplyRefuses(t *testing.T) {
	s := cleaningStage(true)
	s.call(t.Context(), nil, "cleanup", "apply", "--plan", strings.Repeat("ab", 8)).want(t, 2, "plan-changed", "")
	s.call(t.Context(), nil, "cleanup", "apply", "--yes", "--target", "none").want(t, 2, "refused, nothing was changed", "")
	cleaningStage(false).call(t.Context(), nil, "cleanup", "apply", "--yes").want(t, 0, "nothing to do", "")
	if s.executor.request != nil {
		t.Error("it was applied")
	}
}

// An overridden guard lets the plan through, and its reason travels.
func TestCleanupOverride(t *testing.T) {
	s := cleaningStage(true)
	for _, section := range s.facts.GetSections() {
		if section.GetKind() == offrampv1.SectionKind_SECTION_KIND_HOST {
			section.Stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_UNREADABLE}
		}
	}
	s.call(t.Context(), nil, "cleanup", "apply", "--yes").want(t, 4, "host-unread", "")
	s.call(t.Context(), nil, "cleanup", "apply", "--yes", "--override", "host-unread=looked myself").
		want(t, 0, "overridden: looked myself", "")
}

func TestCleanupMistakesExitWith1(t *testing.T) {
	for want, args := range map[string][]string{
		"which plan?":                 {"apply"},
		"give one of them":            {"apply", "--yes", "--plan", "abcdefabcdef"},
		"not the digest of a plan":    {"apply", "--plan", "abc"},
		`no guard "nobody"`:           {"plan", "--override", "nobody=x"},
		"cannot be overridden":        {"plan", "--override", "mode-is-not-target=x"},
		"needs a reason":              {"plan", "--override", "sockets-with-vip"},
		"--timeout must be longer":    {"plan", "--timeout", "0s"},
		"--wait-drained must not":     {"plan", "--wait-drained", "-1s"},
		"not reset where ipvs mode":   {"plan", "--target", "ipvs", "--reset-sysctls"},
		"takes no argument":           {"plan", "worker-1"},
		`unknown command "flush" for`: {"flush"},
	} {
		s := cleaningStage(true)
		s.call(t.Context(), nil, append([]string{"cleanup"}, args...)...).want(t, 1, "", want)
		if s.executor.request != nil {
			t.Errorf("%q: it was applied", args)
		}
	}
}

func TestCleanupRestore(t *testing.T) {
	s := cleaningStage(true)
	s.executor.restored = &cleanup.RestoreResult{ID: "b1", Running: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, Items: []cleanup.RestoreItem{
		{What: "ipset KUBE-6-CLUSTER-IP", Outcome: cleanup.Restored},
		{What: "link kube-ipvs0", Outcome: cleanup.NotAllowed, Why: "nftables runs"},
	}}
	got := s.call(t.Context(), nil, "cleanup", "restore", "b1", "--state-dir", "/elsewhere")
	got.want(t, 0, "link kube-ipvs0: not-allowed: nftables runs", "")
	got.want(t, 0, "restored: 1", "")
	if s.executor.restore.ID != "b1" || s.executor.dir != "/elsewhere" {
		t.Errorf("asked for %+v in %s", s.executor.restore, s.executor.dir)
	}
	plan, reading, err := s.executor.restore.Look(t.Context())
	if err != nil || plan.GetRunningMode() != offrampv1.ProxyMode_PROXY_MODE_NFTABLES || reading.Inventory != s.inventory {
		t.Errorf("a look gives %v, %v (%v)", plan, reading, err)
	}
	s.call(t.Context(), nil, "cleanup", "restore", "-o", "json").want(t, 0, `"outcome": "not-allowed"`, "")
	s.executor.restored.Items[0].Outcome = cleanup.Failed
	s.call(t.Context(), nil, "cleanup", "restore").want(t, 3, "failed: 1", "")
	s.call(t.Context(), nil, "cleanup", "restore", "a", "b").want(t, 1, "", "one ID of a backup at most")
}

func TestCleanupRestoreRefuses(t *testing.T) {
	for code, err := range map[int]error{2: cleanup.ErrRebooted, 4: cleanup.ErrModeUnknown, 1: cleanup.ErrBackup} {
		s := cleaningStage(true)
		s.executor.restoreErr = fmt.Errorf("b1: %w", err)
		s.call(t.Context(), nil, "cleanup", "restore").want(t, code, "", "offramp-agent: b1: "+err.Error())
	}
	s := cleaningStage(true)
	s.executor.restoreErr = cleanup.ErrLocked
	s.call(t.Context(), nil, "cleanup", "restore").want(t, 2, "", "another clean-up is running")
}
