package plan_test

import (
	"maps"
	"regexp"
	"strings"
)

// What kube-proxy makes, written by hand from the facts about its versions 1.34 and 1.37; never from the code under test.
// Chains by table, with the modes that use them.
const (
	ipvsChains = `nat KUBE-NODE-PORT|nat KUBE-LOAD-BALANCER|filter KUBE-NODE-PORT|filter KUBE-SOURCE-RANGES-FIREWALL|` +
		`filter KUBE-IPVS-FILTER|filter KUBE-IPVS-OUT-FILTER`
	iptablesChains = `nat KUBE-NODEPORTS|nat KUBE-(SVC|SVL|FW|EXT|SEP)-[A-Z2-7]{16}|(nat|filter|mangle) KUBE-PROXY-CANARY|` +
		`filter KUBE-SERVICES|filter KUBE-EXTERNAL-SERVICES|filter KUBE-NODEPORTS`
	sharedChains = `nat KUBE-SERVICES|nat KUBE-POSTROUTING|nat KUBE-MARK-MASQ|filter KUBE-FORWARD|filter KUBE-PROXY-FIREWALL`
	// The comments that tell apart the jumps of both modes to the shared filter KUBE-PROXY-FIREWALL.
	ipvsJump     = `--comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL`
	iptablesJump = `--comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL`

	kubeProxySets = `KUBE-(6-)?(LOOP-BACK|CLUSTER-IP|EXTERNAL-IP|EXTERNAL-IP-LOCAL|LOAD-BALANCER|LOAD-BALANCER-FW|LOAD-BALANCER-LOCAL|` +
		`LOAD-BALANCER-SOURCE-IP|NODE-PORT-TCP|NODE-PORT-LOCAL-TCP|NODE-PORT-UDP|NODE-PORT-LOCAL-UDP|NODE-PORT-SCTP-HASH|` +
		`HEALTH-CHECK-NODE-PORT|IPVS-IPS)|KUBE-LOAD-BALANCER-SOURCE-CIDR|KUBE-6-LOAD-BALANCER-SOURCE-CID|` +
		`KUBE-NODE-PORT-LOCAL-SCTP-HASH|KUBE-6-NODE-PORT-LOCAL-SCTP-HAS`
)

// leaving is what goes under a target.
type leaving struct {
	chains, jumps *regexp.Regexp
	ipvs          bool // virtual servers, link, sets
	tables        bool
	accounting    bool
}

func leavingUnder(target string) leaving {
	whole := func(expression string) *regexp.Regexp { return regexp.MustCompile(`^(` + expression + `)$`) }
	part := func(text string) *regexp.Regexp { return regexp.MustCompile(regexp.QuoteMeta(text)) }
	switch target {
	case "iptables":
		return leaving{whole(ipvsChains), part(ipvsJump), true, true, false}
	case "ipvs":
		return leaving{whole(iptablesChains), part(iptablesJump), false, true, true}
	default:
		none := regexp.MustCompile(`^\b$`)
		return leaving{whole(ipvsChains + "|" + iptablesChains + "|" + sharedChains), none, true, target == "none", true}
	}
}

// expected is what the native tools print after a clean-up that did what it is for and nothing else: the same lines in the
// same order, without those of kube-proxy's that go.
func expected(before natives, target, foreignServers string) natives {
	going := leavingUnder(target)
	after := maps.Clone(before)
	for _, tool := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		after[tool] = going.rules(before[tool])
	}
	if going.ipvs {
		after["ipset"] = without(before["ipset"], `^(create|add) (`+kubeProxySets+`) `)
		after["addresses"] = without(before["addresses"], `^kube-ipvs0 `)
		after["routes"] = without(before["routes"], ` dev kube-ipvs0 `)
		after["ipvsadm"] = steady("ipvsadm", foreignServers)
	}
	if going.tables {
		var kept strings.Builder
		for _, table := range tablesOf(before["nft"]) {
			if !regexp.MustCompile(`^table ip6? kube-proxy \{`).MatchString(table) {
				kept.WriteString(table)
			}
		}
		after["nft"] = kept.String()
	}
	if going.accounting {
		after["nfacct"] = without(before["nfacct"], `= (ct_state_invalid_dropped_pkts|localhost_nps_accepted_pkts);`)
	}
	return after
}

func without(text, lines string) string {
	drop := regexp.MustCompile(lines)
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !drop.MatchString(line) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// rules leaves out the chains that go, their rules, and the rules of other chains that jump to them: kube-proxy's own, since
// a foreign one makes apply refuse.
func (l leaving) rules(saved string) string {
	var kept strings.Builder
	table := ""
	for line := range strings.Lines(saved) {
		if name, found := strings.CutPrefix(line, "*"); found {
			table = strings.TrimSpace(name)
		}
		if !l.line(table, strings.TrimSpace(line)) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func (l leaving) line(table, line string) bool {
	fields := strings.Fields(line)
	switch {
	case strings.HasPrefix(line, ":"):
		return l.chains.MatchString(table + " " + strings.TrimPrefix(fields[0], ":"))
	case strings.HasPrefix(line, "-A "):
		return l.chains.MatchString(table+" "+fields[1]) || l.chains.MatchString(table+" "+jumpOf(line)) || l.jumps.MatchString(line)
	default:
		return false
	}
}

// jumpOf is the chain that a rule leads to.
func jumpOf(line string) string {
	found := regexp.MustCompile(` -[jg] (\S+)`).FindStringSubmatch(line)
	if found == nil {
		return ""
	}
	return found[1]
}
