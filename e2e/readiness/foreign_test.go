package readiness

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
)

// foreign is a virtual server of somebody else, as ipvsadm -Sn prints it.
const foreign = `-A -t 198.18.250.1:41808 -s wlc
-a -t 198.18.250.1:41808 -r 198.18.250.2:80 -m -w 1
`

// remedies are tries to keep somebody else's virtual servers over a start of kube-proxy in nftables mode.
type remedies struct {
	*testing.T
	node *cluster.Node
}

func (r remedies) sh(script string) (string, int) {
	r.Helper()
	result, err := r.node.RunInput(r.Context(), []byte(script), "sh")
	if err != nil {
		r.Fatal(err)
	}
	return result.Stdout + result.Stderr, result.ExitCode
}

func (r remedies) servers() string {
	r.Helper()
	saved, code := r.sh("ipvsadm -Sn")
	if code != 0 {
		r.Fatal(saved)
	}
	return saved
}

// add puts a snapshot back.
func (r remedies) add(snapshot string) {
	r.Helper()
	if result, err := r.node.RunInput(r.Context(), []byte(snapshot), "ipvsadm", "-R"); err != nil || result.ExitCode != 0 {
		r.Fatalf("putting virtual servers back: %v: %s", err, result.Stderr)
	}
}

// restart starts kube-proxy in nftables mode, in sync, and ends it after during.
func (r remedies) restart(config cluster.ProxyConfig, during func()) {
	r.Helper()
	config.Mode = "nftables"
	p := clustertest.StartProxy(r.T, r.node, config)
	during()
	if err := p.End(); err != nil {
		r.Error(err)
	}
}

// stays says whether the foreign virtual server is still there.
func (r remedies) stays(what string, want bool) {
	r.Helper()
	if got := strings.Contains(r.servers(), "198.18.250.1:41808"); got != want {
		r.Errorf("%s: the foreign virtual server is there: %v, want %v", what, got, want)
	}
}

// What findings advise for virtual servers of others is what works here, and what they do not advise does not.
func TestForeignRemedies(t *testing.T) {
	onlyWhenAsked(t)
	c, _ := clustertest.Start(t)
	r := remedies{t, clustertest.AddNode(t, c, cluster.NodeSpec{Name: "foreign", Kernel: "6.1", Proxy: kube.Proxy137})}

	const file = "/etc/modprobe.d/offramp.conf"
	// A word in modprobe's configuration keeps a module that is not loaded out for everybody, for its owner, too.
	if text, code := r.sh("grep -q '^ip_vs ' /proc/modules && exit 9; mkdir -p /etc/modprobe.d; echo install ip_vs /bin/false >" + file + "; modprobe -va ip_vs"); code == 0 || code == 9 {
		t.Errorf("modprobe with an install line: exit status %d: %s", code, text)
	}
	if text, code := r.sh("ipvsadm -A -t 198.18.250.1:41808 -s wlc"); code == 0 {
		t.Errorf("its owner can use ip_vs all the same: %s", text)
	}
	r.sh("rm " + file + "; modprobe -va ip_vs")
	r.add(foreign)
	snapshot := r.servers()
	// Once it is loaded, as it is where somebody uses it, such a word says nothing any more.
	for _, line := range []string{"install ip_vs /bin/false", "blacklist ip_vs"} {
		if text, code := r.sh("echo " + line + " >" + file + "; modprobe -va ip_vs"); code != 0 {
			t.Errorf("modprobe of a loaded module with %q: exit status %d: %s", line, code, text)
		}
	}
	r.sh("echo install ip_vs /bin/false >" + file)
	r.restart(cluster.ProxyConfig{}, func() {
		r.stays("with an install line in modprobe's configuration", false)
		r.add(snapshot)
		if got := r.servers(); got != snapshot {
			t.Errorf("put back is\n%s, want\n%s", got, snapshot)
		}
	})
	r.stays("put back under a running kube-proxy, which has ended", true)
	// The line would also make modprobe know the module by name where there is no /lib/modules.
	r.sh("rm " + file)
	r.restart(cluster.ProxyConfig{}, func() { r.stays("put back, after the next start", false) })

	r.add(snapshot)
	r.restart(cluster.ProxyConfig{Without: []string{"modprobe"}}, func() { r.stays("for a kube-proxy whose modprobe fails", true) })
	r.restart(cluster.ProxyConfig{Emptied: []string{"/lib/modules"}}, func() { r.stays("for a kube-proxy without /lib/modules", true) })
	r.restart(cluster.ProxyConfig{}, func() { r.stays("with neither", false) })
}
