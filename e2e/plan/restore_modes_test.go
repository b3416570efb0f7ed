package plan_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// comesBack is what of one backup comes back while a kube-proxy runs, by hand from DESIGN.md's promise 7 and docs/restore.md:
// what is looked for in the native tools' output, and whether it is there.
type comesBack struct {
	running string // the capture whose kube-proxy seems to run; "" for none, as a person asserts
	unknown bool   // nobody asserts anything
	made    bool   // its sets and rules are there, as it made them: what comes back leads to its chains
	exit    int
	there   map[string]bool
}

// The native witnesses of each class and owner.
func witnesses() map[string]string {
	return map[string]string{
		"nfacct objects":            "nfacct list 2>/dev/null | grep -c ct_state_invalid_dropped_pkts",
		"ipsets":                    "ipset list -n | grep -c KUBE-",
		"chains of ipvs mode":       "(iptables-nft-save; ip6tables-nft-save) | grep -c -e ':KUBE-LOAD-BALANCER ' -e ':KUBE-IPVS-FILTER '",
		"chains of iptables mode":   "(iptables-nft-save; ip6tables-nft-save) | grep -c -e ':KUBE-SVC-'",
		"shared chains":             "(iptables-nft-save; ip6tables-nft-save) | grep -c -e ':KUBE-POSTROUTING '",
		"jumps to shared chains":    "(iptables-nft-save; ip6tables-nft-save) | grep -c -e '-j KUBE-POSTROUTING'",
		"virtual servers":           "ipvsadm -Sn | grep -c -e -A",
		"the link":                  "ip -o link | grep -c kube-ipvs0",
		"tables of nftables mode":   "nft list tables | grep -c kube-proxy",
		"sysctls":                   "grep -c 1 /proc/sys/net/ipv4/conf/all/arp_ignore",
		"addresses that were there": "ip -o address show dev kube-ipvs0 2>/dev/null | grep -c inet",
	}
}

func restoresUnder() []comesBack {
	all := func(except ...string) map[string]bool {
		there := map[string]bool{}
		for what := range witnesses() {
			there[what] = true
		}
		for _, what := range except {
			there[what] = false
		}
		return there
	}
	ipvs := []string{"virtual servers", "the link", "addresses that were there", "tables of nftables mode"}
	nothing := all("nfacct objects", "ipsets", "chains of ipvs mode", "chains of iptables mode", "shared chains", "jumps to shared chains",
		"virtual servers", "the link", "tables of nftables mode", "addresses that were there", "sysctls")
	return []comesBack{
		{running: "nftables", there: all(ipvs...)},
		{unknown: true, exit: 4, there: nothing},
		{there: all()},
		// Last, since the rules of their captures replace what else is in the tables.
		{running: "iptables", made: true, there: all(ipvs...)},
		{running: "ipvs", made: true, there: all(ipvs...)},
	}
}

// Everything of every mode is taken away with no kube-proxy running. Then, while a kube-proxy of each mode seems to run,
// only that comes back which does no harm beside it; with none, everything does, as it was.
func TestRestoreUnderEveryMode(t *testing.T) {
	l := labtest.Start(t)
	g := bootAgent(t, l, "6.1", "restore")
	if err := lab.Restore(t.Context(), g, "ipvs-then-iptables"); err != nil {
		t.Fatal(err)
	}
	feed(t, g, kubeProxyTables(), "nft -f -")
	output(t, g, "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore")
	before := lookNative(t, g)
	done, exit := applyOn(t, g, "--reset-sysctls", "--target", "none", "--assert-no-kube-proxy", nobody)
	if exit != 0 {
		t.Fatalf("exit code %d, refused by %v", exit, done.GetRefusedBy())
	}
	clean := lookNative(t, g)
	for _, want := range restoresUnder() {
		name := want.running
		if name == "" {
			name = map[bool]string{true: "unknown", false: "none"}[want.unknown]
		}
		t.Run(name, func(t *testing.T) {
			comesBackUnder(t, g, want, done.GetBackupId())
			if name == "none" {
				sameNatives(t, "restored", before, lookNative(t, g))
			}
			// What came back goes again, whoever runs.
			if _, exit := applyOn(t, g, "--reset-sysctls", "--target", "none", "--assert-no-kube-proxy", nobody); exit != 0 {
				t.Errorf("cleaning again: exit code %d", exit)
			}
			if !want.made {
				sameNatives(t, "cleaned again", clean, lookNative(t, g))
			}
		})
	}
}

func kubeProxyTables() string {
	var kept strings.Builder
	for _, table := range tablesOf(captureFile("nftables", "nft-ruleset.txt")) {
		if strings.HasPrefix(table, "table ip kube-proxy {") || strings.HasPrefix(table, "table ip6 kube-proxy {") {
			kept.WriteString(table)
		}
	}
	return kept.String()
}

func comesBackUnder(t *testing.T, g *lab.Guest, want comesBack, backup string) {
	t.Helper()
	var flags []string
	var proxy *lab.Process
	switch {
	case want.running != "":
		var err error
		if proxy, err = lab.StandIn(t.Context(), g, want.running); err != nil {
			t.Fatal(err)
		}
		defer stop(t, proxy)
	case !want.unknown:
		flags = []string{"--assert-no-kube-proxy", nobody}
	}
	var made natives
	if want.made {
		makeRules(t, g, want.running)
		made = lookNative(t, g)
	}
	said, exit := tryRestore(t, g, backup, flags...)
	for try := 0; proxy != nil && exit == 4 && try < 5; try++ {
		said, exit = tryRestore(t, g, backup, flags...)
	}
	if exit != want.exit {
		t.Errorf("exit code %d, want %d", exit, want.exit)
	}
	outcomes := map[string]int{}
	for _, item := range said.Items {
		outcomes[item.Outcome]++
		if item.Outcome == "failed" {
			t.Errorf("%s: %s", item.What, item.Why)
		}
	}
	t.Logf("running mode %q: %v", said.Mode, outcomes)
	if want.made {
		untouched(t, made, lookNative(t, g))
	}
	for what, command := range witnesses() {
		count := strings.TrimSpace(output(t, g, command+" || true"))
		if there := count != "0" && count != ""; there != want.there[what] {
			t.Errorf("%s: %s, want there: %t", what, count, want.there[what])
		}
	}
}

// makeRules puts the sets and rules of a capture there, as its kube-proxy would make them anew.
func makeRules(t *testing.T, g *lab.Guest, capture string) {
	t.Helper()
	output(t, g, "nfacct add ct_state_invalid_dropped_pkts; nfacct add localhost_nps_accepted_pkts; true")
	feed(t, g, captureFile(capture, "ipset-save.txt"), "ipset restore")
	for _, tool := range []string{"iptables-nft", "ip6tables-nft"} {
		feed(t, g, captureFile(capture, tool+"-save.txt"), tool+"-restore")
	}
}

// untouched holds that every set and rule that the running kube-proxy made is there as it was, in its order.
func untouched(t *testing.T, made, now natives) {
	t.Helper()
	for _, part := range []string{"ipset", "iptables-nft", "ip6tables-nft"} {
		left := now[part]
		for line := range strings.Lines(made[part]) {
			_, after, found := strings.Cut("\n"+left, "\n"+line)
			if !found {
				t.Fatalf("%s: the running kube-proxy's own is gone or out of order: %s", part, line)
			}
			left = after
		}
	}
}
