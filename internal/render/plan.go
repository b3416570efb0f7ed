package render

import (
	"encoding/hex"
	"fmt"
	"io"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Plan writes what a clean-up would do, in its order, what it keeps and what stands in the way.
func Plan(w io.Writer, plan *offrampv1.Plan) error {
	return PlanThen(w, plan, "offramp-agent cleanup apply")
}

// PlanThen is Plan where another command applies it. An empty one leaves out how to go on.
func PlanThen(w io.Writer, plan *offrampv1.Plan, apply string) error {
	var p page
	p.line(0, "Clean-up of node %s for target %s: %s", orUnknown(plan.GetNode()), Word(plan.GetTarget()),
		orNothing(plan.GetOperations()))
	p.line(2, "running mode: %s", Word(plan.GetRunningMode()))
	p.line(2, "digest: %s", hex.EncodeToString(plan.GetDigest()))
	p.operations(plan.GetOperations())
	p.kept(plan.GetKept())
	p.guards(plan.GetGuards())
	p.next(plan, apply)
	return p.flush(w)
}

func orNothing(operations []*offrampv1.Operation) string {
	if len(operations) == 0 {
		return "nothing to do"
	}
	return count(uint64(len(operations)), "operation")
}

// operations are grouped by stage, within it by transaction where one has several, and by whose they are and why.
func (p *page) operations(operations []*offrampv1.Operation) {
	for i, operation := range operations {
		before := preceding(operations, i)
		newStage := operation.GetStage() != before.GetStage()
		if newStage {
			p.blank()
			p.line(0, "%s", stageWords(operation.GetStage()))
		}
		together := sharesTransaction(operation, following(operations, i))
		begins := together && !sharesTransaction(operation, before)
		if begins {
			p.line(2, "transaction %d, all or nothing:", operation.GetTransaction())
		}
		indent := 2
		if together || sharesTransaction(operation, before) {
			indent = 4
		}
		if newStage || begins || operation.GetOwner() != before.GetOwner() || operation.GetWhy() != before.GetWhy() {
			p.line(indent, "%s: %s", Clean(operation.GetOwner()), Clean(operation.GetWhy()))
		}
		p.operation(indent+2, operation)
	}
}

func preceding[T any](all []*T, i int) *T {
	if i == 0 {
		return nil
	}
	return all[i-1]
}

func sharesTransaction(a, b *offrampv1.Operation) bool {
	return a != nil && b != nil && a.GetTransaction() == b.GetTransaction()
}

func (p *page) operation(indent int, operation *offrampv1.Operation) {
	releases := ""
	if operation.GetReleases() != "" {
		releases = "; lets go of " + Clean(operation.GetReleases())
	}
	p.line(indent, "- %s%s", operationWords(operation), releases)
}

func stageWords(stage offrampv1.Stage) string {
	switch stage {
	case offrampv1.Stage_STAGE_SOURCE:
		return "Source of the node's own connections to VIPs"
	case offrampv1.Stage_STAGE_VIRTUAL_SERVERS:
		return "Virtual servers"
	case offrampv1.Stage_STAGE_LINK:
		return "Link"
	case offrampv1.Stage_STAGE_RULES:
		return "Rules, chains and tables"
	case offrampv1.Stage_STAGE_IPSETS:
		return "Ipsets"
	case offrampv1.Stage_STAGE_REST:
		return "Rest"
	case offrampv1.Stage_STAGE_SYSCTLS:
		return "Sysctls"
	default:
		return "Stage " + Word(stage)
	}
}

func (p *page) kept(kept []*offrampv1.Kept) {
	if len(kept) == 0 {
		return
	}
	p.blank()
	p.line(0, "Kept")
	for _, one := range kept {
		p.line(2, "- %s (%s): %s", Clean(one.GetWhat()), Clean(one.GetOwner()), Clean(one.GetWhy()))
	}
}

func (p *page) guards(guards []*offrampv1.GuardFinding) {
	if len(guards) == 0 {
		return
	}
	p.blank()
	p.line(0, "In the way")
	for _, guard := range guards {
		p.guard(guard)
	}
}

func (p *page) guard(guard *offrampv1.GuardFinding) {
	p.line(2, "%s: %s", Clean(guard.GetId()), Clean(guard.GetTitle()))
	for _, evidence := range guard.GetEvidence() {
		p.line(4, "- %s", Clean(evidence))
	}
	switch {
	case guard.GetOverriddenBecause() != "":
		p.line(4, "overridden: %s", Clean(guard.GetOverriddenBecause()))
		return
	case guard.GetCanBeOverridden():
		p.field(4, "what to do", guard.GetRemedy()+" Or override it with a reason: --override "+guard.GetId()+"=REASON")
	default:
		p.field(4, "what to do", guard.GetRemedy())
	}
}

// next says how to go on.
func (p *page) next(plan *offrampv1.Plan, apply string) {
	if len(plan.GetOperations()) == 0 || apply == "" {
		return
	}
	p.blank()
	for _, guard := range plan.GetGuards() {
		if guard.GetOverriddenBecause() == "" {
			p.line(0, "It would be refused as things stand.")
			return
		}
	}
	p.line(0, "To do this plan, with the other flags of this call:")
	p.line(2, "%s --target %s --plan %s", apply, Word(plan.GetTarget()), shortDigest(plan.GetDigest()))
}

// shortDigest is as much of a digest as names a plan.
func shortDigest(digest []byte) string {
	text := hex.EncodeToString(digest)
	return fmt.Sprintf("%.12s", text)
}
