package collect

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkReadNetfilter reads 5,000 chains with 15,000 rules as iptables mode makes them.
func BenchmarkReadNetfilter(b *testing.B) {
	enterNamespace(b)
	restore(b, "iptables-nft-restore", manyServices(2500))
	mods := newModules(DefaultHost())
	b.ReportAllocs()
	for b.Loop() {
		section, _, _ := readNetfilter(b.Context(), DefaultHost(), mods)
		checkBench(b, section.GetStable().GetIptables().GetTables()[0].GetRules())
	}
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
		checkBench(b, rules.facts().GetTables()[0].GetRules())
	}
}

// BenchmarkNativeSave is what the native tool needs for the same, to compare with.
func BenchmarkNativeSave(b *testing.B) {
	enterNamespace(b)
	restore(b, "iptables-nft-restore", manyServices(2500))
	for b.Loop() {
		if err := exec.CommandContext(b.Context(), "iptables-nft-save").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func checkBench(b *testing.B, rules uint64) {
	b.Helper()
	if rules != 15000 {
		b.Fatalf("%d rules read, want 15000", rules)
	}
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

func restore(b *testing.B, tool, rules string) {
	b.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		b.Skipf("needs %s", tool)
	}
	command := exec.CommandContext(b.Context(), tool)
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
