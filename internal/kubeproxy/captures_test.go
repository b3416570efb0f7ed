package kubeproxy_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// truth maps an object to its owner, as owners.txt of a capture says, and remembers what was asked for.
type truth struct {
	owners map[string]string
	asked  map[string]bool
}

func readTruth(t *testing.T, capture string) truth {
	t.Helper()
	out := truth{owners: map[string]string{}, asked: map[string]bool{}}
	for line := range strings.Lines(readFile(t, capture, "owners.txt")) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		cut := strings.LastIndex(line, "\t")
		out.owners[line[:cut]] = line[cut+1:]
	}
	return out
}

// check fails where the owner differs, and where the hand-written table does not name the object at all.
func (tr truth) check(t *testing.T, got kubeproxy.Owner, object ...string) {
	t.Helper()
	key := strings.Join(object, "\t")
	tr.asked[key] = true
	want, named := tr.owners[key]
	if !named {
		t.Errorf("owners.txt does not name %q", key)
		return
	}
	if string(got) != want {
		t.Errorf("owner of %q is %s, want %s", key, got, want)
	}
}

// complete fails where the table names what the capture does not hold.
func (tr truth) complete(t *testing.T) {
	t.Helper()
	for key := range tr.owners {
		if !tr.asked[key] {
			t.Errorf("owners.txt names %q, which the capture does not hold", key)
		}
	}
}

// readFile returns a file of a capture, "" where it would be empty.
func readFile(t *testing.T, capture, file string) string {
	t.Helper()
	content, err := captures.Read(capture, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

func TestEveryObjectOfEveryCaptureHasItsOwner(t *testing.T) {
	names := captures.Names()
	if len(names) != 7 {
		t.Fatalf("%d captures, want 7: %v", len(names), names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			want := readTruth(t, name)
			checkIPTables(t, want, "ipv4", parseSave(t, readFile(t, name, "iptables-nft-save.txt"), kubeproxy.IPv4))
			checkIPTables(t, want, "ipv6", parseSave(t, readFile(t, name, "ip6tables-nft-save.txt"), kubeproxy.IPv6))
			checkTables(t, want, readFile(t, name, "nft-ruleset.txt"))
			checkNfacct(t, want, readFile(t, name, "nfacct.txt"))
			checkServersAndSets(t, want, name)
			want.complete(t)
		})
	}
}

func checkIPTables(t *testing.T, want truth, family string, got saved) {
	t.Helper()
	if len(got.chains) == 0 && family == "ipv4" {
		t.Error("no chain was read: the reader of the test is broken")
	}
	for _, chain := range got.chains {
		want.check(t, kubeproxy.ChainOwner(chain), "chain", family, chain.Table, chain.Name)
	}
	for _, jump := range got.jumps {
		if kubeproxy.BuiltinChain(jump.Table, jump.From) {
			want.check(t, kubeproxy.JumpOwner(jump.Jump), "jump", family, jump.Table, jump.text)
			continue
		}
		want.check(t, kubeproxy.JumpOwner(jump.Jump), "chain", family, jump.Table, jump.From)
	}
}

func checkTables(t *testing.T, want truth, ruleset string) {
	t.Helper()
	for line := range strings.Lines(ruleset) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "table" {
			table := kubeproxy.Table{Family: fields[1], Name: fields[2]}
			want.check(t, kubeproxy.TableOwner(table), "table", table.Family, table.Name)
		}
	}
}

func checkNfacct(t *testing.T, want truth, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		_, name, _ := strings.Cut(strings.TrimRight(line, ";\n"), "} = ")
		want.check(t, kubeproxy.NfacctOwner(name), "nfacct", name)
	}
}

func checkServersAndSets(t *testing.T, want truth, capture string) {
	t.Helper()
	sets := parseSets(t, readFile(t, capture, "ipset-save.txt"))
	families := map[kubeproxy.Family]string{kubeproxy.FamilyAny: "-", kubeproxy.IPv4: "ipv4", kubeproxy.IPv6: "ipv6"}
	for _, set := range sets.sets {
		want.check(t, kubeproxy.SetOwner(set), "set", families[set.Family], set.Type, set.Name)
	}
	addresses := parseAddresses(t, readFile(t, capture, "ip-addr.txt"))
	for _, link := range addresses.links {
		kind := link.Type
		if kind == "" {
			kind = "-"
		}
		want.check(t, kubeproxy.LinkOwner(link), "link", link.Name, kind)
	}
	for _, server := range parseServers(t, readFile(t, capture, "ipvsadm-save.txt")) {
		owner, reason := kubeproxy.VirtualServerOwner(server, sets, addresses, nil)
		want.check(t, owner, "server", server.Protocol, server.Address.String())
		if reason == "" {
			t.Errorf("no reason for %v", server)
		}
	}
}

func TestSharedChainsModeOfEveryCapture(t *testing.T) {
	const none, unknown = offrampv1.ProxyMode_PROXY_MODE_NONE, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN
	const ipvs, iptables = offrampv1.ProxyMode_PROXY_MODE_IPVS, offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	want := map[string][2]offrampv1.ProxyMode{ // IPv4, IPv6
		"ipvs":                     {ipvs, ipvs},
		"iptables":                 {iptables, iptables},
		"nftables":                 {none, none},
		"ipvs-then-iptables":       {iptables, iptables},
		"ipvs-then-nftables":       {none, none},
		"after-kube-proxy-cleanup": {none, none},
		"iptables-sync-failed":     {ipvs, unknown}, // ip6tables-restore failed half way: the chain is empty
	}
	for _, name := range captures.Names() {
		got := [2]offrampv1.ProxyMode{
			sharedMode(parseSave(t, readFile(t, name, "iptables-nft-save.txt"), kubeproxy.IPv4)),
			sharedMode(parseSave(t, readFile(t, name, "ip6tables-nft-save.txt"), kubeproxy.IPv6)),
		}
		if got != want[name] {
			t.Errorf("%s: shared chains are of %v, want %v", name, got, want[name])
		}
	}
	if got := kubeproxy.SharedChainsMode(nil); got != unknown {
		t.Errorf("an emptied chain is of %v, want %v", got, unknown)
	}
}

func sharedMode(save saved) offrampv1.ProxyMode {
	for _, chain := range save.chains {
		if chain.Table == "nat" && chain.Name == "KUBE-SERVICES" {
			return kubeproxy.SharedChainsMode(save.services)
		}
	}
	return offrampv1.ProxyMode_PROXY_MODE_NONE
}
