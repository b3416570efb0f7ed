package collect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// hostValues is what every fixture of a host has below /proc.
func hostValues() map[string]string {
	return map[string]string{
		"proc/version":                               "Linux\n",
		"proc/modules":                               "",
		"proc/sys/kernel/osrelease":                  "6.1.0-57-amd64\n",
		"proc/sys/net/ipv4/ip_local_port_range":      "32768\t60999\n",
		"proc/sys/net/ipv4/ip_local_reserved_ports":  "30000-32767\n",
		"proc/sys/net/netfilter/nf_conntrack_max":    "262144\n",
		"proc/sys/net/netfilter/nf_conntrack_count":  "17\n",
		"proc/sys/net/ipv6/conf/all/disable_ipv6":    "0\n",
		"proc/net/if_inet6":                          "00000000000000000000000000000001 01 80 10 80       lo\n",
		"proc/net/netlink":                           "sk Eth Pid\n0000 0 0\n",
		"lib/modules/6.1.0-57-amd64/modules.builtin": "",
		"lib/modules/6.1.0-57-amd64/modules.dep":     "",
		"var/lib/dpkg/status":                        "",
	}
}

func readHostOf(t *testing.T, files ...map[string]string) *offrampv1.Section {
	t.Helper()
	host := hostOf(t, wholeHost(append([]map[string]string{hostValues()}, files...)...))
	processes, err := readProcesses(host)
	if err != nil {
		t.Fatal(err)
	}
	in := hostSurroundings{host: host, mods: newModules(host), cache: &fileCache{}, processes: &processes}
	section := readHost(t.Context(), in)
	wantState(t, section, sectionPresent)
	return section
}

func hostFactsOf(t *testing.T, files ...map[string]string) *offrampv1.HostFacts {
	t.Helper()
	return readHostOf(t, files...).GetStable().GetHost()
}

// hostFileLines writes files as "PATH (KIND): NAMES".
func hostFileLines(content *offrampv1.HostFacts) []string {
	var lines []string
	for _, file := range content.GetFiles() {
		lines = append(lines, fmt.Sprintf("%s (%s): %s%s", file.GetPath(), file.GetKind(), strings.Join(file.GetNames(), " "), file.GetError()))
	}
	return lines
}

// featureStates writes features as name to state, and fails when one comes twice.
func featureStates(t *testing.T, content *offrampv1.HostFacts) map[string]string {
	t.Helper()
	states := map[string]string{}
	for _, feature := range content.GetFeatures() {
		if states[feature.GetName()] != "" {
			t.Errorf("%s twice", feature.GetName())
		}
		states[feature.GetName()] = strings.TrimPrefix(feature.GetState().String(), "FEATURE_STATE_")
	}
	return states
}

func neededBy(content *offrampv1.HostFacts, mode offrampv1.ProxyMode) []string {
	var names []string
	for _, feature := range content.GetFeatures() {
		if slices.Contains(feature.GetNeededBy(), mode) {
			names = append(names, feature.GetName())
		}
	}
	return names
}

// What a real kube-proxy had loaded must be all that we say its mode needs.
func TestFeaturesOfCaptures(t *testing.T) {
	for capture, mode := range map[string]offrampv1.ProxyMode{"iptables": modeIPTables, "nftables": modeNFTables, "ipvs-then-nftables": modeNFTables} {
		content := hostFactsOf(t, map[string]string{"proc/modules": readCapture(t, capture, "lsmod.txt")})
		states := featureStates(t, content)
		names := neededBy(content, mode)
		if len(names) < 15 {
			t.Errorf("%s: only %q are needed", capture, names)
		}
		for _, name := range names {
			if states[name] != "LOADED" {
				t.Errorf("%s: %s is %s", capture, name, states[name])
			}
		}
	}
	// A kube-proxy in ipvs mode loads less than iptables mode needs.
	states := featureStates(t, hostFactsOf(t, map[string]string{"proc/modules": readCapture(t, "ipvs", "lsmod.txt")}))
	if states["xt_statistic"] != "MISSING" || states["nft_numgen"] != "MISSING" {
		t.Errorf("xt_statistic is %s, nft_numgen %s", states["xt_statistic"], states["nft_numgen"])
	}
}

