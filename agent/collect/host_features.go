package collect

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	modeIPTables = offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	modeNFTables = offrampv1.ProxyMode_PROXY_MODE_NFTABLES

	featureUnknown  = offrampv1.FeatureState_FEATURE_STATE_UNKNOWN
	featureLoaded   = offrampv1.FeatureState_FEATURE_STATE_LOADED
	featureBuiltIn  = offrampv1.FeatureState_FEATURE_STATE_BUILT_IN
	featureLoadable = offrampv1.FeatureState_FEATURE_STATE_LOADABLE
	featureMissing  = offrampv1.FeatureState_FEATURE_STATE_MISSING
)

// need is a part of the kernel that modes need: one of several modules, the first that the kernel has.
type need struct {
	modules []string
	modes   []offrampv1.ProxyMode
	// family is IPv6 where nobody needs it with IPv6 off.
	ipv6 bool
}

// needs lists what was loaded on 6.1 by a kube-proxy 1.37 in each mode (e2e/captures, lsmod.txt), without what only some
// Services ask for (SCTP) and what kube-proxy goes on without (nfacct).
func needs() []need {
	both := []offrampv1.ProxyMode{modeIPTables, modeNFTables}
	iptables, nftables := both[:1], both[1:]
	list := []need{{modules: []string{"nf_conntrack"}, modes: both}, {modules: []string{"nf_nat"}, modes: both}}
	for _, module := range []string{
		"nfnetlink", "nf_tables", "nft_chain_nat", "nft_ct", "nft_fib", "nft_fib_ipv4", "nft_masq", "nft_nat", "nft_numgen",
		"nft_reject", "nft_reject_ipv4",
	} {
		list = append(list, need{modules: []string{module}, modes: nftables})
	}
	for _, module := range []string{
		"x_tables", "xt_addrtype", "xt_comment", "xt_conntrack", "xt_mark", "xt_nat", "xt_recent", "xt_statistic", "xt_tcpudp",
		"ipt_REJECT",
	} {
		list = append(list, need{modules: []string{module}, modes: iptables})
	}
	return append(list,
		// Either backend will do. The target had a name per family before 5.2.
		need{modules: []string{"nft_compat", "ip_tables"}, modes: iptables},
		need{modules: []string{"xt_MASQUERADE", "ipt_MASQUERADE"}, modes: iptables},
		need{modules: []string{"nft_fib_ipv6"}, modes: nftables, ipv6: true},
		need{modules: []string{"nft_reject_ipv6"}, modes: nftables, ipv6: true},
		need{modules: []string{"ip6t_REJECT"}, modes: iptables, ipv6: true},
	)
}

// kernelModules is what is known of the modules of the running kernel. Names are written with underscores.
type kernelModules struct {
	host Host
	// loaded is of /proc/modules; listed says that it could be read.
	loaded map[string]bool
	listed bool
	// builtIn and files are of the module tree of the running kernel; tree says that both could be read.
	builtIn, files map[string]bool
	tree           bool
	// barred are modules that modprobe is told not to load; frozen says that the kernel loads none any more.
	barred map[string]bool
	frozen bool
}

// readFeatures reports what the kernel has of what modes need.
func readFeatures(modules *kernelModules, ipv6Off bool) []*offrampv1.KernelFeature {
	var features []*offrampv1.KernelFeature
	for _, need := range needs() {
		if need.ipv6 && ipv6Off {
			continue
		}
		features = append(features, modules.meet(need))
	}
	slices.SortFunc(features, func(a, b *offrampv1.KernelFeature) int { return strings.Compare(a.GetName(), b.GetName()) })
	return features
}

// meet reports the first module of a need that the kernel has, else one that may be there, else the first.
func (m *kernelModules) meet(n need) *offrampv1.KernelFeature {
	feature := &offrampv1.KernelFeature{Name: n.modules[0], State: m.state(n.modules[0]), NeededBy: n.modes}
	for _, name := range n.modules[1:] {
		if state := m.state(name); rank(state) > rank(feature.GetState()) {
			feature.Name, feature.State = name, state
		}
	}
	return feature
}

func rank(state offrampv1.FeatureState) int {
	return slices.Index([]offrampv1.FeatureState{featureMissing, featureUnknown, featureLoadable, featureBuiltIn, featureLoaded}, state)
}

