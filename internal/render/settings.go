package render

import (
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// sysctls names each parameter that has the value ipvs mode gives it or that could not be read, and counts the others.
func (p *page) sysctls(name string, facts *offrampv1.SysctlsFacts) {
	var other, gone uint64
	p.line(2, "%s: present, %s of interest", name, count(uint64(len(facts.GetValues())), "kernel parameter"))
	for _, sysctl := range facts.GetValues() {
		switch {
		case sysctl.GetState() == offrampv1.SectionState_SECTION_STATE_ABSENT:
			gone++
		case sysctl.GetState() == offrampv1.SectionState_SECTION_STATE_UNREADABLE:
			p.line(6, "%s: unreadable%s", Clean(sysctl.GetPath()), parentheses(Clean(sysctl.GetError())))
		case sysctl.GetIpvsModeValue() != "" && sysctl.GetValue() == sysctl.GetIpvsModeValue():
			p.line(6, "%s = %s, as ipvs mode sets it", Clean(sysctl.GetPath()), Clean(sysctl.GetValue()))
		default:
			other++
		}
	}
	p.line(6, "others: %s with another value, %s not in this kernel", number(other), number(gone))
}

func (p *page) addresses(name string, facts *offrampv1.AddressesFacts) {
	p.line(2, "%s: present, %s besides kube-ipvs0 and loopback", name, count(facts.GetCount(), "address"))
	const shown = 8
	for i, address := range facts.GetSamples() {
		if i == shown {
			p.line(6, "… (all of them with -o json)")
			return
		}
		p.line(6, "%s %s/%d", Clean(address.GetInterface()), Clean(address.GetAddress()), address.GetPrefixLength())
	}
}

func (p *page) history(name string, facts *offrampv1.HistoryFacts) {
	kept := "lost when the agent restarts"
	if facts.GetDurable() {
		kept = "kept on disk"
	}
	p.line(2, "%s: present, since %s, %s", name, moment(facts.GetSince()), kept)
	for _, change := range facts.GetModeChanges() {
		p.line(6, "%s: mode %s -> %s", moment(change.GetAt()), Word(change.GetFrom()), Word(change.GetTo()))
	}
}
