package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// transact does one transaction of rules: all of its operations or none.
func (r *run) transact(ctx context.Context, operations []*offrampv1.Operation, results []*offrampv1.OperationResult) {
	outcomes, err := r.edit(ctx, operations)
	switch {
	case isGone(err):
		setResults(results, gone, nil)
	case errors.Is(err, errNoAnswer):
		setResults(results, unknown, err)
	case err != nil:
		setResults(results, remains, err)
	default:
		for i, outcome := range outcomes {
			setResult(results[i], outcome, nil)
		}
	}
}

func (r *run) edit(ctx context.Context, operations []*offrampv1.Operation) ([]offrampv1.OperationOutcome, error) {
	for _, operation := range operations {
		if err := r.permits(operation); err != nil {
			return nil, fmt.Errorf("%s: %w", describe(operation), err)
		}
		if placeOf(operation) != placeOf(operations[0]) {
			return nil, fmt.Errorf("%s: %w", describe(operation), errors.New("it is in a transaction of another backend, family or table"))
		}
	}
	place := placeOf(operations[0])
	if place.legacyTable != "" {
		edit := &legacyEdit{legacyTable{place.family, place.legacyTable}, operations, r.node, r.tools}
		return edit.do(ctx)
	}
	edit := &nftEdit{nftFamily(place.family), operations, r.node}
	return edit.do(ctx)
}

// place is what one transaction can change: all tables of a family of nf_tables, or one legacy table.
type place struct {
	family      kubeproxy.Family
	legacyTable string
}

func placeOf(operation *offrampv1.Operation) place {
	if table := operation.GetDeleteTable(); table != nil {
		return place{tableFamily(table.GetFamily()), ""}
	}
	section := cmp.Or(operation.GetDeleteRule().GetSection(), operation.GetDeleteChain().GetSection())
	at := place{family: kubeproxy.IPv4}
	if section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6 || section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6 {
		at.family = kubeproxy.IPv6
	}
	if isLegacy(operation) {
		at.legacyTable = tableOf(operation)
	}
	return at
}

func tableFamily(name string) kubeproxy.Family {
	if name == "ip6" {
		return kubeproxy.IPv6
	}
	return kubeproxy.IPv4
}

// permits is the last look at what is about to go, whatever the plan says: only what is kube-proxy's by its exact name, and
// never a table that a running kube-proxy uses.
func (r *run) permits(operation *offrampv1.Operation) error {
	switch change := operation.GetChange().(type) {
	case *offrampv1.Operation_DeleteTable:
		table := kubeproxy.Table{Family: change.DeleteTable.GetFamily(), Name: change.DeleteTable.GetName()}
		if kubeproxy.TableOwner(table) != kubeproxy.OwnerNFTables || r.plan.GetRunningMode() == offrampv1.ProxyMode_PROXY_MODE_NFTABLES {
			return errNotOurs
		}
	case *offrampv1.Operation_DeleteChain:
		at := placeOf(operation)
		chain := kubeproxy.Chain{Table: change.DeleteChain.GetTable(), Name: change.DeleteChain.GetChain(), Family: at.family}
		return permitsOwner(kubeproxy.ChainOwner(chain))
	case *offrampv1.Operation_DeleteRule:
		planned, err := plannedRule(r.node, change.DeleteRule)
		if err != nil {
			return err
		}
		rule := change.DeleteRule
		return permitsOwner(kubeproxy.JumpOwner(planned.Jump(rule.GetTable(), rule.GetChain(), placeOf(operation).family)))
	}
	return nil
}

func permitsOwner(owner kubeproxy.Owner) error {
	switch owner {
	case kubeproxy.OwnerIPVS, kubeproxy.OwnerIPTables, kubeproxy.OwnerShared:
		return nil
	default:
		return fmt.Errorf("%w, but %s", errNotOurs, owner)
	}
}