func (m *kernelModules) state(name string) offrampv1.FeatureState {
	// What is built in has a folder there only if it has parameters.
	folder, err := exists(filepath.Join(m.host.Sys, "module", name))
	switch {
	case m.loaded[name], folder && !m.listed:
		return featureLoaded
	case folder && err == nil, m.builtIn[name]:
		return featureBuiltIn
	case !m.tree || !m.listed:
		return featureUnknown
	case m.files[name] && !m.barred[name] && !m.frozen:
		return featureLoadable
	default:
		return featureMissing
	}
}

// readKernelModules looks at /proc/modules, the module tree of the running kernel and modprobe's configuration.
func readKernelModules(host Host, search *searcher) *kernelModules {
	m := &kernelModules{host: host, barred: map[string]bool{}}
	m.readLoaded()
	frozen, err := readValue(host.sysctlPath("kernel/modules_disabled"))
	m.frozen = m.frozen || err == nil && frozen == "1"
	release, err := readValue(host.sysctlPath("kernel/osrelease"))
	if err != nil || search == nil {
		return m
	}
	for _, folder := range []string{"lib/modules", "usr/lib/modules"} {
		if m.readTree(search, path.Join(folder, path.Base(release))) {
			break
		}
	}
	if !m.tree {
		search.note("/lib/modules/" + release + ": no list of modules is in sight")
	}
	m.readBarred(search)
	return m
}

// readLoaded reads /proc/modules. A kernel without support for modules does not have it: nothing is loaded then, or will be.
func (m *kernelModules) readLoaded() {
	text, err := readProcFileWhole(filepath.Join(m.host.Proc, "modules"))
	if errors.Is(err, fs.ErrNotExist) {
		complete, err := exists(filepath.Join(m.host.Proc, "version"))
		m.listed, m.frozen = complete && err == nil, true
		return
	}
	m.loaded, m.listed = map[string]bool{}, err == nil
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 {
			m.loaded[moduleName(fields[0])] = true
		}
	}
}

// readTree reads modules.dep, whose lines are "FILE: FILES", and modules.builtin, whose lines are files.
func (m *kernelModules) readTree(search *searcher, folder string) bool {
	wanted := map[string]bool{}
	for _, need := range needs() {
		for _, name := range need.modules {
			wanted[name] = true
		}
	}
	take := func(line string) []string {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		base, _, _ := strings.Cut(path.Base(file), ".ko")
		if name := moduleName(base); wanted[name] {
			return []string{name}
		}
		return nil
	}
	quiet := &searcher{tree: search.tree, cache: search.cache}
	files, foundFiles, err := quiet.lines("modules", path.Join(folder, "modules.dep"), take)
	builtIn, foundBuiltIn, err2 := quiet.lines("modules", path.Join(folder, "modules.builtin"), take)
	m.tree = foundFiles && foundBuiltIn && err == nil && err2 == nil
	m.files, m.builtIn = setOf(files), setOf(builtIn)
	return m.tree
}

// readBarred reads modprobe's configuration (man 5 modprobe.d). A blacklist keeps a module from being loaded by an alias, which
// is how the kernel asks for these; an install line that runs true or false keeps it from being loaded at all.
func (m *kernelModules) readBarred(search *searcher) {
	take := func(line string) []string {
		fields := strings.Fields(line)
		switch {
		case len(fields) >= 2 && fields[0] == "blacklist":
			return []string{moduleName(fields[1])}
		case len(fields) >= 3 && fields[0] == "install" && slices.Contains([]string{"true", "false", ":"}, path.Base(fields[2])):
			return []string{moduleName(fields[1])}
		default:
			return nil
		}
	}
	for _, folder := range []string{"etc/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d"} {
		for _, name := range search.names(folder) {
			if path.Ext(name) != ".conf" {
				continue
			}
			barred, _, err := search.lines("barred", path.Join(folder, name), take)
			if err != nil {
				search.note(err.Error())
			}
			for _, module := range barred {
				m.barred[module] = true
			}
		}
	}
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

func setOf(items []string) map[string]bool {
	set := make(map[string]bool, len(items))
	for _, item := range items {
		set[item] = true
	}
	return set
}
