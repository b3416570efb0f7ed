package collect

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// detail asks a fresh scanner and returns all items.
func detail(t *testing.T, request *offrampv1.DetailRequest) ([]string, error) {
	t.Helper()
	var items []string
	err := New(Config{Host: DefaultHost()}).Detail(t.Context(), request, func(part []string) error {
		if len(part) == 0 || len(part) > maxPartItems {
			t.Errorf("a part of %d items", len(part))
		}
		items = append(items, part...)
		return nil
	})
	return items, err
}

func chainRequest(kind offrampv1.SectionKind, family, table, chain string) *offrampv1.DetailRequest {
	return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Chain{Chain: &offrampv1.ChainQuery{
		Section: kind, Family: family, Table: table, Chain: chain,
	}}}
}

// Every chain of real captures reads as iptables-save prints it, in both backends and families.
func TestChainsReadAsIptablesSavePrintsThem(t *testing.T) {
	kinds := []offrampv1.SectionKind{kindNFTIPv4, kindNFTIPv6, kindLegacyIPv4, kindLegacyIPv6}
	for _, capture := range []string{"ipvs", "iptables"} {
		t.Run(capture, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore", "ipset")
			nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables", "ip_set")
			if sets := readCapture(t, capture, "ipset-save.txt"); sets != "" {
				restoreSets(t, sets)
			}
			for i, backend := range append(nftBackends(), legacyBackends()...) {
				run(t, withoutMissing(t, readCapture(t, capture, backend.capture)), backend.restore)
				checkChains(t, kinds[i], run(t, "", backend.save))
			}
		})
	}
}

func checkChains(t *testing.T, kind offrampv1.SectionKind, saved string) {
	t.Helper()
	want := map[[2]string][]string{}
	eachSaved(saved, func(table, chain, rule string) {
		key := [2]string{table, chain}
		if rule == "" {
			want[key] = nil
		} else {
			want[key] = append(want[key], rule)
		}
	})
	equal, all := 0, 0
	for key, lines := range want {
		got, err := detail(t, chainRequest(kind, "", key[0], key[1]))
		if err != nil || len(got) != len(lines) {
			t.Fatalf("%v %v: %d items, %v; want %d", kind, key, len(got), err, len(lines))
		}
		for i := range lines {
			all++
			switch {
			case got[i] == lines[i]:
				equal++
			case !strings.Contains(got[i], " [rev "): // a match that is shown by its bytes
				t.Errorf("saved %s\n read %s", lines[i], got[i])
			}
		}
	}
	t.Logf("%v: %d of %d rules read as they are saved", kind, equal, all)
	if equal < all*95/100 || equal == 0 {
		t.Errorf("only %d of %d read as they are saved", equal, all)
	}
}

func serviceRequest(protocol string, port, nodePort uint32, addresses ...string) *offrampv1.DetailRequest {
	return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Service{Service: &offrampv1.ServiceQuery{
		Protocol: protocol, Addresses: addresses, Port: port, NodePort: nodePort,
	}}}
}

func wantItems(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, by hand (-) and as told (+):\n%s", what, diff)
	}
}

// Names are bytes, what is not there is said not to be, and what is not understood is shown by name and bytes.
func TestChainDetail(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore", "nft")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	const saved = "*nat\n:A - [0:0]\n:$(reboot) - [0:0]\n:odd\xff\\ - [0:0]\n" +
		"-A odd\xff\\ ! -i eth+ -o lo -j $(reboot)\n-A odd\xff\\ -g A\nCOMMIT\n"
	want := []string{`-A odd\xff\\ ! -i eth+ -o lo -j $(reboot)`, `-A odd\xff\\ -g A`}
	for _, backend := range []struct {
		restore string
		kind    offrampv1.SectionKind
	}{{"iptables-nft-restore", kindNFTIPv4}, {"iptables-legacy-restore", kindLegacyIPv4}} {
		run(t, saved, backend.restore)
		got, err := detail(t, chainRequest(backend.kind, "", "nat", `odd\xff\\`))
		wantItems(t, backend.restore, want, got)
		if err != nil {
			t.Error(err)
		}
		if got, err := detail(t, chainRequest(backend.kind, "", "nat", "A")); err != nil || got != nil {
			t.Errorf("an empty chain: %v, %v", got, err)
		}
		for _, request := range []*offrampv1.DetailRequest{
			chainRequest(backend.kind, "", "nat", "B"), chainRequest(backend.kind, "", "mangle", "A"), chainRequest(kindNFT, "inet", "nat", "A"),
			chainRequest(kindNFT, "x25", "nat", "A"),
		} {
			if got, err := detail(t, request); !errors.Is(err, ErrNotThere) || got != nil {
				t.Errorf("%v: %v, %v, want that it is not there", request, got, err)
			}
		}
	}
	if names := run(t, "", "cat", "/proc/net/ip_tables_names"); names != "nat\n" {
		t.Errorf("asking made tables: %q", names)
	}
	run(t, `table inet t {
	set s { type ipv4_addr . inet_service; }
	chain c {
		ip daddr . tcp dport @s counter drop
		meta mark set meta mark or 0x4000
		numgen random mod 2 vmap { 0 : accept, 1 : drop }
	}
}
`, "nft", "-f", "-")
	got, err := detail(t, chainRequest(kindNFT, "inet", "t", "c"))
	if err != nil || len(got) != 3 {
		t.Fatalf("%v, %v", got, err)
	}
	for i, part := range []string{"@s -j DROP", "[mark set mark", "[numgen "} {
		if !strings.Contains(got[i], part) {
			t.Errorf("%q does not say %q", got[i], part)
		}
	}
}

