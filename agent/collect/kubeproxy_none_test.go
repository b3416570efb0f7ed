package collect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// What stands between a reading and "none", one thing each.
func TestNoneIsProvenByEverySign(t *testing.T) {
	kubelet := aProcess("700", "kubelet", "/usr/bin/kubelet")
	unitOf := func(command string) string { return "[Service]\nExecStart=" + command + "\n" }
	pod := map[string]string{"proc/1/comm": "offramp-agent\n", "proc/1/cmdline": "a\x00", "etc/os-release": "ID=x\n"}
	for name, test := range map[string]struct {
		tree map[string]string
		want []string
	}{
		"no kubelet at all": {wholeHost(), nil},
		"processes hidden": {pod, []string{
			"the processes of the host are not in sight", "none was seen for less than 10m0s so far",
		}},
		"a kubelet": {wholeHost(kubelet), []string{"a kubelet runs (process 700), and nothing that takes kube-proxy's place was found"}},
		"a kubelet that will run": {wholeHost(map[string]string{"lib/systemd/system/kubelet.service": unitOf("/usr/bin/kubelet")}), []string{
			"/lib/systemd/system/kubelet.service starts a kubelet, and nothing that takes kube-proxy's place was found",
		}},
		"a kubelet and Antrea":    {wholeHost(kubelet, aProcess("701", "antrea-agent", "antrea-agent")), nil},
		"a kubelet, kube-router":  {wholeHost(kubelet, aProcess("701", "kube-router", "kube-router", "--run-router=true")), nil},
		"kube-router for routing": {wholeHost(kubelet, aProcess("701", "kube-router", "kube-router", "--run-service-proxy=false")), []string{"a kubelet runs (process 700), and nothing that takes kube-proxy's place was found"}},
		"Cilium without a sign":   {wholeHost(kubelet, aProcess("701", "cilium-agent", "cilium-agent")), []string{"a kubelet runs (process 700), and nothing that takes kube-proxy's place was found"}},
		"a unit": {wholeHost(map[string]string{"etc/systemd/system/kube-proxy.service": unitOf("/usr/bin/kube-proxy --proxy-mode ipvs")}), []string{
			"/etc/systemd/system/kube-proxy.service (systemd unit) starts a kube-proxy",
		}},
		"a unit of another name": {wholeHost(map[string]string{"etc/systemd/system/proxy.service": unitOf("/opt/bin/hyperkube proxy --proxy-mode ipvs")}), []string{
			"/etc/systemd/system/proxy.service (systemd unit) starts a kube-proxy",
		}},
		"a unit of somebody else": {wholeHost(map[string]string{"etc/systemd/system/proxy.service": unitOf("/usr/bin/haproxy -f kube-proxy.cfg")}), nil},
		"MicroK8s' unit": {wholeHost(map[string]string{"etc/systemd/system/snap.microk8s.daemon-kubelite.service": unitOf("/usr/bin/snap run microk8s.daemon-kubelite")}), []string{
			"/etc/systemd/system/snap.microk8s.daemon-kubelite.service (systemd unit) starts a kube-proxy",
			"/etc/systemd/system/snap.microk8s.daemon-kubelite.service starts a kubelet, and nothing that takes kube-proxy's place was found",
		}},
		"k3s that will run": {wholeHost(map[string]string{"etc/systemd/system/k3s.service": unitOf("/usr/local/bin/k3s server")}), []string{
			"/etc/systemd/system/k3s.service (systemd unit) starts a kube-proxy",
			"/etc/systemd/system/k3s.service starts a kubelet, and nothing that takes kube-proxy's place was found",
		}},
		"a manifest nobody understands": {wholeHost(map[string]string{"etc/kubernetes/manifests/x.yaml": "\t{"}), []string{
			"/etc/kubernetes/manifests/x.yaml: not understood as a manifest",
		}},
		"other static pods": {wholeHost(map[string]string{
			"etc/kubernetes/manifests/etcd.yaml":        "kind: Pod\nspec: {containers: [{name: etcd, command: [etcd]}]}\n",
			"etc/kubernetes/manifests/.kube-proxy.yaml": "kind: Pod\nspec: {containers: [{name: kube-proxy}]}\n", // kubelet takes no notice of it
		}), nil},
		"root not in sight": {hostProcesses(nil), []string{
			"/etc/kubernetes/manifests: not in sight", "/etc/systemd/system: not in sight", "/usr/lib/systemd/system: not in sight",
		}},
	} {
		content := readFor(t, test.tree, 10*time.Minute)
		if diff := cmp.Diff(test.want, content.GetNoneMissing()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if (content.GetRunningMode() == proxyModeNone) != (len(test.want) == 0) {
			t.Errorf("%s: running %v from %q", name, content.GetRunningMode(), content.GetRunningModeSource())
		}
	}
}

func TestNoneTakesTenMinutes(t *testing.T) {
	for span, want := range map[time.Duration]offrampv1.ProxyMode{
		0: proxyModeUnknown, 9 * time.Minute: proxyModeUnknown, 10 * time.Minute: proxyModeNone,
	} {
		content := readFor(t, wholeHost(), span)
		if content.GetRunningMode() != want {
			t.Errorf("after %v: %v, missing %q", span, content.GetRunningMode(), content.GetNoneMissing())
		}
	}
	content := readProxyFacts(t, wholeHost())
	if diff := cmp.Diff([]string{"a single reading cannot tell that none ran for 10m0s"}, content.GetNoneMissing()); diff != "" {
		t.Error(diff)
	}
}

// A kube-proxy that comes and goes, or that nobody looked for, is not none.
func TestACrashLoopIsNotNone(t *testing.T) {
	h := newHistory(aMoment(), nil)
	at := func(minutes int) time.Time { return aMoment().Add(time.Duration(minutes) * time.Minute) }
	for _, step := range []struct {
		minute int
		seen   bool
		since  int // -1: seen
	}{
		{0, false, 0}, {2, false, 0}, {4, true, -1}, {5, false, 5}, {8, false, 5}, {11, false, 5},
		{15, false, 15},                // nobody looked for four minutes
		{16, false, 15}, {9, false, 9}, // the clock was put back
	} {
		want := time.Time{}
		if step.since >= 0 {
			want = at(step.since)
		}
		if got := h.seeProxy(step.seen, "a", at(step.minute)); !got.Equal(want) {
			t.Errorf("minute %d: none since %v, want %v", step.minute, got, want)
		}
	}
	if got := h.section(at(16)).GetStable().GetHistory().GetNoKubeProxySince(); !got.AsTime().Equal(at(9)) {
		t.Errorf("the history says %v", got.AsTime())
	}
	h.seeProxy(true, "a", at(10))
	if got := h.section(at(16)).GetStable().GetHistory().GetNoKubeProxySince(); got != nil {
		t.Errorf("one is seen, and the history says none since %v", got.AsTime())
	}
}

// The reasons must not move by themselves: they are part of what has a digest.
func TestReasonsAgainstNoneAreStable(t *testing.T) {
	first := readFor(t, wholeHost(), 2*time.Minute).GetNoneMissing()
	if diff := cmp.Diff(first, readFor(t, wholeHost(), 5*time.Minute).GetNoneMissing()); diff != "" {
		t.Error(diff)
	}
}

// Every way in which a kube-proxy is a process.
func TestProgramOf(t *testing.T) {
	for line, want := range map[string]program{
		"kube-proxy|/usr/local/bin/kube-proxy --config=x":   programKubeProxy,
		"hyperkube|/hyperkube kube-proxy --proxy-mode=ipvs": programHyperkube,
		"hyperkube|hyperkube proxy":                         programHyperkube,
		"hyperkube|hyperkube kubelet":                       programNone,
		"hyperkube|hyperkube --v=2 proxy":                   programHyperkube,
		"kubelite|/snap/microk8s/1/kubelite":                programKubelite,
		"k3s|/usr/local/bin/k3s server":                     programK3s,
		"k3s-server|k3s server":                             programK3s,
		"k3s|k3s kubectl get nodes":                         programNone,
		"k3s|k3s etcd-snapshot save":                        programNone,
		"rke2|rke2 agent":                                   programRKE2,
		"rke2|rke2 token":                                   programNone,
		"k0s|k0s worker":                                    programNone,
		"grep|grep kube-proxy":                              programNone,
		"kube-proxy-old|kube-proxy-old":                     programNone,
	} {
		name, command, _ := strings.Cut(line, "|")
		if got := programOf(name, strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for title, want := range map[string]string{"/usr/local/bin/k3s agent": "agent", "k3s": "", "k3s ": "", " ": "", "": ""} {
		if got := roleOf([]string{title, "", ""}); got != want {
			t.Errorf("%q: role %q, want %q", title, got, want)
		}
	}
}
