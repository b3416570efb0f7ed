package deploycheck

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dirty is a node as ipvs mode and iptables mode leave it, as far as a host without ip_vs can be.
const dirty = `ip link set lo up
sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2
ipset create KUBE-CLUSTER-IP hash:ip,port
nft add table ip kube-proxy
for tool in iptables-legacy ip6tables-legacy iptables-nft; do
  $tool -t nat -N KUBE-SERVICES
  $tool -t nat -A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
done`

// looking are what inspect says where something is missing, and says nowhere else.
func looking() map[missing]string {
	return map[missing]string{
		"NET_ADMIN":  "list the ipsets: operation not permitted",
		"/host/proc": "processes: not in sight",
		"/host/etc":  "/etc: not in sight",
		"/host/usr":  "/usr/lib/systemd/system: not in sight",
		"/host/lib":  "/lib: not in sight",
	}
}

// Everything that observe gives is enough to look, and each part of it is needed for something.
func observeEnoughAndNeeded(t *testing.T, st *stage) {
	s := newSandbox(t, st.decoded(t, st.built(t, "observe")).pods()["DaemonSet/offramp-agent"].Spec)
	s.instead = map[string]string{"/var/lib/offramp": t.TempDir()}
	s.inside(dirty)
	all, complaint, code := s.run("", "inspect", "-o", "json")
	if code != 0 || strings.Contains(all, "not permitted") || strings.Contains(all, "SECTION_STATE_UNREADABLE") || strings.Contains(all, "SECTION_STATE_INCONSISTENT") {
		t.Fatalf("what observe gives is not enough: %d, %s\n%s", code, complaint, notRead(all))
	}
	for _, chain := range []string{"KUBE-SERVICES", "KUBE-CLUSTER-IP"} {
		if !strings.Contains(all, chain) {
			t.Errorf("%s is not found", chain)
		}
	}
	for _, without := range s.given() {
		want, told := looking()[without]
		if without == "/var/lib/offramp" {
			continue // history and journal: a clean-up below shows it
		}
		if !told {
			t.Errorf("what is %s for?", without)
			continue
		}
		if strings.Contains(all, want) {
			t.Errorf("%q is said with everything given, too", want)
		}
		if got, complaint, _ := s.run(without, "inspect", "-o", "json"); !strings.Contains(got, want) {
			t.Errorf("without %s inspect does not say %q: %s\n%s", without, want, complaint, notRead(got))
		}
	}
}

// cleaning are what a clean-up says where something is missing, and with which exit code.
func cleaning() map[missing]struct {
	code int
	says string
} {
	type answer = struct {
		code int
		says string
	}
	return map[missing]answer{
		"NET_ADMIN":          {4, "operation not permitted"},
		"NET_RAW":            {1, "iptables-legacy-restore"},
		"/host/proc":         {4, "section-unread"},
		"/host/etc":          {4, "host-unread"},
		"/host/usr":          {4, "host-unread"},
		"/host/lib":          {4, "host-unread"},
		"/run/xtables.lock":  {1, "/run/xtables.lock"},
		"/var/lib/offramp":   {2, "read-only"},
		"/host/proc/sys/net": {3, "read-only file system"},
	}
}

// Everything that enforce and sysctl-reset give is enough to clean a node up, and each part of it is needed for that.
func enforceEnoughAndNeeded(t *testing.T, st *stage) {
	objects, err := st.manifests.BuildWith("enforce", "sysctl-reset")
	if err != nil {
		t.Fatal(err)
	}
	s := newSandbox(t, st.decoded(t, objects).pods()["DaemonSet/offramp-agent"].Spec)
	// The programs that the image has for iptables-legacy are the host's here.
	s.more = []mount{{"/usr", "bind", "/usr", []string{"rbind", "rprivate", "ro"}}}
	s.links = []string{"lib", "lib64", "sbin", "bin"}
	s.instead = map[string]string{"/var/lib/offramp": durableFolder(t), "/run/xtables.lock": lockFile(t)}
	s.inside(dirty)
	apply := []string{"cleanup", "apply", "--target", "none", "--assert-no-kube-proxy", "a test", "--reset-sysctls", "--yes", "--no-connect"}
	order := s.given()
	// What still lets the rest be done comes last.
	slices.SortStableFunc(order, func(a, b missing) int { return cmp.Compare(cleaning()[a].code%4, cleaning()[b].code%4) })
	for _, without := range order {
		want, told := cleaning()[without]
		out, complaint, code := s.run(without, apply...)
		if !told || code != want.code || !strings.Contains(out+complaint, want.says) {
			t.Errorf("without %s a clean-up ends with %d, want %d and %q: %s\n%s", without, code, want.code, want.says, complaint, out)
		}
	}
	s.inside("ipset create -exist KUBE-CLUSTER-IP hash:ip,port; sysctl -qw net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2")
	if out, complaint, code := s.run("", apply...); code != 0 {
		t.Errorf("what enforce gives is not enough: %d, %s\n%s", code, complaint, out)
	}
	s.inside("test -z \"$(ipset list -n)$(iptables-legacy-save | grep KUBE)$(ip6tables-legacy-save | grep KUBE)$(iptables-nft-save | grep KUBE)\"; test $(sysctl -n net.ipv4.conf.all.arp_ignore) = 0")
}

// durableFolder is one on a disk: a clean-up refuses memory. The host's /var/tmp is on one, as a rule.
func durableFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/var/tmp", "offramp-deploycheck-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func lockFile(t *testing.T) string {
	t.Helper()
	file := t.TempDir() + "/lock"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// notRead is what inspect says of what it could not read.
func notRead(said string) string {
	return strings.Join(regexp.MustCompile(`(?s)"(?:error": "[^"]+"|(?:unreadable|noneMissing)": \[[^]]*\])`).FindAllString(said, -1), "\n")
}