// Each way in which a kernel has a module, or has not.
func TestFeatureStates(t *testing.T) {
	states := featureStates(t, hostFactsOf(t, map[string]string{
		"proc/modules":                               "nf_tables 1 0 - Live 0x0\nnft_ct 1 0 - Live 0x0\n",
		"sys/module/nf_nat/x":                        "",
		"sys/module/nf_tables/x":                     "",
		"lib/modules/6.1.0-57-amd64/modules.builtin": "kernel/net/netfilter/nf_conntrack.ko\n",
		"lib/modules/6.1.0-57-amd64/modules.dep": "kernel/net/netfilter/nft_nat.ko.xz: kernel/x.ko\nkernel/net/netfilter/nft-masq.ko.zst:\n" +
			"kernel/net/ipv4/netfilter/nft_fib_ipv4.ko:\nkernel/net/netfilter/xt_mark.ko: kernel/nft_numgen.ko\n" +
			"kernel/net/netfilter/xt_nat.ko:\nkernel/net/netfilter/xt_recent.ko:\nkernel/net/ipv4/netfilter/ipt_MASQUERADE.ko:\n" +
			"kernel/net/ipv4/netfilter/ip_tables.ko:\n",
		"etc/modprobe.d/a.conf":     "install nft_fib_ipv4 /bin/true\n# blacklist xt_mark\nblacklist xt-nat\n",
		"etc/modprobe.d/b.bak":      "blacklist xt_mark\n",
		"usr/lib/modprobe.d/c.conf": "install xt_recent /usr/sbin/modprobe --ignore-install xt_recent\n",
	}))
	want := map[string]string{
		"nf_tables": "LOADED", "nft_ct": "LOADED", "nf_nat": "BUILT_IN", "nf_conntrack": "BUILT_IN", "nft_nat": "LOADABLE", "nft_masq": "LOADABLE",
		"nft_fib_ipv4": "MISSING", "xt_mark": "LOADABLE", "xt_nat": "MISSING", "xt_recent": "LOADABLE", "nft_numgen": "MISSING",
		"ipt_MASQUERADE": "LOADABLE", "ip_tables": "LOADABLE",
	}
	for name, state := range want {
		if states[name] != state {
			t.Errorf("%s is %q, want %s", name, states[name], state)
		}
	}
	for _, name := range []string{"xt_MASQUERADE", "nft_compat"} {
		if _, told := states[name]; told {
			t.Errorf("%s is told of beside what stands in for it", name)
		}
	}
	frozen := featureStates(t, hostFactsOf(t, map[string]string{
		"proc/sys/kernel/modules_disabled":       "1\n",
		"lib/modules/6.1.0-57-amd64/modules.dep": "kernel/net/netfilter/nft_nat.ko:\n",
	}))
	if frozen["nft_nat"] != "MISSING" {
		t.Errorf("a kernel that loads no more modules: nft_nat is %s", frozen["nft_nat"])
	}
}

func TestFeaturesWithoutAModuleTree(t *testing.T) {
	content := hostFactsOf(t, map[string]string{"proc/sys/kernel/osrelease": "6.9.9\n", "proc/modules": "nft_nat 1 0 - Live 0x0\n"})
	states := featureStates(t, content)
	if states["nft_nat"] != "LOADED" || states["nft_ct"] != "UNKNOWN" {
		t.Errorf("nft_nat is %s, nft_ct %s", states["nft_nat"], states["nft_ct"])
	}
	if !slices.Contains(content.GetUnreadable(), "/lib/modules/6.9.9: no list of modules is in sight") {
		t.Errorf("unreadable: %q", content.GetUnreadable())
	}
}

