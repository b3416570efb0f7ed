package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	isUnreadable   = offrampv1.SectionState_SECTION_STATE_UNREADABLE
	isInconsistent = offrampv1.SectionState_SECTION_STATE_INCONSISTENT
)

func checkState(t *testing.T, section *offrampv1.Section, want offrampv1.SectionState) {
	t.Helper()
	if got := section.GetStable().GetState(); got != want {
		t.Errorf("%v: state %v (%s), want %v", section.GetKind(), got, section.GetStable().GetError(), want)
	}
}

// Without nf_tables in sight it is absent, and where that cannot be told it is unreadable; in neither case is it asked.
func TestNetfilterAsksOnlyWhatIsThere(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  offrampv1.SectionState
	}{
		"no nfnetlink": {map[string]string{"proc/net/netlink": netlinkHeading, "proc/modules": ""}, isAbsent},
		"no nf_tables": {map[string]string{
			"proc/net/netlink": netlinkHeading + netlinkFilter, "proc/modules": "", "proc/kallsyms": symbolsOther,
		}, isAbsent},
		"no kallsyms": {map[string]string{"proc/net/netlink": netlinkHeading + netlinkFilter, "proc/modules": ""}, isUnreadable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host := hostOf(t, test.files)
			v4, v6, native := readNetfilter(t.Context(), host, newModules(host))
			for i, kind := range []offrampv1.SectionKind{kindNFTIPv4, kindNFTIPv6, kindNFT} {
				section := []*offrampv1.Section{v4, v6, native}[i]
				checkState(t, section, test.want)
				if section.GetKind() != kind {
					t.Errorf("kind %v, want %v", section.GetKind(), kind)
				}
			}
		})
	}
}

func TestLegacyStatesByTheListOfTables(t *testing.T) {
	for family, file := range map[kubeproxy.Family]string{kubeproxy.IPv4: "ip_tables_names", kubeproxy.IPv6: "ip6_tables_names"} {
		checkState(t, readIptablesLegacy(t.Context(), hostOf(t, nil), family), isAbsent)
		checkState(t, readIptablesLegacy(t.Context(), hostOf(t, map[string]string{"proc/net/" + file: ""}), family), isEmpty)
		host := hostOf(t, map[string]string{"proc/net/" + file + "/in-the-way": ""})
		checkState(t, readIptablesLegacy(t.Context(), host, family), isUnreadable)
		// A table that the kernel never heard of: the list is not this kernel's.
		host = hostOf(t, map[string]string{"proc/net/" + file: "no-such-table\n"})
		checkState(t, readIptablesLegacy(t.Context(), host, family), isUnreadable)
	}
}

// traces is what looking must not change.
func traces(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range []string{"ip_tables_names", "ip6_tables_names"} {
		content, err := os.ReadFile(filepath.Join("/proc/net", file))
		fmt.Fprintf(&all, "%s %q %v\n", file, content, err)
	}
	modules, _ := os.ReadFile("/proc/modules")
	fmt.Fprintf(&all, "%s\n%s\n", modules, run(t, "", "nft", "list", "ruleset"))
	return all.String()
}

func readAllNetfilter(ctx context.Context) []*offrampv1.Section {
	v4, v6, native := readNetfilter(ctx, DefaultHost(), newModules(DefaultHost()))
	return []*offrampv1.Section{
		v4, v6, native,
		readIptablesLegacy(ctx, DefaultHost(), kubeproxy.IPv4), readIptablesLegacy(ctx, DefaultHost(), kubeproxy.IPv6),
	}
}

