package fleet

import (
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/internal/facts"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// readAt is a kube-proxy that says how it syncs, read at some second.
func readAt(second int64) *v1.SectionVolatile {
	said := syncs(0, 9)
	said.ReadAt, said.ReadTook = &timestamppb.Timestamp{Seconds: second}, durationpb.New(1)
	return said
}

func beats(sections ...*v1.SectionVolatile) *v1.Heartbeat {
	beat := &v1.Heartbeat{}
	for i, said := range sections {
		beat.Sections = append(beat.Sections, &v1.SectionHeartbeat{Kind: []v1.SectionKind{proxy, kernel}[i], Volatile: said})
	}
	return beat
}

// A heartbeat that says what the one before said is taken by a shorter way: what is stored must be the same as by the long one.
func TestHeartbeatsThatSayTheSame(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), proxySection(t))
	booted := &v1.SectionVolatile{ReadAt: &timestamppb.Timestamp{Seconds: 5}, Content: &v1.SectionVolatile_Kernel{
		Kernel: &v1.KernelVolatile{BootedAt: &timestamppb.Timestamp{Seconds: 4}},
	}}
	expect := func(when string, second int64, withBoot bool) {
		t.Helper()
		_, node := s.Node(nftables, "a")
		if got := facts.Find(node, proxy).GetVolatile(); got.GetReadAt().GetSeconds() != second || len(got.GetKubeProxy().GetSyncs()) != 1 {
			t.Errorf("%s: of kube-proxy %v, want it read at %d", when, got, second)
		}
		if got := facts.Find(node, kernel).GetVolatile().GetKernel().GetBootedAt(); (got != nil) != withBoot {
			t.Errorf("%s: booted at %v", when, got)
		}
	}
	take := func(beat *v1.Heartbeat) {
		t.Helper()
		if err := session.Heartbeat(beat); err != nil {
			t.Fatal(err)
		}
	}
	for second := int64(10); second < 14; second++ {
		take(beats(readAt(second)))
		expect("alone", second, false)
	}
	take(beats(readAt(20), booted))
	expect("with another section", 20, true)
	for second := int64(21); second < 24; second++ {
		take(beats(readAt(second)))
		expect("without it again", second, true)
	}
	if session.Heartbeat(beats(readAt(-1e15))) == nil {
		t.Error("a time before the year 1 was taken")
	}
	expect("after a heartbeat that was refused", 23, true)
}

// What a report says in between counts, also when the next heartbeat is like the last.
func TestAReportBetweenHeartbeatsThatSayTheSame(t *testing.T) {
	s, _ := newStore(t)
	session, _, _ := join(s, "a")
	report(t, session, kernelSection(t, 6, "6.1.0"), proxySection(t))
	findings := func() int { return len(s.Summary(nftables, "a").GetAssessment().GetFindings()) }
	behind := beats(syncs(3, 99))
	for range 2 {
		if err := session.Heartbeat(behind); err != nil || findings() != 1 {
			t.Fatalf("%d findings, %v", findings(), err)
		}
	}
	well := proxySection(t)
	well.Volatile = syncs(0, 100)
	report(t, session, well)
	if findings() != 0 {
		t.Fatalf("%d findings after a report that says that all is well", findings())
	}
	if err := session.Heartbeat(behind); err != nil || findings() != 1 {
		t.Errorf("%d findings after a heartbeat that says that it is not, %v", findings(), err)
	}
}

func BenchmarkHeartbeatThatSaysTheSame(b *testing.B) {
	s, _ := newStore(b)
	session := addNodes(b, s, 1)[0]
	for i := int64(0); b.Loop(); i++ {
		if err := session.Heartbeat(beats(readAt(i))); err != nil {
			b.Fatal(err)
		}
	}
}
