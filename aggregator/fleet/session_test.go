package fleet

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestReconnectIsToldWhatIsKnown(t *testing.T) {
	s, _ := newStore(t)
	session, _, known := join(s, "a")
	if len(known) != 0 {
		t.Fatalf("known of a new node: %v", known)
	}
	section := kernelSection(t, 6, "6.1.0")
	report(t, session, section, setsSection(t, 0))
	session.Leave()
	_, _, known = join(s, "a")
	want := facts.Sum(section.GetStable())
	if len(known) != 2 || known[0].GetKind() != kernel || facts.Digest(known[0].GetDigest()) != want {
		t.Errorf("known %v, want the kernel's %x first", known, want)
	}
}

func TestBadReportChangesNothing(t *testing.T) {
	million := uint64(10_000_000)
	for name, bad := range map[string]*v1.SectionReport{
		"10 million sets": setsSection(t, million),
		"garbage":         {Kind: sets, Stable: []byte{0xff, 0xff}},
		"no kind":         {Stable: []byte{8, 1}},
		"twice":           kernelSection(t, 6, "6.12.0"),
		"volatile":        {Kind: sets, Stable: setsSection(t, 2).GetStable(), Volatile: syncs(1, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			session, _, _ := join(s, "a")
			report(t, session, kernelSection(t, 6, "6.1.0"))
			err := session.Report(&v1.Report{Sections: []*v1.SectionReport{kernelSection(t, 5, "5.10.0"), bad}})
			if err == nil {
				t.Fatal("it was taken")
			}
			if got := s.Summary(nftables, "a"); got.GetKernelRelease() != "6.1.0" || got.GetInventory().GetIpsets() != 0 {
				t.Errorf("it changed the node: %v", got)
			}
			if s.sections.size() != 1 {
				t.Errorf("%d sections are kept, want 1", s.sections.size())
			}
		})
	}
}

func TestSectionOfTheFutureIsSkipped(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), &v1.SectionReport{Kind: 77, Stable: []byte("whatever")})
	if err := session.Heartbeat(&v1.Heartbeat{Sections: []*v1.SectionHeartbeat{{Kind: 77}}}); err != nil {
		t.Errorf("heartbeat: %v", err)
	}
	session.Leave()
	if _, _, known := join(s, "a"); len(known) != 1 {
		t.Errorf("known %v", known)
	}
}

func TestNewestHelloOwnsTheNode(t *testing.T) {
	s, _ := newStore(t)
	first, firstLink, _ := join(s, "a")
	report(t, first, kernelSection(t, 6, "6.1.0"))
	second, secondLink, _ := join(s, "a")
	if !errors.Is(firstLink.cause, ErrReplaced) || secondLink.cause != nil {
		t.Fatalf("closed: %v, %v", firstLink.cause, secondLink.cause)
	}
	if err := first.Report(&v1.Report{Sections: []*v1.SectionReport{kernelSection(t, 5, "5.10.0")}}); !errors.Is(err, ErrReplaced) {
		t.Errorf("late report: %v", err)
	}
	if err := first.Heartbeat(&v1.Heartbeat{}); !errors.Is(err, ErrReplaced) {
		t.Errorf("late heartbeat: %v", err)
	}
	first.Leave()
	got := s.Summary(nftables, "a")
	if got.GetKernelRelease() != "6.1.0" || !got.GetConnected() || s.Link("a") != Link(secondLink) {
		t.Errorf("the old stream changed the node: %v", got)
	}
	second.Leave()
	if s.Summary(nftables, "a").GetConnected() || s.Link("a") != nil {
		t.Error("still connected")
	}
}

func TestHeartbeatBeforeReport(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	if err := session.Heartbeat(&v1.Heartbeat{}); !errors.Is(err, ErrOutOfOrder) {
		t.Errorf("got %v", err)
	}
}

