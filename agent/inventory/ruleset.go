package inventory

import (
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Ruleset is the tables of one iptables backend in one family.
type Ruleset struct {
	// Section is one of SECTION_KIND_IPTABLES_*.
	Section offrampv1.SectionKind
	Family  kubeproxy.Family
	// Tables in the kernel's order.
	Tables []RuleTable
}

// RuleTable is a table of iptables.
type RuleTable struct {
	Name string
	// Chains in the kernel's order, each once.
	Chains []Chain
}

// Chain is a chain with its rules.
type Chain struct {
	Name string
	// Base: a hook of the kernel calls it. It is nobody's, and never goes.
	Base bool
	// DropPolicy: a base chain that drops what none of its rules decides.
	DropPolicy bool
	// Handle of nf_tables; 0 for iptables-legacy.
	Handle uint64
	// Rules in their order.
	Rules []Rule
}

// Rule is one rule.
type Rule struct {
	// Position in its chain, from 1.
	Position uint32
	// Handle of nf_tables; 0 for iptables-legacy.
	Handle uint64
	// To is the user-defined chain that it jumps or goes to; "" for none.
	To string
	// Target is the verdict or the name of the target where it is no jump: "ACCEPT", "DROP", "RETURN", "MARK",
	// "MASQUERADE", "REJECT", ...; "" where the rule has none or To is set.
	Target string
	// Comment is the text of its comment match.
	Comment string
	// CtStateNew: it has one conntrack match and that is "--ctstate NEW".
	CtStateNew bool
	// OtherMatches: it has any other match, a goto, or a second comment. See kubeproxy.Jump.
	OtherMatches bool
	// Sets are the names of the ipsets that it matches or changes. An index that no set has is "#N".
	Sets []string
	// Accounting are the names of the nfacct objects that it counts into.
	Accounting []string
	// Text is the rule as iptables-save would print it, as far as it is decoded: "-A INPUT ...".
	Text string
	// Raw is, for nf_tables, the attributes of its NFT_MSG_NEWRULE message (NFTA_RULE_*), without nlmsghdr and nfgenmsg;
	// for iptables-legacy its struct ipt_entry or ip6t_entry with matches and target.
	Raw []byte
}

// Jump is the rule as internal/kubeproxy asks for it. It is only one where To is set.
func (r *Rule) Jump(table, from string, family kubeproxy.Family) kubeproxy.Jump {
	return kubeproxy.Jump{
		Table: table, From: from, To: r.To, Family: family,
		Comment: r.Comment, CtStateNew: r.CtStateNew, OtherMatches: r.OtherMatches,
	}
}

// Legacy reports whether the ruleset is one of iptables-legacy.
func (r *Ruleset) Legacy() bool {
	return r.Section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4 ||
		r.Section == offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
}

// Owner tells whose a chain is.
func (c *Chain) Owner(table string, family kubeproxy.Family) kubeproxy.Owner {
	if c.Base {
		return kubeproxy.OwnerKernel
	}
	return kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: c.Name, Family: family})
}

// EachChain visits every chain, table by table.
func (r *Ruleset) EachChain(visit func(*RuleTable, *Chain)) {
	for i := range r.Tables {
		table := &r.Tables[i]
		for j := range table.Chains {
			visit(table, &table.Chains[j])
		}
	}
}
