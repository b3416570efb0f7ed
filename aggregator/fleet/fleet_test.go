package fleet

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	nftables = v1.Target_TARGET_NFTABLES
	iptables = v1.Target_TARGET_IPTABLES
	kernel   = v1.SectionKind_SECTION_KIND_KERNEL
	sets     = v1.SectionKind_SECTION_KIND_IPSETS
	proxy    = v1.SectionKind_SECTION_KIND_KUBE_PROXY
	ready    = v1.Verdict_VERDICT_READY
	blocked  = v1.Verdict_VERDICT_BLOCKED
	unsure   = v1.Verdict_VERDICT_UNKNOWN
)

// clock is the aggregator's, moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rule stands in for readiness.Assess: a 5.10 kernel blocks nftables, sets are leftovers, a failed sync is a warning.
func rule(node *v1.NodeFacts, target v1.Target) *v1.Assessment {
	a := &v1.Assessment{Target: target, Ready: ready, Verify: ready, Phase: v1.Phase_PHASE_DONE, Leftovers: &v1.Leftovers{}}
	old := facts.Find(node, kernel).GetStable().GetKernel()
	if old.GetRelease() == "panic" {
		panic("a rule is broken")
	}
	if old.GetMajor() == 5 && target == nftables {
		a.Ready, a.Findings = blocked, append(a.Findings, &v1.Finding{Id: "kernel-too-old", Severity: v1.Severity_SEVERITY_BLOCKER, Title: "kernel too old"})
	}
	if count := facts.Find(node, sets).GetStable().GetIpsets().GetSets(); count > 0 {
		a.Leftovers.Ipsets, a.Phase, a.Verify = count, v1.Phase_PHASE_SWITCHED_DIRTY, blocked
	}
	for _, sync := range facts.Find(node, proxy).GetVolatile().GetKubeProxy().GetSyncs() {
		if sync.GetFailures() > 0 {
			a.Findings = append(a.Findings, &v1.Finding{Id: "sync-failed", Severity: v1.Severity_SEVERITY_WARNING})
		}
	}
	return a
}

func newStore(t testing.TB) (*Store, *clock) {
	t.Helper()
	c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	return New(Config{Assess: rule, Now: c.Now}), c
}

// testLink remembers why it was closed.
type testLink struct{ cause error }

func (l *testLink) Close(cause error) { l.cause = cause }

func join(s *Store, name string) (*Session, *testLink, []*v1.SectionDigest) {
	link := &testLink{}
	session, known := s.Join(&v1.Hello{Node: name, AgentVersion: "v0.1.0"}, link)
	return session, link, known
}

func kernelSection(t testing.TB, major uint32, release string) *v1.SectionReport {
	t.Helper()
	return encode(t, kernel, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_Kernel{
		Kernel: &v1.KernelFacts{Major: major, Release: release, OsPrettyName: "Debian"}}})
}

func setsSection(t testing.TB, count uint64) *v1.SectionReport {
	t.Helper()
	return encode(t, sets, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_Ipsets{
		Ipsets: &v1.IpsetsFacts{Sets: count}}})
}

func proxySection(t testing.TB) *v1.SectionReport {
	t.Helper()
	section := encode(t, proxy, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_KubeProxy{
		KubeProxy: &v1.KubeProxyFacts{Version: "v1.33.1"}}})
	section.Volatile = syncs(0, 1)
	return section
}

func syncs(failures uint64, readAt int64) *v1.SectionVolatile {
	return &v1.SectionVolatile{ReadAt: timestamppb.New(time.Unix(readAt, 0)), Content: &v1.SectionVolatile_KubeProxy{
		KubeProxy: &v1.KubeProxyVolatile{Syncs: []*v1.FamilySync{{Failures: failures}}}}}
}

func encode(t testing.TB, kind v1.SectionKind, stable *v1.SectionStable) *v1.SectionReport {
	t.Helper()
	encoded, _, err := facts.Encode(stable)
	if err != nil {
		t.Fatal(err)
	}
	return &v1.SectionReport{Kind: kind, Stable: encoded}
}

func report(t testing.TB, session *Session, sections ...*v1.SectionReport) {
	t.Helper()
	if err := session.Report(&v1.Report{Sections: sections}); err != nil {
		t.Fatal(err)
	}
}

// addNodes makes n nodes named node-0000 and on, all alike but for the boot id that makes every kernel section its own.
func addNodes(t testing.TB, s *Store, n int) []*Session {
	t.Helper()
	sessions := make([]*Session, n)
	for i := range n {
		sessions[i], _, _ = join(s, fmt.Sprintf("node-%06d", i))
		own := encode(t, kernel, &v1.SectionStable{State: v1.SectionState_SECTION_STATE_PRESENT, Content: &v1.SectionStable_Kernel{
			Kernel: &v1.KernelFacts{Major: 6, Release: "6.1.0", BootId: fmt.Sprint(i)}}})
		report(t, sessions[i], own, setsSection(t, 17), proxySection(t))
	}
	return sessions
}