// An answer has a bound, and says when it was cut.
func TestDetailIsBounded(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, "table inet t {\nchain c {\n"+strings.Repeat("counter accept\n", maxDetailItems+5)+"}\n}\n", "nft", "-f", "-")
	got, err := detail(t, chainRequest(kindNFT, "inet", "t", "c"))
	if !errors.Is(err, ErrTooMany) || len(got) != maxDetailItems {
		t.Errorf("%d items, %v, want %d and that it was cut", len(got), err, maxDetailItems)
	}
}

// One Service of a real nftables mode: its elements, and the chains that they lead to.
func TestServiceDetailOfNFTables(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "nft")
	nstest.NeedKernel(t, "nf_tables")
	run(t, kubeProxyTables(readCapture(t, "nftables", "nft-ruleset.txt")), "nft", "-f", "-")
	got, err := detail(t, serviceRequest("TCP", 80, 0, "10.96.136.164"))
	if err != nil {
		t.Fatal(err)
	}
	wantItems(t, "a Service without endpoints", []string{
		"ip kube-proxy: map no-endpoint-services: TCP 10.96.136.164:80 : goto reject-chain",
		"ip kube-proxy: -A reject-chain [reject 08000100000000000500020003]",
	}, got)
	got, err = detail(t, serviceRequest("SCTP", 132, 0, "10.96.35.231", "fd00:10:96::1", "10.96.35.231"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(got, "\n")
	for _, part := range []string{
		"ip kube-proxy: map service-ips: SCTP 10.96.35.231:132 : goto service-", "/sctp/sctp/s", "__map",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the answer does not say %q:\n%s", part, text)
		}
	}
	got, err = detail(t, serviceRequest("TCP", 0, 30080))
	if err != nil || len(got) == 0 || !strings.HasPrefix(got[0], "ip kube-proxy: map service-nodeports: TCP node port 30080 : goto external-") {
		t.Errorf("a node port: %v, %v", got, err)
	}
	if got, err = detail(t, serviceRequest("UDP", 80, 0, "10.96.136.164")); err != nil || got != nil {
		t.Errorf("no Service: %v, %v", got, err)
	}
}

// kubeProxyTables cuts kube-proxy's tables out of a ruleset.
func kubeProxyTables(ruleset string) string {
	var tables strings.Builder
	inside := false
	for line := range strings.Lines(ruleset) {
		inside = inside || strings.HasPrefix(line, "table ip kube-proxy") || strings.HasPrefix(line, "table ip6 kube-proxy")
		if inside {
			tables.WriteString(line)
		}
		inside = inside && line != "}\n"
	}
	return tables.String()
}

// One Service of a real iptables mode, in either backend: its rules, and the chains that they lead to.
func TestServiceDetailOfIptables(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "iptables-legacy-restore")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables")
	saved := withoutMissing(t, readCapture(t, "iptables", "iptables-nft-save.txt"))
	for restore, prefix := range map[string]string{"iptables-nft-restore": "ip nat: ", "iptables-legacy-restore": "legacy ip nat: "} {
		run(t, saved, restore)
		got, err := detail(t, serviceRequest("TCP", 443, 0, "10.96.0.1"))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		eachSaved(saved, func(table, chain, rule string) {
			sep := "KUBE-SEP-" + savedTarget(saved, "KUBE-SVC-NPX46M4PTMTKRN6Y", "KUBE-SEP-")
			entrance := chain == "KUBE-SERVICES" && strings.Contains(rule, "-d 10.96.0.1/32 ")
			if rule != "" && table == "nat" && (entrance || chain == "KUBE-SVC-NPX46M4PTMTKRN6Y" || chain == sep || chain == "KUBE-MARK-MASQ") {
				want = append(want, prefix+rule)
			}
		})
		slices.Sort(want)
		slices.Sort(got)
		wantItems(t, restore, want, got)
		run(t, "*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n", restore)
	}
}

// savedTarget returns what follows prefix in the last jump of a chain.
func savedTarget(saved, chain, prefix string) string {
	found := ""
	eachSaved(saved, func(_, in, rule string) {
		if _, target, ok := strings.Cut(rule, "-j "+prefix); ok && in == chain {
			found = target
		}
	})
	return found
}

func TestServiceQueriesThatAreRefused(t *testing.T) {
	for name, request := range map[string]*offrampv1.DetailRequest{
		"no protocol":        serviceRequest("", 80, 0, "10.96.0.1"),
		"a protocol of ICMP": serviceRequest("ICMP", 80, 0, "10.96.0.1"),
		"a name":             serviceRequest("TCP", 80, 0, "$(reboot)"),
		"no port":            serviceRequest("TCP", 0, 0, "10.96.0.1"),
		"too large a port":   serviceRequest("TCP", 65536, 0, "10.96.0.1"),
		"too many":           serviceRequest("TCP", 80, 0, slices.Repeat([]string{"10.96.0.1"}, 33)...),
		"nothing":            {},
		"a broken name":      chainRequest(kindNFTIPv4, "", "nat", `\x`),
		"no chains there":    chainRequest(kindIPVS, "", "nat", "A"),
	} {
		if got, err := detail(t, request); err == nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func FuzzUnprintable(f *testing.F) {
	f.Add([]byte("a\\\xff$(reboot)"))
	f.Fuzz(func(t *testing.T, name []byte) {
		got, err := unprintable(printable(name))
		if err != nil || string(got) != string(name) {
			t.Errorf("%q came back as %q, %v", name, got, err)
		}
	})
}
