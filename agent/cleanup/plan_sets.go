package cleanup

import (
	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func (s *scope) planSets(list *operationList) {
	for _, set := range s.inv.Sets {
		if !s.sets[set.Name] {
			continue
		}
		owner := kubeproxy.SetOwner(set.Set)
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_IPSETS,
			Owner: string(owner),
			Why:   "a set of " + maker(owner),
			Change: &offrampv1.Operation_DestroySet{DestroySet: &offrampv1.DestroySet{
				Name: set.Name, Type: set.Type, Family: addressFamily(set.Family), Entries: uint64(set.Entries),
			}},
		})
	}
}

func addressFamily(family kubeproxy.Family) offrampv1.AddressFamily {
	switch family {
	case kubeproxy.IPv4:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
	case kubeproxy.IPv6:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	default:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED
	}
}

// planRest removes what nothing else waits for: accounting objects that no rule uses any more, and the routes on lo.
func (s *scope) planRest(list *operationList) {
	s.planRoutes(list)
	used := s.usedAccounting()
	for _, name := range s.inv.Accounting {
		owner := kubeproxy.NfacctOwner(name)
		if !s.goes(owner) || used[name] {
			continue
		}
		list.addAlone(&offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_REST,
			Owner: string(owner),
			Why:   "an accounting object of " + maker(owner),
			Change: &offrampv1.Operation_DeleteAccountingObject{DeleteAccountingObject: &offrampv1.DeleteAccountingObject{
				Name: name,
			}},
		})
	}
}

// usedAccounting are the accounting objects that rules count into which stay.
func (s *scope) usedAccounting() map[string]bool {
	used := map[string]bool{}
	s.eachStaying(func(_ *rulesetScope, _ string, _ *inventory.Chain, rule *inventory.Rule) {
		for _, name := range rule.Accounting {
			used[name] = true
		}
	})
	return used
}