// Looking changes nothing, neither where nothing is nor where something is; and nothing is reported as empty.
func TestNetfilterLeavesNoTrace(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft", "iptables-nft-restore", "iptables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables")
	before := traces(t)
	sections := readAllNetfilter(t.Context())
	for _, section := range sections {
		checkState(t, section, isEmpty)
	}
	generation := sections[2].GetVolatile().GetNftables().GetGeneration()
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("looking at nothing left a trace (+):\n%s", diff)
	}
	run(t, "*raw\n:A - [0:0]\nCOMMIT\n", "iptables-nft-restore")
	run(t, "*raw\n:A - [0:0]\nCOMMIT\n", "iptables-legacy-restore")
	before = traces(t)
	sections = readAllNetfilter(t.Context())
	for i, want := range []offrampv1.SectionState{isPresent, isEmpty, isEmpty, isPresent, isEmpty} {
		checkState(t, sections[i], want)
	}
	if diff := cmp.Diff(before, traces(t)); diff != "" {
		t.Errorf("looking at something left a trace (+):\n%s", diff)
	}
	again := readAllNetfilter(t.Context())[2].GetVolatile().GetNftables().GetGeneration()
	if now := sections[2].GetVolatile().GetNftables().GetGeneration(); now == generation || now != again {
		t.Errorf("generations %d, after a change %d, after looking %d", generation, now, again)
	}
}

// Without CAP_NET_ADMIN nothing may be concluded.
func TestNetfilterWithoutPrivilege(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-legacy-restore", "ip6tables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "ip_tables", "ip6_tables")
	for _, tool := range []string{"iptables-legacy-restore", "ip6tables-legacy-restore"} {
		run(t, "*raw\n:A - [0:0]\nCOMMIT\n", tool)
	}
	answers := make(chan []*offrampv1.Section)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
		}
		answers <- readAllNetfilter(t.Context())
	}()
	for _, section := range <-answers {
		checkState(t, section, isUnreadable)
		if text := section.GetStable().GetError(); !strings.Contains(text, "not permitted") && !strings.Contains(text, "denied") {
			t.Errorf("error %q does not say why", text)
		}
	}
}

const nativeTables = `
table ip kube-proxy {
	map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; }
	set cluster-ips { type ipv4_addr; elements = { 10.96.0.1 } }
	chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
	chain nat-output { type nat hook output priority -100; jump services; }
	chain check { ct state new ip daddr { 10.0.0.1, 10.0.0.2 } drop; }
}
table ip6 kube-proxy {
	chain services { }
}
table inet kube-proxy {
	chain mine { accept; }
}
table inet firewalld {
	chain b { }
	chain a { jump b; }
}
table arp filter {
	chain INPUT { type filter hook input priority 0; }
}
table bridge filter { }
table netdev mine { }
table ip nat {
	chain prerouting { type nat hook prerouting priority 0; counter accept; }
}
`

// Native tables are counted as nft lists them. A table "nat" of nft's own is one that iptables-nft works in too.
func TestNativeTables(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, nativeTables, "nft", "-f", "-")
	_, _, section := readNetfilter(t.Context(), DefaultHost(), newModules(DefaultHost()))
	facts := section.GetStable().GetNftables()
	owners := map[string]string{
		"ip kube-proxy": "kube-proxy/nftables", "ip6 kube-proxy": "kube-proxy/nftables", "inet kube-proxy": "foreign:unidentified",
		"inet firewalld": "foreign:firewalld", "arp filter": "foreign:iptables-nft", "bridge filter": "foreign:iptables-nft",
		"netdev mine": "foreign:unidentified",
	}
	want := listedTables(t)
	delete(want, "ip nat")
	got := map[string]*offrampv1.NftTable{}
	for _, table := range facts.GetSamples() {
		got[table.GetFamily()+" "+table.GetName()] = table
	}
	for key, table := range want {
		table.Owner = owners[key]
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(), countsOnly()); diff != "" {
		t.Errorf("as nft lists them (-), read (+):\n%s", diff)
	}
	if facts.GetTables() != 7 || len(facts.GetOwners()) != 4 {
		t.Errorf("%d tables of %v, want 7 of 4 owners", facts.GetTables(), facts.GetOwners())
	}
	ipv4 := readNFTv4(t.Context()).GetStable().GetIptables()
	wantNAT := []*offrampv1.IptablesTable{{Name: "nat", Chains: 1, Rules: 1}}
	if diff := cmp.Diff(wantNAT, ipv4.GetTables(), protocmp.Transform()); diff != "" {
		t.Errorf("table ip nat (-), read (+):\n%s", diff)
	}
}

