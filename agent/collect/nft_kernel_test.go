package collect

import (
	"context"
	"errors"
	"hash/maphash"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Looking loads no module: nothing else has run in this namespace, so that on a kernel with modules all of them may be
// missing. What the kernel lacks is absent, not empty.
func TestNetfilterLoadsNoModule(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	state := func() string {
		var all strings.Builder
		for _, file := range []string{"/proc/modules", "/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"} {
			content, err := os.ReadFile(file)
			all.WriteString(loadedModules(file, content))
			if err != nil {
				all.WriteString(err.Error() + "\n")
			}
		}
		return all.String()
	}
	before := state()
	sections := readAllNetfilter(t.Context())
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("looking left a trace (+):\n%s", diff)
	}
	for i, section := range sections {
		got := section.GetStable().GetState()
		if got != isEmpty && got != isAbsent {
			t.Errorf("section %d: %v (%s), want empty or absent", i, got, section.GetStable().GetError())
		}
		names := map[int]string{3: "ip_tables_names", 4: "ip6_tables_names"}[i]
		if _, err := os.Stat("/proc/net/" + names); names != "" && (got == isAbsent) != (err != nil) {
			t.Errorf("%v although %s: %v", got, names, err)
		}
	}
}

// loadedModules keeps the names of modules: sizes and uses move by themselves.
func loadedModules(file string, content []byte) string {
	if file != "/proc/modules" {
		return string(content)
	}
	var names []string
	for line := range strings.Lines(string(content)) {
		names = append(names, strings.Fields(line)[0])
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}

const filterByNFT = `
table ip filter {
	chain KUBE-SERVICES { }
	chain KUBE-FORWARD { }
	chain OWN { }
	chain FORWARD {
		type filter hook forward priority 0;
		ct state new counter jump KUBE-SERVICES comment "kubernetes service portals"
		ct state != new counter jump KUBE-SERVICES comment "kubernetes service portals"
		ct state new,established counter jump KUBE-SERVICES comment "kubernetes service portals"
		ct state new ip daddr 10.0.0.1 counter jump KUBE-SERVICES comment "kubernetes service portals"
		ct direction original counter jump KUBE-SERVICES comment "kubernetes service portals"
		counter jump KUBE-SERVICES comment "kubernetes service portals"
		jump KUBE-FORWARD comment "kubernetes forwarding rules"
		goto KUBE-FORWARD comment "kubernetes forwarding rules"
	}
}
`

// nft's own words for a state, which newer versions of iptables-nft may use, are understood as the kernel gives them back.
func TestRulesInTheWordsOfNFT(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, filterByNFT, "nft", "-f", "-")
	facts := readNFTv4(t.Context()).GetStable().GetIptables()
	want := map[string]ownerCounts{
		"filter kube-proxy/iptables":  {1, 0, 1}, // KUBE-SERVICES, and its jump with ct state new
		"filter kube-proxy/shared":    {1, 0, 1}, // KUBE-FORWARD
		"filter foreign:unidentified": {1, 0, 0},
	}
	if diff := cmp.Diff(want, ownersRead(facts)); diff != "" {
		t.Errorf("by hand (-), read (+):\n%s", diff)
	}
	if got := facts.GetForeignReferenceCount(); got != 6 {
		t.Errorf("%d foreign references, want 6: %v", got, facts.GetForeignReferences())
	}
}

// Jumps of a map are in no rule, and yet the kernel counts them: with them the counts of the chains add up.
func TestJumpsOfMapsAddUp(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, `
table ip nat {
	chain A { counter; counter; }
	chain prerouting { type nat hook prerouting priority 0; ip protocol vmap { tcp : jump A, udp : jump A }; }
}
table ip other {
	chain A { counter; }
}
`, "nft", "-f", "-")
	s, err := openNFT()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	reader := &nftReader{socket: s, seed: maphash.MakeSeed()}
	snapshot, err := reader.snapshot(t.Context(), func(*nftSnapshot) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	nat := snapshot.tables[nftTableKey{unix.NFPROTO_IPV4, "nat"}]
	if !nat.addsUp() || nat.rules != 3 || nat.jumps != 2 || nat.sets != 0 {
		t.Errorf("table nat: adds up %v, %d rules, %d jumps, %d sets, want true, 3, 2 and 0", nat.addsUp(), nat.rules, nat.jumps, nat.sets)
	}
	var rules int
	err = reader.rulesOf(t.Context(), nat.nftTableKey, func(_ nftKind, object *nftObject) error {
		rules++
		if string(object.table) != "nat" || object.family != unix.NFPROTO_IPV4 {
			t.Errorf("a rule of table %s in family %d", object.table, object.family)
		}
		return nil
	})
	if err != nil || rules != 3 {
		t.Errorf("%d rules of table nat alone, %v, want 3", rules, err)
	}
}

