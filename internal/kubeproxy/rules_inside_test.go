package kubeproxy_test

import (
	"regexp"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
)

func TestMayHaveWritten(t *testing.T) {
	cluster, mine := []string{"KUBE-CLUSTER-IP"}, []string{"office"}
	for _, c := range []struct {
		table, chain, target, comment string
		sets                          []string
		want                          bool
	}{
		{"nat", "KUBE-SERVICES", "RETURN", "", nil, true},
		{"nat", "KUBE-SERVICES", "ACCEPT", "", cluster, true},
		{"nat", "KUBE-SERVICES", "ACCEPT", "", []string{"KUBE-6-CLUSTER-IP"}, true},
		{"nat", "KUBE-SERVICES", "ACCEPT", "", nil, false},
		{"nat", "KUBE-SERVICES", "ACCEPT", "", mine, false},
		{"nat", "KUBE-SERVICES", "LOG", "x", nil, false},
		{"nat", "KUBE-POSTROUTING", "MASQUERADE", "kubernetes service traffic requiring SNAT", nil, true},
		{"nat", "KUBE-POSTROUTING", "MASQUERADE", "", nil, false},
		{"nat", "KUBE-MARK-MASQ", "MARK", "", nil, true},
		{"nat", "KUBE-SEP-AAAAAAAAAAAAAAAA", "DNAT", "default/x:http", nil, true},
		{"nat", "KUBE-SEP-AAAAAAAAAAAAAAAA", "DNAT", "", nil, false},
		{"nat", "KUBE-SEP-AAAAAAAAAAAAAAAA", "ACCEPT", "x", nil, false},
		{"nat", "KUBE-FW-AAAAAAAAAAAAAAAA", "", "other traffic to x will be dropped by KUBE-PROXY-FIREWALL", nil, true},
		{"nat", "KUBE-PROXY-CANARY", "RETURN", "", nil, false},
		{"filter", "KUBE-IPVS-FILTER", "REJECT", "", []string{"KUBE-IPVS-IPS"}, true},
		{"filter", "KUBE-IPVS-FILTER", "REJECT", "", nil, false},
		{"filter", "KUBE-SOURCE-RANGES-FIREWALL", "DROP", "", nil, true},
		{"filter", "KUBE-NODEPORTS", "ACCEPT", "default/x:http health check node port", nil, true},
		{"filter", "KUBE-FORWARD", "DROP", "", nil, true},
		{"filter", "FORWARD", "ACCEPT", "x", nil, false},
		{"filter", "KUBE-FIREWALL", "DROP", "x", nil, false},
	} {
		rule := kubeproxy.InnerRule{Table: c.table, Chain: c.chain, Target: c.target, Comment: c.comment, Sets: c.sets}
		if got := kubeproxy.MayHaveWritten(rule); got != c.want {
			t.Errorf("%+v: %v", rule, got)
		}
	}
}

// Every rule that a real kube-proxy, of both versions and in every mode, wrote into its chains is one that it may have written.
func TestEveryRuleOfRecordedCapturesMayBeKubeProxys(t *testing.T) {
	seen := 0
	for _, name := range append(captures.Recorded(), captures.Names()...) {
		for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
			content, err := captures.Read(name, program+"-save.txt")
			if err != nil {
				continue
			}
			for _, rule := range innerRules(string(content)) {
				seen++
				if !kubeproxy.MayHaveWritten(rule) {
					t.Errorf("%s, %s: %+v", name, program, rule)
				}
			}
		}
	}
	if seen < 1000 {
		t.Errorf("%d rules were read: the reader of the test is broken", seen)
	}
}

// innerRules are the rules of kube-proxy's chains in the output of iptables-save that lead to no other chain.
func innerRules(text string) []kubeproxy.InnerRule {
	var rules []kubeproxy.InnerRule
	var table string
	user := map[string]bool{}
	option := func(line, name string) string {
		found := regexp.MustCompile(` ` + name + ` ("[^"]*"|\S+)`).FindStringSubmatch(line)
		if found == nil {
			return ""
		}
		return strings.Trim(found[1], `"`)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, ":"), " ")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			clear(user)
		case strings.HasPrefix(line, ":") && strings.HasPrefix(rest, "-"):
			user[name] = true
		case strings.HasPrefix(line, "-A "):
			chain := strings.Fields(line)[1]
			target := option(line, "-j")
			owner := kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: chain, Family: kubeproxy.IPv4})
			if !owner.IsKubeProxy() || user[target] || strings.Contains(line, " -g ") {
				continue
			}
			rule := kubeproxy.InnerRule{Table: table, Chain: chain, Target: target, Comment: option(line, "--comment")}
			if set := option(line, "--match-set"); set != "" {
				rule.Sets = []string{set}
			}
			rules = append(rules, rule)
		}
	}
	return rules
}
