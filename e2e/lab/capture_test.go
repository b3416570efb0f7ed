package lab

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab/wire"
)

func TestLoadedModules(t *testing.T) {
	got := loadedModules(`Module                  Size  Used by    Not tainted
xt_ipvs                20480  1
virtio_net             73728  0
crc32c_intel           24576  0
ip_vs                 188416  88 xt_ipvs,ip_vs_lc
`)
	compare(t, []string{"ip_vs", "xt_ipvs"}, got)
}

func TestRequireModules(t *testing.T) {
	if err := requireModules([]string{"ip_vs", "ip_vs_lc", "stp"}, []string{"ip_vs", "ip_vs_lc"}); err != nil {
		t.Errorf("a module without meaning is missed: %v", err)
	}
	if err := requireModules([]string{"ip_vs", "ip_vs_lc"}, []string{"ip_vs"}); err == nil || !strings.Contains(err.Error(), "ip_vs_lc") {
		t.Errorf("error is %v", err)
	}
}

func TestAccountNames(t *testing.T) {
	got := accountNames("{ pkts = 00000000000000000000, bytes = 00000000000000000000 } = ct_state_invalid_dropped_pkts;\n" +
		"{ pkts = 00000000000000000001, bytes = 00000000000000000060 } = localhost_nps_accepted_pkts;\n")
	compare(t, []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"}, got)
}

func TestWithoutNewSetOptions(t *testing.T) {
	got := withoutNewSetOptions("create A hash:ip,port family inet hashsize 1024 maxelem 65536 bucketsize 12 initval 0xa6aee4bd\nadd A 1.2.3.4,tcp:80\n")
	compare(t, "create A hash:ip,port family inet hashsize 1024 maxelem 65536\nadd A 1.2.3.4,tcp:80\n", got)
}

func TestKubeProxyTables(t *testing.T) {
	got := kubeProxyTables(`table ip nat {
	chain PREROUTING {
	}
}
table ip kube-proxy {
	chain services {
	}
}
table ip6 kube-proxy-not {
}
table ip6 kube-proxy {
}
table inet kube-proxy {
}
`)
	compare(t, "table ip kube-proxy {\n\tchain services {\n\t}\n}\ntable ip6 kube-proxy {\n}\n", got)
}

func TestSysctlScript(t *testing.T) {
	got := sysctlScript("/proc/sys/net/ipv4/vs/conntrack=1\n/proc/sys/net/ipv4/vs/sync_threshold=3\t50\n/proc/sys/net/ipv4/ip_forward=1\nrubbish\n")
	compare(t, "echo '1' > /proc/sys/net/ipv4/vs/conntrack\necho '1' > /proc/sys/net/ipv4/ip_forward\n", got)
}

const shownLinks = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq_codel state UP
    link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff
    inet 10.0.2.15/24 scope global eth0
    inet6 fec0::15/64 scope site nodad
    inet6 fe80::5054:ff:fe12:3456/64 scope link
4: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN
    inet 10.96.0.1/32 scope global kube-ipvs0
    inet6 fd00:10:96::1/128 scope global
5: veth1@eth7: <BROADCAST> mtu 1500
`

func TestParseLinks(t *testing.T) {
	compare(t, []capturedLink{
		{name: "lo", up: true, addresses: []string{"127.0.0.1/8"}},
		{name: "eth0", up: true, addresses: []string{"10.0.2.15/24", "fec0::15/64"}},
		{name: "kube-ipvs0", addresses: []string{"10.96.0.1/32", "fd00:10:96::1/128"}},
		{name: "veth1"},
	}, parseLinks(shownLinks))
}

func TestLinkCommands(t *testing.T) {
	compare(t, `link add eth0 type veth peer name peer0
link set peer0 up
link set eth0 up
address add 10.0.2.15/24 dev eth0
address add fec0::15/64 dev eth0 nodad
link add kube-ipvs0 type dummy
address add 10.96.0.1/32 dev kube-ipvs0
address add fd00:10:96::1/128 dev kube-ipvs0
`, linkCommands(parseLinks(shownLinks)))
}

func TestSameLines(t *testing.T) {
	if err := sameLines("x", []string{"b", "a"}, []string{"a", "b"}); err != nil {
		t.Error(err)
	}
	err := sameLines("rules", []string{"a", "b", "c"}, []string{"a", "d"})
	if err == nil || !strings.Contains(err.Error(), `2 rules in the guest, 3 in the capture; missing ["b" "c"], too many ["d"]`) {
		t.Errorf("error is %v", err)
	}
	if err := sameLines("x", []string{"a", "a"}, []string{"a"}); err == nil {
		t.Error("a line that is there once instead of twice is no difference")
	}
}

// TestCountsOfCaptures holds what is compared against the table of LAB.md: a comparison of nothing proves nothing.
func TestCountsOfCaptures(t *testing.T) {
	for _, c := range []struct {
		name                                   string
		servers, sets, rules4, rules6, onDummy int
	}{
		{"ipvs", 85 + 295, 34 + 261, 41, 32, 68},
		{"ipvs-then-iptables", 85 + 295, 34 + 261, 538, 516, 68},
		{"after-kube-proxy-cleanup", 0, 17 + 125, 461, 447, 0},
		{"ipvs-then-nftables", 0, 17 + 125, 3, 2, 0},
		{"iptables", 0, 0, 518, 499, 0},
		{"nftables", 0, 0, 3, 2, 0},
		{"iptables-sync-failed", 85 + 295, 34 + 44, 55, 24, 68},
	} {
		read := func(file string) string { text, _ := captures.Read(c.name, file); return string(text) }
		dummy := 0
		for _, line := range addressLines(read("ip-addr.txt")) {
			if strings.HasPrefix(line, dummyLink+" ") {
				dummy++
			}
		}
		got := []int{
			len(ipvsLines(read("ipvsadm-save.txt"))), len(setLines(read("ipset-save.txt"))),
			len(ruleLines(read("iptables-nft-save.txt"))), len(ruleLines(read("ip6tables-nft-save.txt"))), dummy,
		}
		compare(t, []int{c.servers, c.sets, c.rules4, c.rules6, c.onDummy}, got)
		if tables := len(tableLines(read("nft-ruleset.txt"))); (tables > 500) != strings.HasSuffix(c.name, "nftables") {
			t.Errorf("%s: %d lines of kube-proxy's nftables", c.name, tables)
		}
	}
}

func TestConfigurationFile(t *testing.T) {
	for _, command := range []string{"kube-proxy --config /etc/kp/ipvs.conf -v 2", "kube-proxy --config=/etc/kp/ipvs.conf"} {
		file, text := configurationFile(strings.Fields(command))
		if file != "/etc/kp/ipvs.conf" || !strings.HasSuffix(text, "\nmode: ipvs\n") {
			t.Errorf("%s: %s %q", command, file, text)
		}
	}
	if file, _ := configurationFile([]string{"kube-proxy", "--proxy-mode=ipvs"}); file != "" {
		t.Errorf("no --config names %s", file)
	}
}

func TestOnNodeLink(t *testing.T) {
	const recorded = "1: lo: <UP> mtu 65536\n    inet 127.0.0.1/8 scope host lo\n2: " + wire.Link + ": <UP> mtu 1500\n    inet 198.18.1.2/16 brd 198.18.255.255 scope global mgmt0\n" +
		"    inet6 fd00:18::1:2/64 scope global nodad\n3: kube-ipvs0: <NOARP> mtu 1500\n    inet 10.96.0.1/32 scope global kube-ipvs0\n"
	want := []capturedLink{
		{"lo", true, []string{"127.0.0.1/8"}}, {"eth0", true, []string{"198.18.1.2/32", "fd00:18::1:2/64"}}, {"kube-ipvs0", false, []string{"10.96.0.1/32"}},
	}
	if diff := cmp.Diff(want, parseLinks(onNodeLink(recorded)), cmp.AllowUnexported(capturedLink{})); diff != "" {
		t.Error(diff)
	}
}
