package readiness_test

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/captures"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// captureFacts makes a node's facts of a capture: owners from the table that was written by hand (owners.txt), numbers
// from the native tools' files. It is no reader of the product's.
func captureFacts(t *testing.T, capture string, mode offrampv1.ProxyMode) *offrampv1.NodeFacts {
	t.Helper()
	owned := readOwned(t, capture)
	facts := &offrampv1.NodeFacts{Node: "node-0"}
	add := func(kind offrampv1.SectionKind, empty bool, stable *offrampv1.SectionStable, volatile *offrampv1.SectionVolatile) {
		stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		if empty {
			stable = &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT}
		}
		facts.Sections = append(facts.Sections, &offrampv1.Section{Kind: kind, Stable: stable, Volatile: volatile})
	}
	add(kinds.kernel, false, kernelSection(), nil)
	stable, volatile := kubeProxySection(t, capture, mode)
	add(kinds.kubeProxy, false, stable, volatile)
	add(kinds.ipvs, len(owned.servers) == 0, owned.ipvs(), nil)
	add(kinds.link, owned.link == "", owned.ipvsLink(t, capture), nil)
	add(kinds.ipsets, len(owned.sets) == 0, owned.ipsets(t, capture), nil)
	add(kinds.nft4, false, owned.iptables("ipv4", sharedModes(capture)[0]), nil)
	add(kinds.nft6, false, owned.iptables("ipv6", sharedModes(capture)[1]), nil)
	add(kinds.legacy4, true, &offrampv1.SectionStable{}, nil)
	add(kinds.legacy6, true, &offrampv1.SectionStable{}, nil)
	add(kinds.nftables, false, owned.nftables(), nil)
	add(kinds.sysctls, false, sysctlsSection(t, capture), nil)
	add(kinds.addresses, true, &offrampv1.SectionStable{}, nil)
	add(kinds.history, true, &offrampv1.SectionStable{}, nil)
	add(kinds.host, true, &offrampv1.SectionStable{}, nil)
	return facts
}

// kinds are short names of the sections.
var kinds = struct {
	kernel, kubeProxy, ipvs, link, ipsets, nft4, nft6, legacy4, legacy6, nftables, sysctls, addresses, history, host offrampv1.SectionKind
}{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}

// sharedModes is who filled nat KUBE-SERVICES, IPv4 and IPv6, read by a person.
func sharedModes(capture string) [2]offrampv1.ProxyMode {
	const ipvs, iptables = offrampv1.ProxyMode_PROXY_MODE_IPVS, offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	switch capture {
	case "ipvs":
		return [2]offrampv1.ProxyMode{ipvs, ipvs}
	case "iptables", "ipvs-then-iptables":
		return [2]offrampv1.ProxyMode{iptables, iptables}
	case "iptables-sync-failed":
		return [2]offrampv1.ProxyMode{ipvs, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN}
	default:
		return [2]offrampv1.ProxyMode{offrampv1.ProxyMode_PROXY_MODE_NONE, offrampv1.ProxyMode_PROXY_MODE_NONE}
	}
}

func kernelSection() *offrampv1.SectionStable {
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Kernel{Kernel: &offrampv1.KernelFacts{
		Release: "6.1.0-57-cloud-amd64", Major: 6, Minor: 1,
	}}}
}

// kubeProxySection tells what kube-proxy said; no answer at all where the capture has none.
func kubeProxySection(
	t *testing.T, capture string, asserted offrampv1.ProxyMode,
) (*offrampv1.SectionStable, *offrampv1.SectionVolatile) {
	t.Helper()
	modes := map[string]offrampv1.ProxyMode{
		"ipvs": offrampv1.ProxyMode_PROXY_MODE_IPVS, "iptables": offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
		"nftables": offrampv1.ProxyMode_PROXY_MODE_NFTABLES, "": offrampv1.ProxyMode_PROXY_MODE_UNKNOWN,
	}
	proxy := &offrampv1.KubeProxyFacts{
		RunningMode: modes[fileOf(t, capture, "proxyMode.txt")], HostProcessesVisible: true,
	}
	volatile := &offrampv1.KubeProxyVolatile{}
	if proxy.RunningMode != offrampv1.ProxyMode_PROXY_MODE_UNKNOWN {
		proxy.Processes = []*offrampv1.KubeProxyProcess{{Pid: 7, Name: "kube-proxy"}}
		proxy.Families = []offrampv1.AddressFamily{1, 2}
		volatile.HealthStatus = 200
		volatile.Syncs = []*offrampv1.FamilySync{syncOf(t, capture, 1, "IPv4"), syncOf(t, capture, 2, "IPv6")}
	}
	if asserted != 0 {
		proxy.RunningMode = asserted
	}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: proxy}},
		&offrampv1.SectionVolatile{Content: &offrampv1.SectionVolatile_KubeProxy{KubeProxy: volatile}}
}

func syncOf(t *testing.T, capture string, family offrampv1.AddressFamily, label string) *offrampv1.FamilySync {
	t.Helper()
	at := func(metric string) *timestamppb.Timestamp {
		_, rest, found := strings.Cut(fileOf(t, capture, "metrics.txt"), "\n"+metric+`{ip_family="`+label+`"} `)
		if !found {
			return nil
		}
		value, _, _ := strings.Cut(rest, "\n")
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		return timestamppb.New(time.UnixMicro(int64(seconds * 1e6)))
	}
	return &offrampv1.FamilySync{
		Family: family, LastSync: at("kubeproxy_sync_proxy_rules_last_timestamp_seconds"),
		LastQueued: at("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"),
	}
}

func sysctlsSection(t *testing.T, capture string) *offrampv1.SectionStable {
	t.Helper()
	facts := &offrampv1.SysctlsFacts{}
	for line := range strings.Lines(fileOf(t, capture, "sysctls.txt")) {
		path, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "/proc/sys/"), "=")
		facts.Values = append(facts.Values, &offrampv1.Sysctl{
			Path: path, Value: value, State: offrampv1.SectionState_SECTION_STATE_PRESENT,
		})
	}
	return &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Sysctls{Sysctls: facts}}
}

// fileOf returns a file of a capture, trimmed, "" where it is missing.
func fileOf(t *testing.T, capture, file string) string {
	t.Helper()
	content, err := captures.Read(capture, file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// sortedCounts turns a count by owner into what a section holds.
func sortedCounts(counts map[string]uint64) []*offrampv1.OwnerCount {
	var owners []*offrampv1.OwnerCount
	for owner, count := range counts {
		owners = append(owners, &offrampv1.OwnerCount{Owner: owner, Count: count})
	}
	slices.SortFunc(owners, func(a, b *offrampv1.OwnerCount) int { return strings.Compare(a.GetOwner(), b.GetOwner()) })
	return owners
}
