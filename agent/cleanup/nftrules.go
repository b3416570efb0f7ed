package cleanup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nftPatience is how long a transaction is tried again while others keep changing the ruleset.
const nftPatience = 10 * time.Second

// errChangedChain says that a chain that would go has a rule that it did not have when the plan was made.
var errChangedChain = errors.New("a rule was added to it since the plan was made")

// nftEdit is a transaction of the plan in one family of nf_tables.
type nftEdit struct {
	family     uint8
	operations []*offrampv1.Operation
	inventory  *inventory.Node
}

// do does the transaction and returns how each operation ended. It is tried again as long as only something else in the
// ruleset changes meanwhile.
func (e *nftEdit) do(ctx context.Context) ([]offrampv1.OperationOutcome, error) {
	patience, cancel := context.WithTimeout(ctx, nftPatience)
	defer cancel()
	for {
		outcomes, err := e.try(patience)
		if !errors.Is(err, errChanged) {
			return outcomes, err
		}
		if outOfStep(patience) != nil {
			return nil, fmt.Errorf("for %s: %w", nftPatience, err)
		}
	}
}

// try looks at what is still there, and deletes that if nothing has changed since the look.
func (e *nftEdit) try(ctx context.Context) ([]offrampv1.OperationOutcome, error) {
	seen, err := e.look(ctx)
	if err != nil {
		return nil, err
	}
	if seen.generation != 0 {
		outcomes, err := e.delete(ctx, seen, seen.generation)
		if !errors.Is(err, errChanged) {
			return outcomes, err
		}
	}
	return e.pinned(ctx, seen)
}

// delete does the transaction if the ruleset is of this generation.
func (e *nftEdit) delete(ctx context.Context, seen *nftSeen, generation uint32) ([]offrampv1.OperationOutcome, error) {
	batch := newNFTBatch(generation)
	outcomes, owner, err := e.write(batch, seen)
	if err != nil {
		return nil, err
	}
	return outcomes, e.explain(batch.commit(ctx), owner)
}

// explain names the operation that a message of the batch was for.
func (e *nftEdit) explain(err error, owner []int) error {
	var refused *refusedError
	if errors.As(err, &refused) && refused.message < len(owner) {
		return fmt.Errorf("%s: %w", describe(e.operations[owner[refused.message]]), err)
	}
	return err
}

// write puts the deletions into a batch: jumps first, then the rules of all chains, then the chains, so that chains that
// jump to each other go together. owner says for each message which operation it is for.
func (e *nftEdit) write(batch *nftBatch, seen *nftSeen) (outcomes []offrampv1.OperationOutcome, owner []int, err error) {
	outcomes = make([]offrampv1.OperationOutcome, len(e.operations))
	for _, step := range []func(*nftBatch, *nftSeen, *offrampv1.Operation) (bool, error){e.writeRule, e.writeEmpty, e.writeChain, e.writeTable} {
		for i, operation := range e.operations {
			before := batch.messages
			found, err := step(batch, seen, operation)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", describe(operation), err)
			}
			if found {
				outcomes[i] = done
			}
			owner = append(owner, slices.Repeat([]int{i}, batch.messages-before)...)
		}
	}
	for i := range outcomes {
		if outcomes[i] != done {
			outcomes[i] = gone
		}
	}
	return outcomes, owner, nil
}

func (e *nftEdit) writeRule(batch *nftBatch, seen *nftSeen, operation *offrampv1.Operation) (bool, error) {
	rule := operation.GetDeleteRule()
	if rule == nil {
		return false, nil
	}
	planned, err := plannedRule(e.inventory, rule)
	if err != nil || !slices.Contains(seen.tables[rule.GetTable()][rule.GetChain()], planned.Handle) {
		return false, err
	}
	batch.deleteRule(e.family, rule.GetTable(), rule.GetChain(), planned.Handle)
	return true, nil
}

var errNotInInventory = errors.New("it is not what the node had when the plan was made")

// plannedRule is the rule that the plan means.
func plannedRule(node *inventory.Node, rule *offrampv1.DeleteRule) (*inventory.Rule, error) {
	chain := findChain(node, rule.GetSection(), rule.GetTable(), rule.GetChain())
	if chain != nil {
		for i := range chain.Rules {
			if found := &chain.Rules[i]; found.Position == rule.GetPosition() && found.Text == rule.GetRule() {
				return found, nil
			}
		}
	}
	return nil, errNotInInventory
}

// writeEmpty deletes the rules of a chain that goes. They have to be the ones that were there when the plan was made: a rule
// that somebody has added since would go with them.
func (e *nftEdit) writeEmpty(batch *nftBatch, seen *nftSeen, operation *offrampv1.Operation) (bool, error) {
	change := operation.GetDeleteChain()
	handles := seen.tables[change.GetTable()][change.GetChain()]
	if change == nil || len(handles) == 0 {
		return false, nil
	}
	planned := findChain(e.inventory, change.GetSection(), change.GetTable(), change.GetChain())
	if planned == nil || planned.Base {
		return false, errNotInInventory
	}
	for _, handle := range handles {
		if !slices.ContainsFunc(planned.Rules, func(rule inventory.Rule) bool { return rule.Handle == handle }) {
			return false, errChangedChain
		}
	}
	if !seen.singly {
		batch.emptyChain(e.family, change.GetTable(), change.GetChain())
		return true, nil
	}
	for _, handle := range handles {
		batch.deleteRule(e.family, change.GetTable(), change.GetChain(), handle)
	}
	return true, nil
}

func (e *nftEdit) writeChain(batch *nftBatch, seen *nftSeen, operation *offrampv1.Operation) (bool, error) {
	change := operation.GetDeleteChain()
	if change == nil {
		return false, nil
	}
	if _, found := seen.tables[change.GetTable()][change.GetChain()]; !found {
		return false, nil
	}
	if seen.singly {
		batch.deleteEmptyChain(e.family, change.GetTable(), change.GetChain())
		return true, nil
	}
	batch.deleteChain(e.family, change.GetTable(), change.GetChain())
	return true, nil
}

func (e *nftEdit) writeTable(batch *nftBatch, seen *nftSeen, operation *offrampv1.Operation) (bool, error) {
	change := operation.GetDeleteTable()
	if change == nil || seen.handles[change.GetName()] == 0 {
		return false, nil
	}
	batch.deleteTable(e.family, change.GetName())
	return true, nil
}

func findChain(node *inventory.Node, section offrampv1.SectionKind, table, chain string) *inventory.Chain {
	for i := range node.Rulesets {
		if node.Rulesets[i].Section != section {
			continue
		}
		for j := range node.Rulesets[i].Tables {
			if node.Rulesets[i].Tables[j].Name != table {
				continue
			}
			chains := node.Rulesets[i].Tables[j].Chains
			if at := slices.IndexFunc(chains, func(c inventory.Chain) bool { return c.Name == chain }); at >= 0 {
				return &chains[at]
			}
		}
	}
	return nil
}

// nftFamily is the family of nf_tables of a section or of a native table of kube-proxy's.
func nftFamily(family kubeproxy.Family) uint8 {
	if family == kubeproxy.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}
