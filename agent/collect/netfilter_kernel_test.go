package collect

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	isPresent = offrampv1.SectionState_SECTION_STATE_PRESENT
	isEmpty   = offrampv1.SectionState_SECTION_STATE_EMPTY
	isAbsent  = offrampv1.SectionState_SECTION_STATE_ABSENT
)

// backend is one iptables backend and family, and its native tools.
type backend struct {
	name, family           string // family as owners.txt writes it
	restore, save, capture string
	read                   func(context.Context) *offrampv1.Section
}

// readNetfilter reads nf_tables with a reader that remembers nothing.
func readNetfilter(ctx context.Context, host Host, mods *modules) (v4, v6, native *offrampv1.Section) {
	sections := newRuleReader(host, mods).readNFT(ctx)
	return sections[0], sections[1], sections[2]
}

func readIptablesLegacy(ctx context.Context, host Host, family kubeproxy.Family) *offrampv1.Section {
	return newRuleReader(host, newModules(host)).readLegacy(ctx, family)
}

func nftBackends() []backend {
	return []backend{
		{
			name: "nft ipv4", family: "ipv4", restore: "iptables-nft-restore", save: "iptables-nft-save",
			capture: "iptables-nft-save.txt", read: readNFTv4,
		},
		{
			name: "nft ipv6", family: "ipv6", restore: "ip6tables-nft-restore", save: "ip6tables-nft-save",
			capture: "ip6tables-nft-save.txt", read: readNFTv6,
		},
	}
}

func legacyBackends() []backend {
	return []backend{
		{
			name: "legacy ipv4", family: "ipv4", restore: "iptables-legacy-restore", save: "iptables-legacy-save",
			capture: "iptables-nft-save.txt", read: func(ctx context.Context) *offrampv1.Section {
				return readIptablesLegacy(ctx, DefaultHost(), kubeproxy.IPv4)
			},
		},
		{
			name: "legacy ipv6", family: "ipv6", restore: "ip6tables-legacy-restore", save: "ip6tables-legacy-save",
			capture: "ip6tables-nft-save.txt", read: func(ctx context.Context) *offrampv1.Section {
				return readIptablesLegacy(ctx, DefaultHost(), kubeproxy.IPv6)
			},
		},
	}
}

func readNFTv4(ctx context.Context) *offrampv1.Section {
	section, _, _ := readNetfilter(ctx, DefaultHost(), newModules(DefaultHost()))
	return section
}

func readNFTv6(ctx context.Context) *offrampv1.Section {
	_, section, _ := readNetfilter(ctx, DefaultHost(), newModules(DefaultHost()))
	return section
}

// Every capture, restored into either backend, is read back as the native tool counts it, and its jumps and chains have
// the owners that owners.txt gives them by hand.
func TestCapturesReadBackAsTheNativeToolsSay(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	nstest.NeedTool(t, "iptables-nft-restore", "ip6tables-nft-restore", "iptables-legacy-restore", "ip6tables-legacy-restore", "ipset")
	nstest.NeedKernel(t, "nf_tables", "nft_compat", "ip_tables", "ip6_tables", "ip_set")
	for _, name := range captures.Names() {
		t.Run(name, func(t *testing.T) {
			if !nstest.Enter(t) {
				return
			}
			if sets := readCapture(t, name, "ipset-save.txt"); sets != "" {
				restoreSets(t, sets)
			}
			for _, backend := range append(nftBackends(), legacyBackends()...) {
				t.Run(backend.name, func(t *testing.T) { checkCapture(t, name, backend) })
			}
		})
	}
}

func checkCapture(t *testing.T, name string, backend backend) {
	t.Helper()
	run(t, withoutMissing(t, readCapture(t, name, backend.capture)), backend.restore)
	saved := run(t, "", backend.save)
	section := backend.read(t.Context())
	if state := section.GetStable().GetState(); state != isPresent {
		t.Fatalf("state %v (%s), want present", state, section.GetStable().GetError())
	}
	facts := section.GetStable().GetIptables()
	if diff := cmp.Diff(tablesOf(saved), facts.GetTables(), protocmp.Transform()); diff != "" {
		t.Errorf("tables, as %s prints them (-) and as read (+):\n%s", backend.save, diff)
	}
	if diff := cmp.Diff(ownersOf(t, name, backend.family, saved), ownersRead(facts)); diff != "" {
		t.Errorf("chains, rules and jumps by owner, as written by hand (-) and as read (+):\n%s", diff)
	}
	if len(facts.GetForeignReferences()) != 0 || facts.GetForeignReferenceCount() != 0 {
		t.Errorf("foreign references %v in a node that has none", facts.GetForeignReferences())
	}
	if want := sharedMode(name, backend.family); facts.GetSharedChainsMode() != want {
		t.Errorf("shared chains are of %v, want %v", facts.GetSharedChainsMode(), want)
	}
}

