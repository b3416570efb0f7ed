package kubeproxy

import "slices"

// InnerRule is a rule in a chain of kube-proxy's that leads to no other chain.
type InnerRule struct {
	Table, Chain string
	// Target is "ACCEPT", "DNAT", ...; "" for none.
	Target string
	// Comment is the text of its comment match, "" for none.
	Comment string
	// Sets are the names of the ipsets that it matches.
	Sets []string
}

// MayHaveWritten reports whether kube-proxy writes rules like this one into this chain, as far as target, comment and sets
// tell: some of its rules have neither comment nor set, and then somebody else's with the same target looks alike. It is
// false for what no kube-proxy since 1.28 writes there (pkg/proxy/ipvs/proxier.go writeIptablesRules,
// pkg/proxy/iptables/proxier.go syncProxyRules), and for chains that are not kube-proxy's.
func MayHaveWritten(rule InnerRule) bool {
	if slices.ContainsFunc(rule.Sets, func(set string) bool { return !isIPVSSet(set) }) {
		return false
	}
	return slices.ContainsFunc(innerForms(chainName{rule.Table, rule.Chain}), func(form innerForm) bool {
		return form.target == rule.Target && (!form.comment || rule.Comment != "") && (!form.set || len(rule.Sets) > 0)
	})
}

func isIPVSSet(name string) bool {
	return slices.ContainsFunc(ipvsSets(), func(row setRow) bool { return row.ipv4 == name || row.ipv6 == name })
}

// innerForm is what rules of one kind have.
type innerForm struct {
	target string
	// comment and set: it has one in every case.
	comment, set bool
}

// innerForms are the rules that kube-proxy writes into a chain, but for those that lead to other chains.
func innerForms(chain chainName) []innerForm {
	const plain = false
	const commented, withSet = true, true
	if isIPTablesHashChain(chain) {
		return []innerForm{{"DNAT", commented, plain}, {"", commented, plain}}
	}
	switch chain {
	case chainName{"nat", "KUBE-SERVICES"}:
		return []innerForm{{"RETURN", plain, plain}, {"ACCEPT", plain, withSet}}
	case chainName{"nat", "KUBE-POSTROUTING"}:
		return []innerForm{{"RETURN", plain, plain}, {"MARK", plain, plain}, {"MASQUERADE", commented, plain}}
	case chainName{"nat", "KUBE-MARK-MASQ"}:
		return []innerForm{{"MARK", plain, plain}}
	case chainName{"nat", "KUBE-NODE-PORT"}, chainName{"nat", "KUBE-LOAD-BALANCER"}:
		return []innerForm{{"RETURN", plain, withSet}}
	case chainName{"filter", "KUBE-NODE-PORT"}:
		return []innerForm{{"ACCEPT", plain, withSet}}
	case chainName{"filter", "KUBE-SOURCE-RANGES-FIREWALL"}:
		return []innerForm{{"RETURN", plain, withSet}, {"DROP", plain, plain}}
	case chainName{"filter", "KUBE-IPVS-FILTER"}:
		return []innerForm{{"RETURN", plain, withSet}, {"REJECT", plain, withSet}}
	case chainName{"filter", "KUBE-IPVS-OUT-FILTER"}:
		return []innerForm{{"DROP", plain, plain}}
	case chainName{"filter", "KUBE-FORWARD"}:
		return []innerForm{{"ACCEPT", commented, plain}, {"DROP", plain, plain}}
	case chainName{"filter", "KUBE-SERVICES"}, chainName{"filter", "KUBE-EXTERNAL-SERVICES"}:
		return []innerForm{{"REJECT", commented, plain}, {"DROP", commented, plain}}
	case chainName{"filter", "KUBE-NODEPORTS"}:
		return []innerForm{{"ACCEPT", commented, plain}}
	case chainName{"filter", "KUBE-PROXY-FIREWALL"}:
		return []innerForm{{"DROP", commented, plain}}
	default: // of the others none, and of the canaries nothing at all
		return nil
	}
}
