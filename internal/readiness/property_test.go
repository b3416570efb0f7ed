package readiness_test

import (
	"math/rand/v2"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// rank orders verdicts: the higher, the readier.
func rank(verdict offrampv1.Verdict) int {
	switch verdict {
	case offrampv1.Verdict_VERDICT_READY:
		return 2
	case offrampv1.Verdict_VERDICT_UNKNOWN:
		return 1
	default:
		return 0
	}
}

// randomNode spoils a clean node in up to three of the ways that the rules are tested with.
func randomNode(random *rand.Rand, cases []ruleCase) *testNode {
	modes := []offrampv1.ProxyMode{iptablesMode, ipvsMode, nftablesMode, noMode, unknownMode}
	n := clean(modes[random.IntN(len(modes))])
	for range random.IntN(4) {
		spoil := cases[random.IntN(len(cases))].spoil
		func() {
			// Some ways need a mode that this node does not have (a backend that is not there): those do nothing.
			defer func() { _ = recover() }()
			spoil(n)
		}()
	}
	return n
}

// forRandomNodes checks a property on many nodes and every target. The seed is fixed, so that a failure comes back.
func forRandomNodes(t *testing.T, property func(*rand.Rand, *offrampv1.NodeFacts, *offrampv1.Assessment)) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	cases := allRuleCases()
	ready := 0
	for range 800 {
		facts := randomNode(random, cases).facts()
		for _, target := range []offrampv1.Target{toNFTables, toIPTables, toNone, toIPVS} {
			assessment := readiness.Assess(facts, target)
			property(random, facts, assessment)
			ready += rank(assessment.GetVerify()) / 2
		}
		if t.Failed() {
			return
		}
	}
	if ready < 100 {
		t.Errorf("only %d of the nodes were ready: the property was hardly tried", ready)
	}
}

func TestOrderOfSectionsDoesNotMatter(t *testing.T) {
	forRandomNodes(t, func(random *rand.Rand, facts *offrampv1.NodeFacts, want *offrampv1.Assessment) {
		shuffled := proto.CloneOf(facts)
		random.Shuffle(len(shuffled.Sections), func(i, j int) {
			shuffled.Sections[i], shuffled.Sections[j] = shuffled.Sections[j], shuffled.Sections[i]
		})
		if diff := cmp.Diff(want, readiness.Assess(shuffled, want.GetTarget()), protocmp.Transform()); diff != "" {
			t.Errorf("another order, another answer:\n%s", diff)
		}
	})
}

func TestWhatIsNotReadNeverMakesReady(t *testing.T) {
	forRandomNodes(t, func(random *rand.Rand, facts *offrampv1.NodeFacts, before *offrampv1.Assessment) {
		blinded := proto.CloneOf(facts)
		i := random.IntN(len(blinded.Sections))
		if random.IntN(2) == 0 {
			blinded.Sections = append(blinded.Sections[:i:i], blinded.Sections[i+1:]...)
		} else {
			blinded.Sections[i].Stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_INCONSISTENT}
		}
		after := readiness.Assess(blinded, before.GetTarget())
		becameReady := after.GetReady() == yes && before.GetReady() != yes
		if becameReady || (after.GetVerify() == yes && before.GetVerify() != yes) {
			t.Errorf("without section %v a node became ready:\nbefore %v\nafter %v", facts.GetSections()[i].GetKind(), before, after)
		}
	})
}

func TestABlockerNeverMakesReadier(t *testing.T) {
	forRandomNodes(t, func(_ *rand.Rand, facts *offrampv1.NodeFacts, before *offrampv1.Assessment) {
		worse := proto.CloneOf(facts)
		for _, section := range worse.GetSections() {
			if now := section.GetVolatile().GetKubeProxy(); now != nil {
				now.HealthStatus = 503
			}
		}
		after := readiness.Assess(worse, before.GetTarget())
		if rank(after.GetReady()) > rank(before.GetReady()) || rank(after.GetVerify()) > rank(before.GetVerify()) {
			t.Errorf("a sick kube-proxy made a node readier:\nbefore %v\nafter %v", before, after)
		}
	})
}

func TestFindingsAreSortedAndBounded(t *testing.T) {
	forRandomNodes(t, func(_ *rand.Rand, _ *offrampv1.NodeFacts, got *offrampv1.Assessment) {
		findings := got.GetFindings()
		for i, finding := range findings {
			if len(finding.GetEvidence()) > 20 {
				t.Errorf("%s has %d pieces of evidence", finding.GetId(), len(finding.GetEvidence()))
			}
			if i == 0 {
				continue
			}
			last := findings[i-1]
			if last.GetSeverity() < finding.GetSeverity() ||
				(last.GetSeverity() == finding.GetSeverity() && last.GetId() >= finding.GetId()) {
				t.Errorf("%s stands before %s", last.GetId(), finding.GetId())
			}
		}
	})
}

func TestFactsStayAsTheyAre(t *testing.T) {
	forRandomNodes(t, func(_ *rand.Rand, facts *offrampv1.NodeFacts, got *offrampv1.Assessment) {
		before := proto.CloneOf(facts)
		readiness.Assess(facts, got.GetTarget())
		if !proto.Equal(before, facts) {
			t.Error("judging changed the facts")
		}
	})
}

// What comes over the wire can be anything.
func FuzzAssess(f *testing.F) {
	for _, mode := range []offrampv1.ProxyMode{ipvsMode, nftablesMode, unknownMode} {
		encoded, err := proto.Marshal(clean(mode).facts())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(encoded, int32(1))
	}
	f.Fuzz(func(t *testing.T, encoded []byte, target int32) {
		facts := &offrampv1.NodeFacts{}
		if proto.Unmarshal(encoded, facts) != nil {
			return
		}
		got := readiness.Assess(facts, offrampv1.Target(target))
		if got.GetReady() == 0 || got.GetVerify() == 0 || got.GetPhase() == 0 || got.GetLeftovers() == nil {
			t.Errorf("incomplete: %v", got)
		}
		if len(facts.GetSections()) == 0 && (got.GetReady() == yes || got.GetVerify() == yes) {
			t.Error("a node that said nothing is ready")
		}
	})
}
