package readiness

import (
	"fmt"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Rule is one thing that can stand in a node's way, or that is to be known about it.
type Rule struct {
	// ID is stable, such as "kernel-too-old".
	ID string
	// Scope says what the finding is about.
	Scope offrampv1.Scope
	// Title is one line for people.
	Title string
	// Source is where the rule comes from: code of kube-proxy, a Kubernetes enhancement, something seen on a real node.
	Source string
	// Meaning says what goes wrong, for people who never heard of it; Remedy what to do about it, in general.
	Meaning, Remedy string
	// Severity says how heavy it weighs, for which target: "blocker for nftables; warning otherwise". "open" means that the
	// question stays open, and with it the verdict.
	Severity string
	// ReadyOnly: the finding bears on whether the node could go to the target, not on whether it is there.
	ReadyOnly bool

	// check is asked of nodes, checkCluster of the cluster; a rule may have either or both.
	check        func(*node, offrampv1.Target) outcome
	checkCluster func(*cluster, offrampv1.Target) outcome
}

// verdictOf is one of three answers of a rule.
type verdictOf uint8

const (
	quiet verdictOf = iota
	fires
	cannotTell
)

// outcome is what a rule says about a node for one target.
type outcome struct {
	verdict  verdictOf
	severity offrampv1.Severity
	// evidence is one fact each. A rule that cannot tell for want of a section gives none: section-unreadable says so.
	evidence []string
	remedy   string
}

func quietly() outcome { return outcome{verdict: quiet} }

// unread is the answer of a rule whose sections could not be read.
func unread() outcome { return outcome{verdict: cannotTell} }

func undecided(remedy string, evidence ...string) outcome {
	return outcome{verdict: cannotTell, severity: offrampv1.Severity_SEVERITY_WARNING, evidence: evidence, remedy: remedy}
}

func fire(severity offrampv1.Severity, remedy string, evidence ...string) outcome {
	return outcome{verdict: fires, severity: severity, evidence: evidence, remedy: remedy}
}

func block(remedy string, evidence ...string) outcome {
	return fire(offrampv1.Severity_SEVERITY_BLOCKER, remedy, evidence...)
}

func warn(remedy string, evidence ...string) outcome {
	return fire(offrampv1.Severity_SEVERITY_WARNING, remedy, evidence...)
}

func inform(remedy string, evidence ...string) outcome {
	return fire(offrampv1.Severity_SEVERITY_INFO, remedy, evidence...)
}

// and puts two answers to one question together: the worse one leads, and what either saw is kept.
func (o outcome) and(other outcome) outcome {
	if other.verdict == quiet {
		return o
	}
	if o.verdict == quiet {
		return other
	}
	if other.severity > o.severity {
		o, other = other, o
	}
	o.evidence = append(o.evidence, other.evidence...)
	return o
}

// maxEvidence bounds Finding.evidence, as fleet.proto says.
const maxEvidence = 20

// finding is the outcome as people get it, nil where there is nothing to say.
func (r Rule) finding(said outcome) *offrampv1.Finding {
	if said.verdict == quiet || (said.verdict == cannotTell && len(said.evidence) == 0) {
		return nil
	}
	return &offrampv1.Finding{
		Id: r.ID, Severity: said.severity, Scope: r.Scope, Title: r.Title, Source: r.Source,
		Evidence:  said.evidence[:min(len(said.evidence), maxEvidence)],
		Remedy:    orElse(said.remedy, r.Remedy),
		Undecided: said.verdict == cannotTell,
	}
}

// OfNode reports whether the rule is asked of nodes.
func (r Rule) OfNode() bool { return r.check != nil }

// OfCluster reports whether the rule is asked of the cluster's objects; some rules are asked of both.
func (r Rule) OfCluster() bool { return r.checkCluster != nil }

// Explanation is what there is to say of the rule, as Markdown that reads well on a terminal too.
func (r Rule) Explanation() string {
	about := "a node"
	switch {
	case r.OfNode() && r.OfCluster():
		about = "a node, and of the cluster's configuration"
	case r.OfCluster():
		about = "the cluster"
	}
	text := fmt.Sprintf("## %s\n\n%s.\n\n%s\n\n- What to do: %s\n- Weight: %s\n- Asked of: %s\n", r.ID, r.Title, r.Meaning, r.Remedy, r.Severity, about)
	if r.ReadyOnly {
		text += "- Bears on whether a node could go to the target (ready), not on whether it is there (verify).\n"
	}
	return text + "- Source: " + r.Source + "\n"
}

// Explain finds a rule by its id.
func Explain(id string) (Rule, bool) {
	for _, rule := range Rules() {
		if rule.ID == id {
			return rule, true
		}
	}
	return Rule{}, false
}