// 09: what ipvs mode set, and who else sets it.
func TestState09SysctlsThatStay(t *testing.T) {
	content := hostFactsOf(t, map[string]string{
		"etc/sysctl.d/99-metallb.conf": "# net.ipv4.vs.conntrack=1\nnet.ipv4.conf.all.arp_ignore = 1\n-net/ipv4/conf/all/arp_announce=2\n",
		"etc/sysctl.d/k8s.conf":        "net.ipv4.ip_forward=1\nnet.ipv4.vs.conntracks=1\nnet.bridge.bridge-nf-call-iptables=1\n",
		"etc/sysctl.conf":              "net.ipv4.vs.conn_reuse_mode=0\nnet.ipv4.vs.expire_nodest_conn\n",
	})
	if diff := cmp.Diff([]string{
		"/etc/sysctl.conf (sysctl): net.ipv4.vs.conn_reuse_mode",
		"/etc/sysctl.d/99-metallb.conf (sysctl): net.ipv4.conf.all.arp_announce net.ipv4.conf.all.arp_ignore",
	}, hostFileLines(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// 27: what kubespray leaves on a node.
func TestState27KubesprayFiles(t *testing.T) {
	files := map[string]string{
		"etc/modules-load.d/kube_proxy-ipvs.conf":  "ip_vs\nip_vs_rr\nip_vs_wrr\nip_vs_sh\nnf_conntrack\n",
		"etc/modules-load.d/ip_vs_wlc.conf":        "ip-vs-wlc\n",
		"etc/modules-load.d/kubespray-bridge.conf": "br_netfilter\n",
		"etc/modules-load.d/near.conf":             "ip_vs_mine\n#ip_vs\n",
		"etc/NetworkManager/conf.d/dns.conf":       "[keyfile]\nunmanaged-devices+=interface-name:kube-ipvs0;interface-name:nodelocaldns\n",
		"etc/systemd/network/10-cali.network":      "[Match]\nName=cali*\n",
	}
	if diff := cmp.Diff([]string{
		"/etc/NetworkManager/conf.d/dns.conf (kubespray state): kube-ipvs0",
		"/etc/modules-load.d/ip_vs_wlc.conf (modules-load): ip_vs_wlc",
		"/etc/modules-load.d/kube_proxy-ipvs.conf (modules-load): ip_vs ip_vs_rr ip_vs_sh ip_vs_wrr",
	}, hostFileLines(hostFactsOf(t, files))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// 31: rules that come back at boot, by exact names only.
func TestState31BootTimeRules(t *testing.T) {
	files := map[string]string{
		"etc/iptables/rules.v4": "*filter\n:KUBE-NODE-PORT - [0:0]\n-A INPUT -s 192.0.2.1/32 -j ACCEPT\n" +
			"-A KUBE-NODE-PORT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT\nCOMMIT\n",
		"etc/iptables/rules.v6":           ":KUBE-ROUTER-INPUT - [0:0]\n:KUBE-SVC-TOOSHORT - [0:0]\n-A INPUT -m set --match-set KUBE-CLUSTER-IPX dst -j ACCEPT\n:KUBE-FIREWALL - [0:0]\n",
		"etc/sysconfig/iptables":          "-A PREROUTING -j KUBE-SERVICES\n# -A PREROUTING -j KUBE-POSTROUTING\n",
		"etc/ipset.conf":                  "create KUBE-CLUSTER-IP hash:ip,port family inet\nadd KUBE-CLUSTER-IP 10.96.0.1,tcp:443\n",
		"etc/sysconfig/ipset.d/a.set":     "create KUBE-6-CLUSTER-IP hash:ip,port family inet6\n",
		"etc/nftables.conf":               "flush ruleset\ntable ip kube-proxy {\n}\ntable inet kube-proxy {\n}\n",
		"etc/nftables.d/x.nft":            "table ip nat {\n chain KUBE-MARK-MASQ {\n",
		"etc/cni/net.d/10-x.conflist":     `{"plugins":[{"type":"portmap","externalSetMarkChain":"KUBE-MARK-MASQ"}]}`,
		"etc/cni/net.d/calico-kubeconfig": "KUBE-MARK-MASQ",
	}
	if diff := cmp.Diff([]string{
		"/etc/cni/net.d/10-x.conflist (cni configuration): KUBE-MARK-MASQ",
		"/etc/ipset.conf (ipset sets): KUBE-CLUSTER-IP",
		"/etc/iptables/rules.v4 (iptables rules): KUBE-HEALTH-CHECK-NODE-PORT KUBE-NODE-PORT",
		"/etc/nftables.conf (nftables ruleset): table ip kube-proxy",
		"/etc/nftables.d/x.nft (nftables ruleset): KUBE-MARK-MASQ",
		"/etc/sysconfig/ipset.d/a.set (ipset sets): KUBE-6-CLUSTER-IP",
		"/etc/sysconfig/iptables (iptables rules): KUBE-SERVICES",
	}, hostFileLines(hostFactsOf(t, files))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	broken := hostFactsOf(t, map[string]string{"etc/iptables/rules.v4/x": "a folder"})
	if diff := cmp.Diff([]string{"/etc/iptables/rules.v4 (iptables rules): not a regular file"}, hostFileLines(broken)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// 35: which nft and iptables the host has, without running them.
func TestState35VersionsOfPrograms(t *testing.T) {
	programs := map[string]string{"usr/sbin/nft": "x", "usr/sbin/iptables": "x"}
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"dpkg": {map[string]string{"var/lib/dpkg/status": "Package: nftables\nStatus: install ok installed\nVersion: 1.0.6-2+deb12u2\n\n" +
			"Package: nftables-doc\nStatus: install ok installed\nVersion: 9\n\nPackage: iptables\nStatus: deinstall ok config-files\nVersion: 1.8.9-2\n"},
			[]string{"/usr/sbin/iptables ", "/usr/sbin/nft 1.0.6"}},
		"apk":      {map[string]string{"lib/apk/db/installed": "C:x\nP:nftables\nV:1.1.1-r0\n\nP:iptables\nV:1.8.11-r1\n"}, []string{"/usr/sbin/iptables 1.8.11", "/usr/sbin/nft 1.1.1"}},
		"an epoch": {map[string]string{"var/lib/dpkg/status": "Package: nftables\nStatus: install ok installed\nVersion: 1:1.1.3-1\n"}, []string{"/usr/sbin/iptables ", "/usr/sbin/nft 1.1.3"}},
		"rpm":      {map[string]string{"var/lib/rpm/rpmdb.sqlite": "x"}, []string{"/usr/sbin/iptables ", "/usr/sbin/nft "}},
		"built by hand": {map[string]string{"usr/local/sbin/ipset": "x", "var/lib/dpkg/status": "Package: ipset\nStatus: install ok installed\nVersion: 7\n"},
			[]string{"/usr/local/sbin/ipset ", "/usr/sbin/iptables ", "/usr/sbin/nft "}},
	} {
		var got []string
		for _, program := range hostFactsOf(t, programs, test.files).GetPrograms() {
			got = append(got, program.GetPath()+" "+program.GetVersion())
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// 36: kernels with a vendor's suffix.
func TestState36VendorKernels(t *testing.T) {
	for release, want := range map[string]string{
		"4.18.0-553.el8_10.x86_64": "4.18.0", "5.10.0-32-cloud-amd64": "5.10.0", "5.10.223-211.872.amzn2.x86_64": "5.10.223",
		"5.14.0-427.13.1.el9_4.x86_64": "5.14.0", "6.6.87.2-microsoft-standard-WSL2": "6.6.87", "6.1.0-rc1+": "6.1.0", "6.8-rc1": "6.8.0",
	} {
		content := readKernel(hostOf(t, map[string]string{"proc/sys/kernel/osrelease": release + "\n"})).GetStable().GetKernel()
		if got := fmt.Sprintf("%d.%d.%d", content.GetMajor(), content.GetMinor(), content.GetPatch()); got != want || content.GetRelease() != release {
			t.Errorf("%s: %s (%s), want %s", release, got, content.GetRelease(), want)
		}
	}
}

// 38: a kernel like that of EL 10, where xtables is in a package that is not installed.
func TestState38KernelWithoutXtables(t *testing.T) {
	var dep strings.Builder
	for _, need := range needs() {
		if slices.Contains(need.modes, modeNFTables) {
			fmt.Fprintf(&dep, "kernel/net/netfilter/%s.ko.xz:\n", need.modules[0])
		}
	}
	content := hostFactsOf(t, map[string]string{
		"proc/sys/kernel/osrelease":                             "6.12.0-55.el10.x86_64\n",
		"usr/lib/modules/6.12.0-55.el10.x86_64/modules.dep":     dep.String(),
		"usr/lib/modules/6.12.0-55.el10.x86_64/modules.builtin": "",
	})
	states := featureStates(t, content)
	for _, name := range neededBy(content, modeNFTables) {
		if states[name] != "LOADABLE" {
			t.Errorf("%s is %s", name, states[name])
		}
	}
	for _, name := range []string{"x_tables", "xt_comment", "xt_addrtype", "xt_MASQUERADE", "nft_compat"} {
		if states[name] != "MISSING" {
			t.Errorf("%s is %s", name, states[name])
		}
	}
}

// 39: IPv6 is off: no error, and nothing of it is needed.
func TestState39IPv6Off(t *testing.T) {
	off := hostValues()
	delete(off, "proc/net/if_inet6")
	for name, test := range map[string]struct {
		remove string
		files  map[string]string
		want   bool
	}{
		"on":                    {"", nil, false},
		"no module":             {"proc/net/if_inet6", nil, true},
		"disabled on all links": {"", map[string]string{"proc/net/if_inet6": "", "proc/sys/net/ipv6/conf/all/disable_ipv6": "1\n"}, true},
		"one link has it again": {"", map[string]string{"proc/sys/net/ipv6/conf/all/disable_ipv6": "1\n"}, false},
	} {
		files := hostValues()
		maps.Copy(files, test.files)
		delete(files, test.remove)
		host := hostOf(t, wholeHost(files))
		content := readHost(t.Context(), hostSurroundings{host: host, mods: newModules(host), cache: &fileCache{}}).GetStable().GetHost()
		_, needed := featureStates(t, content)["nft_fib_ipv6"]
		if content.GetIpv6Off() != test.want || needed == test.want {
			t.Errorf("%s: off %v, nft_fib_ipv6 needed %v", name, content.GetIpv6Off(), needed)
		}
	}
}

// 44: NodeLocal DNSCache and other people's programs.
func TestState44ProgramsOfOthers(t *testing.T) {
	network := &network{links: map[int]linkHeader{2: {name: "nodelocaldns", kind: "dummy"}, 3: {name: "docker0"}}}
	host := hostOf(t, wholeHost(hostValues(), aProcess("60", "firewalld", "/usr/bin/python3", "/usr/sbin/firewalld"),
		aProcess("61", "speaker", "/speaker"), aProcess("62", "kube-vip", "/kube-vip", "manager"),
		aProcess("63", "keepalived", "/usr/sbin/keepalived"), aProcess("64", "kube-router", "/usr/local/bin/kube-router"),
		aProcess("65", "speakers", "/speakers"),
		map[string]string{"etc/ufw/ufw.conf": "# x\nENABLED=yes\nLOGLEVEL=low\n"}))
	processes, err := readProcesses(host)
	if err != nil {
		t.Fatal(err)
	}
	in := hostSurroundings{host: host, mods: newModules(host), cache: &fileCache{}, processes: &processes, network: network}
	if diff := cmp.Diff([]string{
		"docker", "firewalld", "keepalived", "kube-router", "kube-vip", "metallb", "nodelocaldns", "ufw",
	}, readHost(t.Context(), in).GetStable().GetHost().GetProgramsSeen()); diff != "" {
		t.Error(diff)
	}
	none := hostFactsOf(t, map[string]string{"etc/ufw/ufw.conf": "ENABLED=no\n"})
	if len(none.GetProgramsSeen()) != 0 || len(none.GetUnreadable()) != 0 {
		t.Errorf("seen %q, unreadable %q", none.GetProgramsSeen(), none.GetUnreadable())
	}
}

func TestHostValues(t *testing.T) {
	section := readHostOf(t)
	content := section.GetStable().GetHost()
	if content.GetConntrackMax() != 262144 || section.GetVolatile().GetHost().GetConntrackCount() != 17 ||
		content.GetLocalPortMin() != 32768 || content.GetLocalPortMax() != 60999 || content.GetReservedPorts() != "30000-32767" {
		t.Errorf("%v", content)
	}
	bare := hostOf(t, map[string]string{"proc/sys/kernel/osrelease": "6.1.0\n", "etc/hostname": "x\n"})
	section = readHost(t.Context(), hostSurroundings{host: bare, mods: newModules(bare), cache: &fileCache{}})
	wantState(t, section, sectionPresent)
	for _, want := range []string{"/etc/sysconfig: not in sight", "/etc/iptables: not in sight", "/etc/modprobe.d: not in sight"} {
		if !slices.Contains(section.GetStable().GetHost().GetUnreadable(), want) {
			t.Errorf("%q is not among %q", want, section.GetStable().GetHost().GetUnreadable())
		}
	}
}
