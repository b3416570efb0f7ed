package collect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// BenchmarkReadNetfilter reads 5,000 chains with 15,000 rules as iptables mode makes them, against iptables-nft-save.
func BenchmarkReadNetfilter(b *testing.B) {
	enterNamespace(b)
	restore(b, "iptables-nft-restore", manyServices(2500))
	mods := newModules(DefaultHost())
	rules := bare(unix.NETLINK_NETFILTER, 1, func() *nl.NetlinkRequest { return nftRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP) })
	comparison{0.25, rules, []string{"iptables-nft-save"}}.measure(b, func(ctx context.Context) error {
		section, _, _ := readNetfilter(ctx, DefaultHost(), mods)
		return checkBench(section)
	})
}

// BenchmarkReadNetfilterAgain reads the same ruleset with a reader that knows it already.
func BenchmarkReadNetfilterAgain(b *testing.B) {
	enterNamespace(b)
	restore(b, "iptables-nft-restore", manyServices(2500))
	rules := newRuleReader(DefaultHost(), newModules(DefaultHost()))
	comparison{0.25, nil, []string{"iptables-nft-save"}}.measure(b, func(ctx context.Context) error {
		return checkBench(rules.readNFT(ctx)[0])
	})
}

// BenchmarkReadNFTables reads a table of kube-proxy's with 50,000 elements in its map of Services for the first time, their
// digest included, against nft with elements, which yields the same facts.
func BenchmarkReadNFTables(b *testing.B) {
	elements := bare(unix.NETLINK_NETFILTER, 1, func() *nl.NetlinkRequest {
		return elementsRequest(nftTableKey{unix.NFPROTO_IPV4, "kube-proxy"}, "service-ips", unix.NLM_F_DUMP)
	})
	readTables(b, 50_000, false, comparison{0.25, elements, []string{"nft", "list", "ruleset"}})
}

// BenchmarkReadNFTablesAgain reads it where nothing was committed, against nft without elements.
func BenchmarkReadNFTablesAgain(b *testing.B) {
	readTables(b, 50_000, true, comparison{0.25, nil, []string{"nft", "-t", "list", "ruleset"}})
}

// BenchmarkReadNFTablesShape reads as many chains and hardly an element for the first time, against nft without elements.
func BenchmarkReadNFTablesShape(b *testing.B) {
	rules := bare(unix.NETLINK_NETFILTER, 1, func() *nl.NetlinkRequest { return nftRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP) })
	readTables(b, 10, false, comparison{0.25, rules, []string{"nft", "-t", "list", "ruleset"}})
}

func readTables(b *testing.B, services int, again bool, against comparison) {
	b.Helper()
	enterNamespace(b)
	restore(b, "nft", manyElements(5000, services), "-f", "-")
	mods := newModules(DefaultHost())
	rules := newRuleReader(DefaultHost(), mods)
	against.measure(b, func(ctx context.Context) error {
		if !again {
			rules = newRuleReader(DefaultHost(), mods)
		}
		content := rules.readNFT(ctx)[2].GetStable().GetNftables()
		if count := content.GetList().GetCount(); count != uint64(services) {
			return fmt.Errorf("%d Services read, want %d", count, services)
		}
		return nil
	})
}

// manyElements is a table of kube-proxy's with so many chains, and Services that lead to them.
func manyElements(chains, services int) string {
	var text, elements strings.Builder
	for i := range chains {
		fmt.Fprintf(&text, "chain service-%08d-ns/svc/tcp/http { ip daddr 10.0.0.1 counter drop; }\n", i)
	}
	for i := range services {
		fmt.Fprintf(&elements, "10.%d.%d.%d . tcp . 80 : goto service-%08d-ns/svc/tcp/http,\n", 96+i>>16, i>>8&255, i&255, i%chains)
	}
	return "table ip kube-proxy {\n" + text.String() + "map service-ips {\ntype ipv4_addr . inet_proto . inet_service : verdict\n" +
		"elements = {\n" + elements.String() + "}\n}\n}\n"
}

// BenchmarkReadIptablesLegacy reads the same from iptables-legacy.
func BenchmarkReadIptablesLegacy(b *testing.B) {
	enterNamespace(b)
	restore(b, "iptables-legacy-restore", manyServices(2500))
	layout := legacyIPv4()
	b.ReportAllocs()
	for b.Loop() {
		// Not through the list of tables: /proc/net shows the namespace of the process' first thread.
		s, err := openLegacy(&layout)
		if err != nil {
			b.Fatal(err)
		}
		rules := newRuleset(layout.family)
		if err := s.count(&layout, "nat", rules); err != nil {
			b.Fatal(err)
		}
		if err := s.close(); err != nil {
			b.Fatal(err)
		}
		if got := rules.facts().GetTables()[0].GetRules(); got != 15000 {
			b.Fatalf("%d rules read, want 15000", got)
		}
	}
}

func checkBench(section *offrampv1.Section) error {
	tables := section.GetStable().GetIptables().GetTables()
	if len(tables) == 0 || tables[0].GetRules() != 15000 {
		return fmt.Errorf("read %v %s, want one table with 15000 rules", tables, section.GetStable().GetError())
	}
	return nil
}

// manyServices is a nat table with services KUBE-SVC chains, as many KUBE-SEP chains, and six rules for each pair.
func manyServices(services int) string {
	var table, rules strings.Builder
	table.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
	for i := range services {
		service, endpoint := "KUBE-SVC-"+hash16(i), "KUBE-SEP-"+hash16(i)
		fmt.Fprintf(&table, ":%s - [0:0]\n:%s - [0:0]\n", service, endpoint)
		address := fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250)
		for _, rule := range []string{
			"KUBE-SERVICES -d " + address + "/32 -p tcp -m comment --comment \"ns/svc-" + service + ":http cluster IP\" -m tcp --dport 80 -j " + service,
			service + " ! -s 10.244.0.0/16 -d " + address + "/32 -p tcp -m comment --comment \"ns/svc:http cluster IP\" -m tcp --dport 80 -j KUBE-MARK-MASQ",
			service + " -m comment --comment \"ns/svc:http -> 10.244.1.1:80\" -m statistic --mode random --probability 0.5 -j " + endpoint,
			service + " -m comment --comment \"ns/svc:http -> 10.244.1.1:80\" -j " + endpoint,
			endpoint + " -s 10.244.1.1/32 -m comment --comment ns/svc:http -j KUBE-MARK-MASQ",
			endpoint + " -p tcp -m comment --comment ns/svc:http -m tcp -j DNAT --to-destination 10.244.1.1:80",
		} {
			rules.WriteString("-A " + rule + "\n")
		}
	}
	return table.String() + rules.String() + "COMMIT\n"
}

// hash16 makes 16 characters of base32 out of a number.
func hash16(n int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	text := []byte("AAAAAAAAAAAAAAAA")
	for i := len(text) - 1; n > 0; i-- {
		text[i] = digits[n%32]
		n /= 32
	}
	return string(text)
}

func restore(b *testing.B, tool, rules string, args ...string) {
	b.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		b.Skipf("needs %s", tool)
	}
	command := exec.CommandContext(b.Context(), tool, args...)
	command.Stdin = strings.NewReader(rules)
	if out, err := command.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", tool, err, out)
	}
}

// enterNamespace moves the benchmark's thread into a network namespace of its own, which ends with the thread.
func enterNamespace(b *testing.B) {
	b.Helper()
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Fatal(err)
	}
}
