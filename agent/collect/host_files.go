package collect

import (
	"path"
	"slices"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// bootFiles are files that are applied at boot or by other programs.
type bootFiles struct {
	kind string
	// files are paths; folders are looked through for files whose names end in one of the suffixes, or all of them.
	files, folders, suffixes []string
	// find returns what a line names of kube-proxy's.
	find func(line string) []string
}

func allBootFiles() []bootFiles {
	conf := []string{".conf"}
	return []bootFiles{
		{kind: "iptables rules", find: kubeProxyWords, files: []string{
			"etc/iptables/rules.v4", "etc/iptables/rules.v6", "etc/sysconfig/iptables", "etc/sysconfig/ip6tables",
			"etc/iptables/iptables.rules", "etc/iptables/ip6tables.rules", "etc/iptables/rules-save", "etc/iptables/rules6-save",
			"etc/iptables.rules", "etc/ip6tables.rules",
		}},
		{kind: "ipset sets", find: kubeProxyWords, files: []string{
			"etc/ipset.conf", "etc/sysconfig/ipset", "etc/iptables/ipsets", "etc/ipset.rules",
		}, folders: []string{"etc/sysconfig/ipset.d"}},
		{
			kind: "nftables ruleset", find: kubeProxyTableWords, files: []string{"etc/nftables.conf", "etc/sysconfig/nftables.conf"},
			folders: []string{"etc/nftables.d", "etc/nftables"},
		},
		{kind: "modules-load", find: modeModule, files: []string{"etc/modules"}, folders: []string{"etc/modules-load.d"}, suffixes: conf},
		{kind: "sysctl", find: modeSysctl, files: []string{"etc/sysctl.conf"}, folders: []string{"etc/sysctl.d"}, suffixes: conf},
		{
			kind: "cni configuration", find: kubeProxyWords, folders: []string{"etc/cni/net.d"},
			suffixes: []string{".conf", ".conflist", ".json"},
		},
		// kubespray has NetworkManager leave the link alone.
		{
			kind: "kubespray state", find: kubeProxyWords, folders: []string{"etc/NetworkManager/conf.d"}, suffixes: conf,
		},
		{kind: "network configuration", find: kubeProxyWords, folders: []string{"etc/systemd/network"}},
	}
}

// readBootFiles reports the files that name something of kube-proxy's, sorted by path.
func readBootFiles(search *searcher) []*offrampv1.HostFile {
	var files []*offrampv1.HostFile
	for _, group := range allBootFiles() {
		for _, name := range group.paths(search) {
			names, _, err := search.lines(group.kind, name, group.find)
			switch {
			case err != nil:
				files = append(files, &offrampv1.HostFile{Path: clean("/" + name), Kind: group.kind, Error: reasonOf(name, err)})
			case len(names) > 0:
				files = append(files, &offrampv1.HostFile{Path: clean("/" + name), Kind: group.kind, Names: firstNames(names)})
			}
		}
	}
	slices.SortFunc(files, func(a, b *offrampv1.HostFile) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	if len(files) > maxSamples {
		search.note("more files than are listed name objects of kube-proxy's")
	}
	return files[:min(len(files), maxSamples)]
}

func (b bootFiles) paths(search *searcher) []string {
	paths := slices.Clone(b.files)
	for _, folder := range b.folders {
		for _, name := range search.names(folder) {
			if len(b.suffixes) == 0 || slices.Contains(b.suffixes, path.Ext(name)) {
				paths = append(paths, path.Join(folder, name))
			}
		}
	}
	return paths
}

// firstNames sorts names, each once, and keeps as many as are reported.
func firstNames(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(len(names), maxSamples)]
}

// kubeProxyWords returns the words of a line that are exactly the name of a chain, a set or the link of kube-proxy's. Lines
// of comment are none.
func kubeProxyWords(line string) []string {
	if strings.HasPrefix(strings.TrimSpace(line), "#") {
		return nil
	}
	var found []string
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return !isNameRune(r) }) {
		if len(word) > 5 && isKubeProxyName(word) {
			found = append(found, word)
		}
	}
	return found
}

// isNameRune: what names of chains, sets and links are written with here.
func isNameRune(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

func isKubeProxyName(word string) bool {
	if word == kubeproxy.IPVSLink {
		return true
	}
	if !strings.HasPrefix(word, "KUBE-") { // none of its names begins otherwise; saves the look-ups
		return false
	}
	for _, set := range kubeproxy.Sets() {
		if set.Name == word {
			return true
		}
	}
	for _, table := range []string{"nat", "filter", "mangle"} {
		for _, family := range []kubeproxy.Family{kubeproxy.IPv4, kubeproxy.IPv6} {
			if kubeproxy.ChainOwner(kubeproxy.Chain{Table: table, Name: word, Family: family}).IsKubeProxy() {
				return true
			}
		}
	}
	return false
}

// kubeProxyTableWords also finds kube-proxy's own tables.
func kubeProxyTableWords(line string) []string {
	found := kubeProxyWords(line)
	words := strings.Fields(strings.TrimRight(line, "{ \n"))
	for i := 0; i+2 < len(words); i++ {
		table := kubeproxy.Table{Family: words[i+1], Name: strings.Trim(words[i+2], "{;")}
		if words[i] == "table" && kubeproxy.TableOwner(table).IsKubeProxy() {
			found = append(found, "table "+table.Family+" "+table.Name)
		}
	}
	return found
}

// modeModule returns the module of ipvs mode's that a line of /etc/modules or modules-load.d asks for (man 5 modules-load.d).
func modeModule(line string) []string {
	fields := strings.Fields(line)
	if len(fields) == 0 || !slices.Contains(ipvsModules(), moduleName(fields[0])) {
		return nil
	}
	return []string{moduleName(fields[0])}
}

// ipvsModules are ip_vs and its schedulers (net/netfilter/ipvs/Makefile). nf_conntrack is needed in every mode.
func ipvsModules() []string {
	return []string{
		"ip_vs", "ip_vs_dh", "ip_vs_fo", "ip_vs_ftp", "ip_vs_lblc", "ip_vs_lblcr", "ip_vs_lc", "ip_vs_mh", "ip_vs_nq", "ip_vs_ovf",
		"ip_vs_rr", "ip_vs_sed", "ip_vs_sh", "ip_vs_twos", "ip_vs_wlc", "ip_vs_wrr",
	}
}

// modeSysctl returns the parameter of ipvs mode's that a line of sysctl.d sets (man 5 sysctl.d), written with dots. Forwarding
// is needed in every mode.
func modeSysctl(line string) []string {
	key, _, found := strings.Cut(line, "=")
	key = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(key), "-"), "/", ".")
	// The oldest kernels are those on which ipvs mode sets the most.
	for _, sysctl := range kubeproxy.IPVSSysctls(4, 19) {
		name := strings.ReplaceAll(sysctl.Path, "/", ".")
		if found && key == name && name != "net.ipv4.ip_forward" {
			return []string{name}
		}
	}
	return nil
}