// countsOnly leaves out what is looked at elsewhere.
func countsOnly() cmp.Option {
	return protocmp.IgnoreFields(&offrampv1.NftTable{}, "base_chains", "set_samples")
}

// listedTables counts what nft lists, by "FAMILY NAME".
func listedTables(t *testing.T) map[string]*offrampv1.NftTable {
	t.Helper()
	var listing struct {
		Nftables []map[string]struct{ Family, Name, Table string }
	}
	if err := json.NewDecoder(strings.NewReader(run(t, "", "nft", "-j", "list", "ruleset"))).Decode(&listing); err != nil {
		t.Fatal(err)
	}
	tables := map[string]*offrampv1.NftTable{}
	for _, object := range listing.Nftables {
		for kind, value := range object {
			switch key := value.Family + " " + value.Table; kind {
			case "table":
				tables[value.Family+" "+value.Name] = &offrampv1.NftTable{Family: value.Family, Name: value.Name}
			case "chain":
				tables[key].Chains++
			case "set", "map":
				tables[key].Sets++
			case "rule":
				tables[key].Rules++
			}
		}
	}
	return tables
}

const foreignZoo = `*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:KUBE-HOSTPORTS - [0:0]
:KUBE-HP-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-SVC-TOOSHORT - [0:0]
:$(reboot) - [0:0]
:` + "odd\xff\xfename" + ` - [0:0]
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j KUBE-MARK-MASQ
-A PREROUTING -m comment --comment "kubernetes service portals" -g KUBE-MARK-MASQ
-A PREROUTING -j KUBE-HOSTPORTS
-A ` + "odd\xff\xfename" + ` -m comment --comment "` + "\xff`id`" + `" -j $(reboot)
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
:KUBE-NWPLCY-ABCDEFGHIJKLMNOP - [0:0]
:KUBE-POD-FW-ABCDEFGHIJKLMNOP - [0:0]
:cali-INPUT - [0:0]
-A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-A INPUT -m comment --comment "cali:Cz_u1IQiXIMmKD4c" -j cali-INPUT
-A FORWARD -p tcp -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m state --state NEW -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
COMMIT
`

