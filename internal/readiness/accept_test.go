package readiness_test

import (
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestAcceptedFindingsWeighNothingAndStay(t *testing.T) {
	word := &offrampv1.Acceptance{Reason: "keepalived moves with us", Author: "jo"}
	n := clean(ipvsMode)
	n.addServers("foreign:unidentified", 1)
	before := assess(n, toNFTables)
	after := readiness.Accept(before, map[string]*offrampv1.Acceptance{"foreign-virtual-servers": word})
	if before.GetReady() != blocked || find(before, "foreign-virtual-servers").GetAccepted() != nil {
		t.Errorf("before: %v", before)
	}
	if after.GetReady() != yes || find(after, "foreign-virtual-servers").GetAccepted().GetAuthor() != "jo" {
		t.Errorf("after: %v", after)
	}
	if after.GetVerify() != blocked {
		t.Errorf("verify without the mode: %v", after.GetVerify())
	}
	if same := readiness.Accept(before, map[string]*offrampv1.Acceptance{"kernel-too-old": word}); same != before {
		t.Error("something else was accepted, and the assessment is another")
	}
	if unchanged := readiness.Accept(before, nil); unchanged != before {
		t.Error("nothing was accepted, and the assessment is another")
	}
}

// Accepting nothing that is there gives the same verdicts as judging: the two ways of adding up must not drift apart.
func TestAcceptAddsUpAsAssessDoes(t *testing.T) {
	for _, c := range allRuleCases() {
		n := clean(c.mode)
		c.spoil(n)
		before := assess(n, c.target)
		before.Findings = append(before.Findings, &offrampv1.Finding{Id: "extra", Severity: info})
		after := readiness.Accept(before, map[string]*offrampv1.Acceptance{"extra": {Author: "jo"}})
		if after.GetReady() != before.GetReady() || after.GetVerify() != before.GetVerify() {
			t.Errorf("%s/%s: %v %v, before %v %v", c.rule, c.name, after.GetReady(), after.GetVerify(), before.GetReady(), before.GetVerify())
		}
	}
}