// sharedMode is written by hand from the save files: who filled nat KUBE-SERVICES last.
func sharedMode(capture, family string) offrampv1.ProxyMode {
	switch capture + " " + family {
	case "iptables ipv4", "iptables ipv6", "ipvs-then-iptables ipv4", "ipvs-then-iptables ipv6":
		return offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	case "ipvs ipv4", "ipvs ipv6", "iptables-sync-failed ipv4":
		return offrampv1.ProxyMode_PROXY_MODE_IPVS // a sync that failed left the rules of ipvs mode
	case "iptables-sync-failed ipv6":
		return offrampv1.ProxyMode_PROXY_MODE_UNKNOWN // the chain is empty there
	default:
		return offrampv1.ProxyMode_PROXY_MODE_NONE // no such chain
	}
}

// ownerCounts is what one owner has in one table.
type ownerCounts struct{ Chains, Rules, Jumps uint64 }

func ownersRead(facts *offrampv1.IptablesFacts) map[string]ownerCounts {
	counts := map[string]ownerCounts{}
	for _, owner := range facts.GetOwners() {
		counts[owner.GetTable()+" "+owner.GetOwner()] = ownerCounts{owner.GetChains(), owner.GetRules(), owner.GetJumps()}
	}
	return counts
}

// ownersOf counts what a save file holds by the owners of a capture's owners.txt.
func ownersOf(t *testing.T, capture, family, saved string) map[string]ownerCounts {
	t.Helper()
	owners := map[string]string{} // "chain TABLE NAME" or "jump TABLE LINE" to owner
	for line := range strings.Lines(readCapture(t, capture, "owners.txt")) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) == 5 && fields[1] == family {
			owners[fields[0]+" "+fields[2]+" "+fields[3]] = fields[4]
		}
	}
	counts := map[string]ownerCounts{}
	add := func(table, owner string, chains, rules, jumps uint64) {
		c := counts[table+" "+owner]
		counts[table+" "+owner] = ownerCounts{c.Chains + chains, c.Rules + rules, c.Jumps + jumps}
	}
	eachSaved(saved, func(table, chain, rule string) {
		switch owner, owned := owners["chain "+table+" "+chain]; {
		case rule == "" && owned:
			add(table, owner, 1, 0, 0)
		case owned:
			add(table, owner, 0, 1, 0)
		case rule != "":
			if jumpOwner, ok := owners["jump "+table+" "+rule]; ok {
				add(table, jumpOwner, 0, 0, 1)
			} else {
				t.Errorf("owners.txt has no owner for %s %s", table, rule)
			}
		}
	})
	return counts
}

// tablesOf counts what a save file holds.
func tablesOf(saved string) []*offrampv1.IptablesTable {
	byName := map[string]*offrampv1.IptablesTable{}
	var tables []*offrampv1.IptablesTable
	eachSaved(saved, func(name, _, rule string) {
		if byName[name] == nil {
			byName[name] = &offrampv1.IptablesTable{Name: name}
			tables = append(tables, byName[name])
		}
		if rule == "" {
			byName[name].Chains++
		} else {
			byName[name].Rules++
		}
	})
	sortTables(tables)
	return tables
}

func sortTables(tables []*offrampv1.IptablesTable) {
	for i := range tables {
		for j := i; j > 0 && tables[j].GetName() < tables[j-1].GetName(); j-- {
			tables[j], tables[j-1] = tables[j-1], tables[j]
		}
	}
}

// eachSaved walks what iptables-save prints: each chain with rule "", then each rule.
func eachSaved(saved string, visit func(table, chain, rule string)) {
	table := ""
	for line := range strings.Lines(saved) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":"):
			visit(table, strings.Fields(line)[0][1:], "")
		case strings.HasPrefix(line, "-A "):
			visit(table, strings.Fields(line)[1], line)
		}
	}
}

// withoutMissing drops the rules that count into accounting objects, which nothing here makes, and those with a match on
// IPVS where the kernel has none of it.
func withoutMissing(t *testing.T, saved string) string {
	t.Helper()
	missing := []string{"nfacct"}
	if _, err := os.Stat("/sys/module/xt_ipvs"); err != nil {
		missing = append(missing, "ipvs")
	}
	for _, match := range missing {
		pattern := regexp.MustCompile(`(?m)^-A .* -m ` + match + ` .*\n`)
		if dropped := pattern.FindAllString(saved, -1); len(dropped) > 0 {
			t.Logf("%d rules of the capture with a match %s are left out", len(dropped), match)
		}
		saved = pattern.ReplaceAllString(saved, "")
	}
	return saved
}

func readCapture(t *testing.T, name, file string) string {
	t.Helper()
	content, err := captures.Read(name, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(content)
}

// run runs a program to its end and returns its standard output.
func run(t *testing.T, stdin string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Stdin = strings.NewReader(stdin)
	var out, messages bytes.Buffer
	command.Stdout, command.Stderr = &out, &messages
	if err := command.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, messages.String())
	}
	return out.String()
}
