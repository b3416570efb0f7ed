package collect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sysctlLines prints what was read: path, state, value, value of ipvs mode.
func sysctlLines(t *testing.T, host Host) []string {
	t.Helper()
	section := readSysctls(host)
	wantState(t, section, sectionPresent)
	var lines []string
	for _, sysctl := range section.GetStable().GetSysctls().GetValues() {
		state := strings.TrimPrefix(sysctl.GetState().String(), "SECTION_STATE_")
		lines = append(lines, strings.Join([]string{sysctl.GetPath(), state, sysctl.GetValue(), sysctl.GetIpvsModeValue()}, " "))
	}
	return lines
}

func TestReadSysctls(t *testing.T) {
	host := hostOf(t, map[string]string{
		"proc/sys/kernel/osrelease":                     "6.1.0-57-cloud-amd64\n",
		"proc/sys/net/ipv4/vs/conntrack":                "1\n",
		"proc/sys/net/ipv4/vs/conn_reuse_mode":          "1\n",
		"proc/sys/net/ipv4/vs/expire_nodest_conn":       "0\n",
		"proc/sys/net/ipv4/ip_forward":                  "1\n",
		"proc/sys/net/ipv4/conf/all/arp_ignore":         "  1 \n",
		"proc/sys/net/ipv4/conf/all/arp_announce/value": "a folder cannot be read",
		"proc/sys/net/ipv4/conf/all/route_localnet":     "0\n",
	})
	// facts/kube-proxy.md 3.2: conn_reuse_mode is left as it is from 5.9 on.
	want := []string{
		"net/ipv4/conf/all/arp_announce UNREADABLE  2",
		"net/ipv4/conf/all/arp_ignore PRESENT 1 1",
		"net/ipv4/conf/all/route_localnet PRESENT 0 ",
		"net/ipv4/ip_forward PRESENT 1 1",
		"net/ipv4/vs/conntrack PRESENT 1 1",
		"net/ipv4/vs/expire_nodest_conn PRESENT 0 1",
		"net/ipv4/vs/expire_quiescent_template ABSENT  1",
	}
	if diff := cmp.Diff(want, sysctlLines(t, host)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadSysctlsOfAnOldKernel(t *testing.T) {
	host := hostOf(t, map[string]string{
		"proc/sys/kernel/osrelease":            "4.18.0-553.el8_10.x86_64\n",
		"proc/sys/net/ipv4/vs/conn_reuse_mode": "0\n",
	})
	for _, line := range sysctlLines(t, host) {
		if line == "net/ipv4/vs/conn_reuse_mode PRESENT 0 0" {
			return
		}
	}
	t.Error("conn_reuse_mode, which ipvs mode sets before 5.9, is missing")
}

func TestReadSysctlsUnreadable(t *testing.T) {
	wantState(t, readSysctls(hostOf(t, nil)), sectionUnreadable)
	host := hostOf(t, map[string]string{"proc/sys/net/ipv4/ip_forward": "1"})
	wantState(t, readSysctls(host), sectionUnreadable)
}

func TestReadSysctlSaysWhyNot(t *testing.T) {
	host := hostOf(t, nil)
	if err := os.MkdirAll(filepath.Join(host.Proc, "sys/net/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := readSysctl(host, "net/x", ""); got.GetState() != sectionUnreadable || got.GetError() == "" {
		t.Errorf("%v", got)
	}
}

// facts/kube-proxy.md 13: ipvs mode's sysctls stay after the switch to nftables.
func TestReadSysctlsOfCaptures(t *testing.T) {
	for name, want := range map[string]string{ // arp_announce, arp_ignore, route_localnet, ip_forward, vs: conntrack, nodest, quiescent
		"ipvs":               "2 1 0 1 1 1 1",
		"ipvs-then-nftables": "2 1 1 1 1 1 1",
		"iptables":           "0 0 1 0 0 0 0",
	} {
		tree := map[string]string{"proc/sys/kernel/osrelease": "6.1.0-57-cloud-amd64\n"}
		for line := range strings.Lines(readCapture(t, name, "sysctls.txt")) {
			if path, value, found := strings.Cut(line, "="); found && strings.HasPrefix(path, "/proc/sys/net/ipv4/") {
				tree[path] = value
			}
		}
		var values []string
		for _, sysctl := range readSysctls(hostOf(t, tree)).GetStable().GetSysctls().GetValues() {
			values = append(values, sysctl.GetValue())
		}
		if got := strings.Join(values, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
