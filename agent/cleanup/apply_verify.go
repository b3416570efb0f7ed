package cleanup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// finish looks again, and writes down how it ended. It does so also for a run that was told to stop.
func (r *run) finish(ctx context.Context) {
	if ctx.Err() == nil {
		r.tellEnd()
		r.verify(ctx)
	} else {
		r.result.Remaining = r.notDone()
	}
	if r.broken != nil {
		r.result.Error = r.broken.Error()
	}
	r.result.EndedAt = timestamppb.New(r.config.Now())
	words := outcomeWords(r.result.GetOperations())
	r.record(&Record{Kind: RecordOutcome, Count: len(r.result.GetOperations()), Outcomes: words})
	r.record(&Record{Kind: RecordEnded, Text: r.ending()})
	if r.broken != nil {
		r.result.Error = r.broken.Error()
	}
}

func (r *run) tellEnd() {
	if count := uint64(len(r.plan.GetOperations())); r.request.Progress != nil {
		r.request.Progress(Progress{"looking again", count, count})
	}
}

// notDone counts what is left as far as the calls themselves tell.
func (r *run) notDone() uint64 {
	var count uint64
	for _, result := range r.result.GetOperations() {
		if outcome := result.GetOutcome(); outcome != done && outcome != gone {
			count++
		}
	}
	return count
}

// ending is the last word of the journal: empty for a run in which all went well.
func (r *run) ending() string {
	switch {
	case r.result.GetError() != "":
		return r.result.GetError()
	case len(r.result.GetRefusedBy()) > 0:
		return "refused by " + r.result.GetRefusedBy()[0].GetId()
	case r.result.GetRemaining() > 0:
		return fmt.Sprintf("%d operations remain", r.result.GetRemaining())
	default:
		return ""
	}
}

// verify reads the node anew and lets what is seen decide: that no call failed proves nothing.
func (r *run) verify(ctx context.Context) {
	plan, reading, err := r.request.Plan(ctx)
	if err != nil {
		r.fail(fmt.Errorf("look again: %w", err))
		r.doubt("it could not be looked for again: "+err.Error(), func(*offrampv1.Operation) bool { return true })
		return
	}
	r.result.Remaining = uint64(len(plan.GetOperations()))
	left := countOperations(plan)
	for i, operation := range r.plan.GetOperations() {
		result, name := r.result.GetOperations()[i], describe(operation)
		switch {
		case left[name] > 0:
			left[name]--
			r.stillThere(result, operation, reading.Inventory)
		case operation.GetStage() == offrampv1.Stage_STAGE_SOURCE && result.GetOutcome() == remains:
			result.Outcome = gone // with its link, and never changed
		case result.GetOutcome() == remains || result.GetOutcome() == unknown:
			setResult(result, done, nil)
		}
	}
	r.doubt("it could not be looked for again: that part of the node could not be read", func(operation *offrampv1.Operation) bool {
		return unread(operation, reading.Inventory)
	})
}

// stillThere notes what was seen again, and for a set who holds it.
func (r *run) stillThere(result *offrampv1.OperationResult, operation *offrampv1.Operation, node *inventory.Node) {
	if result.GetOutcome() == notTried {
		return
	}
	text := cmp.Or(result.GetError(), "it is there again")
	if set := operation.GetDestroySet(); set != nil {
		if holders := holdersOf(set.GetName(), node); len(holders) > 0 {
			text += "; held by " + strings.Join(holders, ", ")
		}
	}
	result.Outcome, result.Error = remains, text
}

// doubt takes back what is said of operations that nobody could look for.
func (r *run) doubt(why string, about func(*offrampv1.Operation) bool) {
	for i, operation := range r.plan.GetOperations() {
		result := r.result.GetOperations()[i]
		if about(operation) && result.GetOutcome() != notTried {
			result.Outcome, result.Error = unknown, cmp.Or(result.GetError(), why)
		}
	}
}

// unread reports whether the part of the node that an operation is about could not be read.
func unread(operation *offrampv1.Operation, node *inventory.Node) bool {
	for _, section := range sectionsOf(operation) {
		if node.Problems[section] != "" {
			return true
		}
	}
	return false
}

func sectionsOf(operation *offrampv1.Operation) []offrampv1.SectionKind {
	switch operation.GetStage() {
	case offrampv1.Stage_STAGE_SOURCE, offrampv1.Stage_STAGE_LINK:
		return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_IPVS_LINK}
	case offrampv1.Stage_STAGE_VIRTUAL_SERVERS:
		return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_IPVS}
	case offrampv1.Stage_STAGE_IPSETS:
		return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_IPSETS}
	case offrampv1.Stage_STAGE_RULES:
		if operation.GetDeleteTable() != nil {
			return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_NFTABLES}
		}
		return []offrampv1.SectionKind{cmp.Or(operation.GetDeleteRule().GetSection(), operation.GetDeleteChain().GetSection())}
	default:
		return nil
	}
}

// holdersOf names, in a few words each, the rules and tables that refer to a set.
func holdersOf(set string, node *inventory.Node) []string {
	var holders []string
	for i := range node.Rulesets {
		rules := &node.Rulesets[i]
		rules.EachChain(func(table *inventory.RuleTable, chain *inventory.Chain) {
			for _, rule := range chain.Rules {
				if slices.Contains(rule.Sets, set) {
					holders = append(holders, fmt.Sprintf("%s table %s chain %s rule %d", sectionWords(rules.Section), table.Name, chain.Name, rule.Position))
				}
			}
		})
	}
	for _, table := range node.Tables {
		if slices.Contains(table.SetMatches, set) {
			holders = append(holders, "table "+table.Family+" "+table.Name)
		}
	}
	return holders[:min(len(holders), maxHolders)]
}

// maxHolders bounds how many are named.
const maxHolders = 5
