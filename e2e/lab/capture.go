package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/lab/wire"
)

// loadedModules reads lsmod's output, without the drivers of the machine that the capture was made on.
func loadedModules(lsmod string) []string {
	var names []string
	for line := range strings.Lines(lsmod) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] == "Module" || strings.HasPrefix(fields[0], "virtio") {
			continue
		}
		if !slices.Contains([]string{"crc32c_intel", "net_failover", "failover"}, fields[0]) {
			names = append(names, fields[0])
		}
	}
	// What is loaded last stands first.
	slices.Reverse(names)
	return names
}

// requireModules says which of the modules that a capture's meaning hangs on were loaded there and are not here.
func requireModules(wanted, loaded []string) error {
	for _, name := range wanted {
		critical := strings.HasPrefix(name, "ip_vs") || slices.Contains([]string{"nf_conntrack", "ip_set", "dummy", "xt_ipvs", "xt_set", "nfnetlink_acct"}, name)
		if critical && !slices.Contains(loaded, name) {
			return fmt.Errorf("the module %s cannot be loaded", name)
		}
	}
	return nil
}

// accountNames reads the output of nfacct list, and rules that count into objects.
func accountNames(list string) []string {
	var names []string
	for _, found := range regexp.MustCompile(`(?:bytes = \d+ } =|--nfacct-name) +([^\s;]+)`).FindAllStringSubmatch(list, -1) {
		names = append(names, found[1])
	}
	return names
}

// withoutNewSetOptions drops what kernels before 5.11 (initval) and 5.13 (bucketsize) do not know.
func withoutNewSetOptions(saved string) string {
	return regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(saved, "")
}

// kubeProxyTables cuts kube-proxy's own tables out of nft list ruleset: the others are iptables-nft's, and nft cannot
// restore those.
func kubeProxyTables(ruleset string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(ruleset) {
		if line == "table ip kube-proxy {\n" || line == "table ip6 kube-proxy {\n" {
			inside = true
		}
		if inside {
			out.WriteString(line)
		}
		if line == "}\n" {
			inside = false
		}
	}
	return out.String()
}

// isRestoredSysctl says which sysctls are part of a node's state as kube-proxy leaves it: those that a mode of it sets
// (facts/kube-proxy.md, 3.2 and 3.3), and what they stand beside.
func isRestoredSysctl(path string) bool {
	return slices.Contains([]string{
		"net/ipv4/vs/conntrack", "net/ipv4/vs/conn_reuse_mode", "net/ipv4/vs/expire_nodest_conn",
		"net/ipv4/vs/expire_quiescent_template", "net/ipv4/ip_forward", "net/ipv4/conf/all/arp_ignore",
		"net/ipv4/conf/all/arp_announce", "net/ipv4/conf/all/route_localnet", "net/netfilter/nf_conntrack_max",
		"net/netfilter/nf_conntrack_tcp_timeout_established", "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
	}, path)
}

// sysctlScript makes a shell script of lines like /proc/sys/net/ipv4/ip_forward=1.
func sysctlScript(saved string) string {
	var out strings.Builder
	for line := range strings.Lines(saved) {
		path, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && isRestoredSysctl(strings.TrimPrefix(path, "/proc/sys/")) {
			_, _ = fmt.Fprintf(&out, "echo '%s' > %s\n", value, path)
		}
	}
	return out.String()
}

// capturedLink is a link of ip addr's output with its addresses.
type capturedLink struct {
	name      string
	up        bool
	addresses []string
}

// parseLinks reads ip -d addr. Addresses of link scope are left out: the kernel makes them itself.
func parseLinks(shown string) []capturedLink {
	var links []capturedLink
	header := regexp.MustCompile(`^\d+: ([^:@]+)[^<]*<([^>]*)>`)
	for line := range strings.Lines(shown) {
		if found := header.FindStringSubmatch(line); found != nil {
			flags := strings.Split(found[2], ",")
			links = append(links, capturedLink{name: found[1], up: slices.Contains(flags, "UP")})
			continue
		}
		fields := strings.Fields(line)
		if len(links) == 0 || len(fields) < 4 || !strings.HasPrefix(fields[0], "inet") || strings.Contains(line, "scope link") {
			continue
		}
		last := &links[len(links)-1]
		last.addresses = append(last.addresses, fields[1])
	}
	return links
}

// onNodeLink puts the addresses of a recorded node, which was a guest of the lab, onto the link that a restored node has them
// on. Each is for itself: the guest that it is restored in is in the same network.
func onNodeLink(shown string) string {
	var out strings.Builder
	recorded := false
	for line := range strings.Lines(shown) {
		if !strings.HasPrefix(line, " ") {
			recorded = strings.Contains(line, ": "+wire.Link+": ")
		}
		if recorded {
			line = strings.Replace(line, ": "+wire.Link+": ", ": eth0: ", 1)
			line = regexp.MustCompile(`( inet [\d.]+)/\d+`).ReplaceAllString(line, "$1/32")
		}
		out.WriteString(line)
	}
	return out.String()
}

// dummyLink is kube-proxy's in ipvs mode.
const dummyLink = "kube-ipvs0"

// linkCommands makes a batch for ip: eth0 as one end of a pair, kube-ipvs0 as a dummy. Other links come by themselves.
func linkCommands(links []capturedLink) string {
	var out strings.Builder
	for _, link := range links {
		switch link.name {
		case "eth0":
			out.WriteString("link add eth0 type veth peer name peer0\nlink set peer0 up\n")
		case dummyLink:
			out.WriteString("link add kube-ipvs0 type dummy\n")
		default:
			continue
		}
		if link.up {
			_, _ = fmt.Fprintf(&out, "link set %s up\n", link.name)
		}
		for _, address := range link.addresses {
			_, _ = fmt.Fprintf(&out, "address add %s dev %s%s\n", address, link.name, noDuplicateDetection(link, address))
		}
	}
	return out.String()
}

// noDuplicateDetection makes IPv6 addresses of a link that is up usable at once.
func noDuplicateDetection(link capturedLink, address string) string {
	if link.up && strings.Contains(address, ":") {
		return " nodad"
	}
	return ""
}