// Other people's chains stay other people's, in either backend; what refers to kube-proxy's is listed.
func TestForeignZoo(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables")
	want := map[string]ownerCounts{ // by hand
		"nat kube-proxy/shared": {1, 0, 0}, "nat kubelet": {1, 0, 0}, "nat foreign:cni-portmap": {1, 1, 0},
		"nat foreign:cri-o": {2, 0, 1}, "nat unknown": {1, 0, 0}, "nat foreign:unidentified": {2, 1, 0},
		"filter kube-proxy/shared": {1, 0, 1}, "filter foreign:kube-router": {3, 0, 1}, "filter foreign:calico": {1, 0, 1},
	}
	references := []*offrampv1.ForeignReference{
		{Table: "filter", FromChain: "FORWARD", ToChain: "KUBE-FORWARD"}, {Table: "filter", FromChain: "FORWARD", ToChain: "KUBE-FORWARD"},
		{Table: "nat", FromChain: "CNI-HOSTPORT-SETMARK", ToChain: "KUBE-MARK-MASQ"}, {Table: "nat", FromChain: "PREROUTING", ToChain: "KUBE-MARK-MASQ"},
	}
	for _, backend := range append(nftBackends(), legacyBackends()...) {
		run(t, foreignZoo, backend.restore)
		facts := backend.read(t.Context()).GetStable().GetIptables()
		if diff := cmp.Diff(tablesOf(run(t, "", backend.save)), facts.GetTables(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: tables, as saved (-) and as read (+):\n%s", backend.name, diff)
		}
		if diff := cmp.Diff(want, ownersRead(facts)); diff != "" {
			t.Errorf("%s: owners, by hand (-) and as read (+):\n%s", backend.name, diff)
		}
		if diff := cmp.Diff(references, facts.GetForeignReferences(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: references, by hand (-) and as read (+):\n%s", backend.name, diff)
		}
	}
}

// While others commit, and fail to commit, without pause, a reading is right or says that it is none.
func TestNetfilterUnderChurn(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft", "iptables-nft-restore", "iptables-nft")
	nstest.NeedKernel(t, "nf_tables", "nft_compat")
	run(t, manyServices(300), "iptables-nft-restore")
	run(t, "table inet steady {\nchain used { }\nchain a {\njump used\n"+strings.Repeat("counter accept\n", 1499)+"}\n}\n", "nft", "-f", "-")
	busy := "table inet busy { chain a { accept; }; chain b { accept; accept; }; set s { type ipv4_addr; }; }\n"
	failing := "*nat\n" + strings.Repeat("-I KUBE-SERVICES 1 -j ACCEPT\n", 400) + "-X KUBE-MARK-MASQ\nCOMMIT\n" // which is in use
	stop := make(chan struct{})
	failingToo := strings.Repeat("insert rule inet steady a counter drop\n", 300) + "delete chain inet steady used\n"
	done := make(chan int, 3)
	churn := func(work func() bool) {
		rounds := 0
		for {
			select {
			case <-stop:
				done <- rounds
				return
			default:
			}
			if work() {
				rounds++
			}
		}
	}
	feed := func(stdin, name string, args ...string) error {
		command := exec.Command(name, args...)
		command.Stdin = strings.NewReader(stdin)
		return command.Run()
	}
	go churn(func() bool {
		return feed("add table inet busy\ndelete table inet busy\n"+busy, "nft", "-f", "-") == nil && feed("delete table inet busy\n", "nft", "-f", "-") == nil
	})
	go churn(func() bool { return feed(failingToo, "nft", "-f", "-") != nil })
	go churn(func() bool { return feed(failing, "iptables-nft-restore", "--noflush") != nil })
	consistent, inconsistent := 0, 0
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		v4, _, native := readNetfilter(ctx, DefaultHost(), newModules(DefaultHost()))
		late := ctx.Err() != nil // in a guest that runs in software
		cancel()
		if late || native.GetStable().GetState() == isInconsistent {
			inconsistent++
			continue
		}
		consistent++
		checkChurned(t, v4, native)
	}
	close(stop)
	rounds := <-done + <-done + <-done
	t.Logf("%d consistent readings, %d inconsistent ones, %d rounds of churn", consistent, inconsistent, rounds)
	if rounds < 10 || consistent+inconsistent == 0 {
		t.Error("nothing was tried")
	}
}

func checkChurned(t *testing.T, v4, native *offrampv1.Section) {
	t.Helper()
	// No rule stands in a built-in chain, so that iptables-nft makes none of them.
	want := []*offrampv1.IptablesTable{{Name: "nat", Chains: 602, Rules: 1800}}
	if diff := cmp.Diff(want, v4.GetStable().GetIptables().GetTables(), protocmp.Transform(), countsOnly()); diff != "" {
		t.Errorf("as restored (-), read while it was said to be consistent (+):\n%s", diff)
	}
	for _, table := range native.GetStable().GetNftables().GetSamples() {
		whole := &offrampv1.NftTable{Family: "inet", Name: "busy", Chains: 2, Rules: 3, Sets: 1, Owner: "foreign:unidentified"}
		if table.GetName() == "steady" {
			whole.Name, whole.Rules, whole.Sets = "steady", 1500, 0
		}
		if diff := cmp.Diff(whole, table, protocmp.Transform(), countsOnly()); diff != "" {
			t.Errorf("as made (-), read while it was said to be consistent (+):\n%s", diff)
		}
	}
}