func TestHeartbeatIsJudged(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"))
	for _, bad := range []*v1.SectionHeartbeat{{}, {Kind: kernel, Volatile: syncs(1, 1)}} {
		if err := session.Heartbeat(&v1.Heartbeat{Sections: []*v1.SectionHeartbeat{bad}}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestHeartbeatCarriesVolatileParts(t *testing.T) {
	s, c := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), proxySection(t))
	if got := s.Summary(nftables, "a").GetAssessment().GetFindings(); len(got) != 0 {
		t.Fatalf("findings %v", got)
	}
	beat := &v1.Heartbeat{
		Now:      timestamppb.New(c.Now().Add(24 * time.Hour)),
		Sections: []*v1.SectionHeartbeat{{Kind: proxy, Volatile: syncs(3, 99)}, {Kind: sets, Volatile: &v1.SectionVolatile{}}},
	}
	if err := session.Heartbeat(beat); err != nil {
		t.Fatal(err)
	}
	summary, node := s.Node(nftables, "a")
	if len(summary.GetAssessment().GetFindings()) != 1 || summary.GetClockSkew().AsDuration() != 24*time.Hour {
		t.Errorf("summary %v", summary)
	}
	if got := facts.Find(node, proxy).GetVolatile(); got.GetReadAt().GetSeconds() != 99 || facts.Find(node, sets) != nil {
		t.Errorf("volatile %v", got)
	}
}

// Only the aggregator's clock says whether a node is silent, whatever the node's own clock shows.
func TestSilence(t *testing.T) {
	s, c := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), setsSection(t, 3))
	inFuture := &v1.Heartbeat{Now: timestamppb.New(c.Now().Add(48 * time.Hour))}
	if err := session.Heartbeat(inFuture); err != nil {
		t.Fatal(err)
	}
	c.advance(3 * time.Minute)
	if got := s.Summary(nftables, "a").GetAssessment(); got.GetReady() != ready {
		t.Errorf("after exactly three intervals: %v", got)
	}
	c.advance(time.Second)
	got := s.Summary(nftables, "a").GetAssessment()
	if got.GetReady() != unsure || got.GetVerify() != unsure || got.GetPhase() != v1.Phase_PHASE_SILENT || got.GetLeftovers().GetIpsets() != 3 {
		t.Errorf("silent: %v", got)
	}
	answer := s.Readiness(nftables, Filter{}, "")
	if answer.GetSilent() != 1 || answer.GetUnknown() != 1 || answer.GetReady() != 0 || strings.Join(answer.GetSilentSamples(), " ") != "a" {
		t.Errorf("readiness %v", answer)
	}
	// A day behind is no more a reason to be silent.
	if err := session.Heartbeat(&v1.Heartbeat{Now: timestamppb.New(c.Now().Add(-24 * time.Hour))}); err != nil {
		t.Fatal(err)
	}
	if got := s.Summary(nftables, "a").GetAssessment(); got.GetReady() != ready {
		t.Errorf("back again: %v", got)
	}
}

// An agent that connects over and over without ever reporting vouches for nothing.
func TestHelloAloneIsNoSignOfLife(t *testing.T) {
	s, c := newStore(t)
	session, _, _ := join(s, "a")
	if got := s.Summary(nftables, "a"); got.GetAssessment().GetReady() != unsure || got.GetLastSeen() != nil {
		t.Errorf("before the first report: %v", got)
	}
	report(t, session, kernelSection(t, 6, "6.1.0"))
	c.advance(10 * time.Minute)
	session, _, _ = join(s, "a")
	if got := s.Summary(nftables, "a").GetAssessment().GetPhase(); got != v1.Phase_PHASE_SILENT {
		t.Errorf("after Hello: %v", got)
	}
	report(t, session)
	if got := s.Summary(nftables, "a").GetAssessment(); got.GetReady() != ready {
		t.Errorf("after an empty report: %v", got)
	}
}

func TestForgetting(t *testing.T) {
	s, c := newStore(t)
	stays, _, _ := join(s, "stays")
	report(t, stays, kernelSection(t, 6, "6.1.0"))
	goes, _, _ := join(s, "goes")
	report(t, goes, kernelSection(t, 5, "5.10.0"), setsSection(t, 1))
	never, _, _ := join(s, "never-reports")
	goes.Leave()
	never.Leave()
	c.advance(24 * time.Hour)
	s.Sweep()
	if got := s.Readiness(nftables, Filter{}, "").GetNodes(); got != 3 {
		t.Fatalf("%d nodes after exactly a day", got)
	}
	c.advance(time.Second)
	s.Sweep()
	if s.Summary(nftables, "goes") != nil || s.Summary(nftables, "never-reports") != nil || s.Summary(nftables, "stays") == nil {
		t.Error("the wrong nodes were forgotten")
	}
	if s.sections.size() != 1 || s.assessments.size() != 1 || s.profiles.size() != 1 {
		t.Errorf("kept: %d sections, %d assessments, %d profiles", s.sections.size(), s.assessments.size(), s.profiles.size())
	}
}