// An answer that was not wanted any more does not end up in the next one.
func TestSocketGoesOnAfterAFailedVisit(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat")
	run(t, manyServices(300), "iptables-nft-restore")
	s, err := openNFT()
	if err != nil {
		t.Fatal(err)
	}
	reader := &nftReader{socket: s, seed: maphash.MakeSeed()}
	errEnough := errors.New("enough")
	for range 3 {
		if err := reader.rules(t.Context(), func(nftKind, *nftObject) error { return errEnough }); !errors.Is(err, errEnough) {
			t.Fatalf("error %v, want that of visit", err)
		}
	}
	var rules int
	if err := reader.rules(t.Context(), func(nftKind, *nftObject) error { rules++; return nil }); err != nil || rules != 1800 {
		t.Errorf("%d rules, %v, want 1800", rules, err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}

// No reading outlasts its context.
func TestNetfilterHeedsItsContext(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-legacy-restore", "ip6tables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "ip_tables", "ip6_tables")
	for _, tool := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		run(t, "*raw\n:A - [0:0]\nCOMMIT\n", tool)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	for _, section := range readAllNetfilter(ctx) {
		checkState(t, section, isUnreadable)
		if text := section.GetStable().GetError(); !strings.Contains(text, context.Canceled.Error()) {
			t.Errorf("error %q, want that of the context", text)
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// A legacy table is replaced as a whole: never is one version counted with another's chains.
func TestLegacyUnderChurn(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-legacy-restore")
	nstest.NeedKernel(t, "ip_tables")
	// Both versions have one size; the rules stand in other chains.
	versions := []string{
		"*filter\n:A - [0:0]\n:B - [0:0]\n-A INPUT -j A\n-A INPUT -j A\n-A FORWARD -j B\n-A A -j B\n-A A -j B\nCOMMIT\n",
		"*filter\n:A - [0:0]\n:B - [0:0]\n-A INPUT -j A\n-A FORWARD -j B\n-A FORWARD -j B\n-A A -j B\n-A B -j ACCEPT\nCOMMIT\n",
	}
	run(t, versions[0], "iptables-legacy-restore")
	stop := make(chan struct{})
	var owner sync.WaitGroup
	owner.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
				command := exec.Command("iptables-legacy-restore")
				command.Stdin = strings.NewReader(versions[i%2])
				if out, err := command.CombinedOutput(); err != nil {
					t.Errorf("restore: %v: %s", err, out)
					return
				}
			}
		}
	})
	want := []*offrampv1.IptablesTable{{Name: "filter", Chains: 5, Rules: 5}}
	states := map[offrampv1.SectionState]int{}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		section := readIptablesLegacy(t.Context(), DefaultHost(), kubeproxy.IPv4)
		state := section.GetStable().GetState()
		if states[state]++; state == isInconsistent {
			continue
		}
		facts := section.GetStable().GetIptables()
		if diff := cmp.Diff(want, facts.GetTables(), protocmp.Transform()); diff != "" {
			t.Fatalf("%v (%s): as restored (-), read (+):\n%s", state, section.GetStable().GetError(), diff)
		}
		inChains := facts.GetOwners()[0].GetRules()
		if inChains != 2 {
			t.Fatalf("%d rules in A and B, want 2 in either version", inChains)
		}
	}
	close(stop)
	owner.Wait()
	t.Logf("readings by state: %v", states)
}
