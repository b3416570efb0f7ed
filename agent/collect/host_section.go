package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const kindHost = offrampv1.SectionKind_SECTION_KIND_HOST

// hostSurroundings is what the operating system is read from.
type hostSurroundings struct {
	host  Host
	mods  *modules
	cache *fileCache
	// network is nil when links could not be read.
	network *network
	// processes is nil when they could not be listed.
	processes *processList
}

// readHost reports what the operating system brings or stands in the way with. What cannot be looked at is listed, and does
// not keep the rest from being read.
func readHost(ctx context.Context, in hostSurroundings) *offrampv1.Section {
	content := &offrampv1.HostFacts{}
	search := &searcher{cache: in.cache}
	tree, err := openHostTree(in.host)
	if err != nil {
		search.note(err.Error())
	} else {
		defer func() { _ = tree.close() }()
		search.tree = tree
	}
	volatile := in.readValues(content, search)
	features := in.readTree(content, search)
	if content.AccountingObjects, err = readAccounting(ctx, in.mods, features); err != nil {
		search.note("nfacct objects: " + err.Error())
	}
	content.Unreadable = firstNames(search.unreadable)
	section := read(kindHost, false, &offrampv1.SectionStable{Content: &offrampv1.SectionStable_Host{Host: content}})
	section.Volatile.Content = &offrampv1.SectionVolatile_Host{Host: volatile}
	return section
}

// readValues reads what stands below the proc file system.
func (in hostSurroundings) readValues(content *offrampv1.HostFacts, search *searcher) *offrampv1.HostVolatile {
	note := func(what string, err error) {
		if err != nil {
			search.note(what + ": " + err.Error())
		}
	}
	var err error
	content.ConntrackMax, err = readNumber(in.host, "net/netfilter/nf_conntrack_max")
	note("nf_conntrack_max", err)
	count, err := readNumber(in.host, "net/netfilter/nf_conntrack_count")
	note("nf_conntrack_count", err)
	content.Ipv6Off, err = isIPv6Off(in.host)
	note("IPv6", err)
	note("local ports", readPorts(in.host, content))
	return &offrampv1.HostVolatile{ConntrackCount: count}
}

// readTree reads what stands in the host's files.
func (in hostSurroundings) readTree(content *offrampv1.HostFacts, search *searcher) *kernelModules {
	if search.tree == nil {
		features := readKernelModules(in.host, nil)
		content.Features = readFeatures(features, content.GetIpv6Off())
		return features
	}
	features := readKernelModules(in.host, search)
	content.Features = readFeatures(features, content.GetIpv6Off())
	content.Programs = readPrograms(search)
	content.Files = readBootFiles(search)
	content.ProgramsSeen = in.programsSeen(search)
	return features
}

// programsSeen lists programs of other people that matter to the move, sorted.
func (in hostSurroundings) programsSeen(search *searcher) []string {
	var seen []string
	for name, signs := range map[string]struct{ process, link string }{
		"docker":       {nameDocker, "docker0"},
		"firewalld":    {process: nameFirewalld},
		"nodelocaldns": {nameNodeCache, "nodelocaldns"},
		"keepalived":   {process: nameKeepalived},
		"kube-router":  {process: nameKubeRouter},
		"kube-vip":     {process: nameKubeVIP},
		"metallb":      {process: nameMetalLB},
	} {
		if in.runs(signs.process) || signs.link != "" && in.network.hasLink(signs.link) {
			seen = append(seen, name)
		}
	}
	// ufw is no process: it writes rules once.
	enabled, _, err := search.lines("ufw", "etc/ufw/ufw.conf", func(line string) []string {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && name == "ENABLED" && isTrue(unquote(value)) {
			return []string{name}
		}
		return nil
	})
	if err != nil {
		search.note(err.Error())
	}
	if len(enabled) > 0 {
		seen = append(seen, "ufw")
	}
	if in.processes == nil || !in.processes.visible {
		search.note(fmt.Sprintf("processes: %v", errNotInSight))
	}
	slices.Sort(seen)
	return seen
}

func (in hostSurroundings) runs(name string) bool {
	if in.processes == nil {
		return false
	}
	_, found := in.processes.others[name]
	return found
}
