package readiness_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	info    = offrampv1.Severity_SEVERITY_INFO
	warning = offrampv1.Severity_SEVERITY_WARNING
	blocker = offrampv1.Severity_SEVERITY_BLOCKER
)

// answer is what a rule is expected to say.
type answer struct {
	// severity is unspecified when the rule is to say nothing.
	severity  offrampv1.Severity
	undecided bool
	// unread: it cannot tell for want of a section, and section-unreadable says so in its stead.
	unread bool
}

// ruleCase spoils a clean node of a mode and says what a rule then answers for a target.
type ruleCase struct {
	rule, name string
	mode       offrampv1.ProxyMode
	target     offrampv1.Target
	spoil      func(*testNode)
	want       answer
}

func cannotRead(kind offrampv1.SectionKind) func(*testNode) {
	return func(n *testNode) { n.unreadable[kind] = true }
}

func asIs(*testNode) {}

func says(severity offrampv1.Severity) answer { return answer{severity: severity} }

var (
	silent  = answer{}
	open    = answer{severity: warning, undecided: true}
	notRead = answer{unread: true}
)

// every rule fires, keeps quiet and cannot tell in these cases.
func allRuleCases() []ruleCase {
	var cases []ruleCase
	for _, group := range [][]ruleCase{
		kernelCases(), modeCases(), disagreeCases(), syncCases(), leftoverCases(), sysctlCases(), foreignCases(),
		attributionCases(), readingCases(), hostCases(), trafficCases(), configCases(),
	} {
		cases = append(cases, group...)
	}
	return cases
}

func TestRules(t *testing.T) {
	for _, c := range allRuleCases() {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			n := clean(c.mode)
			c.spoil(n)
			checkAnswer(t, assess(n, c.target), c.rule, c.want)
		})
	}
}

func checkAnswer(t *testing.T, got *offrampv1.Assessment, rule string, want answer) {
	t.Helper()
	finding := find(got, rule)
	if want.severity == offrampv1.Severity_SEVERITY_UNSPECIFIED {
		if finding != nil {
			t.Errorf("it says %v", finding)
		}
		unread := find(got, "section-unreadable")
		if want.unread && unread == nil {
			t.Error("nothing says that a section could not be read")
		}
		return
	}
	if finding == nil {
		t.Fatalf("it says nothing; findings: %v", got.GetFindings())
	}
	if finding.GetSeverity() != want.severity || finding.GetUndecided() != want.undecided {
		t.Errorf("it says %v, undecided %v; want %v, %v", finding.GetSeverity(), finding.GetUndecided(), want.severity, want.undecided)
	}
	if len(finding.GetEvidence()) == 0 || finding.GetTitle() == "" || finding.GetSource() == "" {
		t.Errorf("finding without evidence, title or source: %v", finding)
	}
	if finding.GetSeverity() > info && finding.GetRemedy() == "" {
		t.Errorf("finding without a remedy: %v", finding)
	}
}

func TestEveryRuleIsTestedInEveryWay(t *testing.T) {
	type ways struct{ fires, quiet, cannotTell bool }
	seen := map[string]ways{}
	for _, c := range allRuleCases() {
		way := seen[c.rule]
		cannot := c.want.undecided || c.want.unread
		way.cannotTell = way.cannotTell || cannot
		way.fires = way.fires || (c.want.severity != 0 && !c.want.undecided)
		way.quiet = way.quiet || (c.want.severity == 0 && !cannot)
		seen[c.rule] = way
	}
	rules := readiness.Rules()
	if len(rules) < 15 {
		t.Fatalf("only %d rules", len(rules))
	}
	for _, rule := range rules {
		// What is compared with the Services has its own test.
		if !rule.OfNode() || strings.HasPrefix(rule.ID, "unexplained-") {
			continue
		}
		way := seen[rule.ID]
		// These two speak of what is not known: to fire and not to be able to tell is one for them.
		aboutUnknown := rule.ID == "running-mode-unknown" || rule.ID == "unattributed-objects" || rule.ID == "unattributed-virtual-servers"
		if (!way.fires && !aboutUnknown) || !way.quiet || !way.cannotTell {
			t.Errorf("%s is not tested in every way: %+v", rule.ID, way)
		}
	}
	for id := range seen {
		if !hasRule(rules, id) {
			t.Errorf("a case names the rule %s, which is none", id)
		}
	}
}

func hasRule(rules []readiness.Rule, id string) bool {
	for _, rule := range rules {
		if rule.ID == id {
			return true
		}
	}
	return false
}

func TestRulesAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range readiness.Rules() {
		if rule.ID == "" || rule.Title == "" || rule.Source == "" || rule.Scope == 0 || seen[rule.ID] {
			t.Errorf("rule %+v lacks something, or its id is taken", rule.ID)
		}
		seen[rule.ID] = true
	}
}
