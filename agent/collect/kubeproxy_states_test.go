package collect

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	modeIPVS      = offrampv1.ProxyMode_PROXY_MODE_IPVS
	modeExplicit  = offrampv1.ModeOrigin_MODE_ORIGIN_EXPLICIT
	modeDefaulted = offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED
)

// wholeHost is a node whose whole root is in sight, with its process table and more files.
func wholeHost(more ...map[string]string) map[string]string {
	all := hostProcesses(map[string]string{"etc/os-release": "ID=debian\n"})
	for _, files := range more {
		maps.Copy(all, files)
	}
	return all
}

// aProcess is the files of one more process.
func aProcess(pid, name string, args ...string) map[string]string {
	return map[string]string{
		"proc/" + pid + "/comm":    name + "\n",
		"proc/" + pid + "/cmdline": strings.Join(args, "\x00") + "\x00",
		"proc/" + pid + "/cgroup":  "0::/system.slice/" + name + ".service\n",
		"proc/" + pid + "/stat":    pid + " (" + name + ") S 1 1 1 0 -1 1077936384 0 0 0 0 5 3 0 0 20 0 9 0 777 0 0\n",
	}
}

// readProxyFacts reads a fixture where nobody answers.
func readProxyFacts(t *testing.T, tree map[string]string) *offrampv1.KubeProxyFacts {
	t.Helper()
	return readProxy(t, tree, nowhere(t), "").GetStable().GetKubeProxy()
}

// configured writes a configured mode as "IPVS EXPLICIT from SOURCE".
func configured(content *offrampv1.KubeProxyFacts) string {
	return strings.TrimPrefix(content.GetConfiguredMode().String(), "PROXY_MODE_") + " " +
		strings.TrimPrefix(content.GetConfiguredModeOrigin().String(), "MODE_ORIGIN_") + " from " + content.GetConfiguredModeSource()
}

// fileLines writes files as "PATH (KIND) IPVS EXPLICIT ERROR".
func fileLines(content *offrampv1.KubeProxyFacts) []string {
	var lines []string
	for _, file := range content.GetFiles() {
		line := file.GetPath() + " (" + file.GetKind() + ")"
		if file.GetError() == "" {
			line += " " + strings.TrimPrefix(file.GetMode().String(), "PROXY_MODE_") + " " +
				strings.TrimPrefix(file.GetModeOrigin().String(), "MODE_ORIGIN_")
		} else {
			line += ": " + file.GetError()
		}
		lines = append(lines, line)
	}
	return lines
}

// With an empty mode kube-proxy chooses: iptables up to 1.39; what 1.40 chooses depends on what it becomes.
func TestState01EmptyMode(t *testing.T) {
	for version, want := range map[string]string{
		"v1.37.2": "IPTABLES DEFAULTED from /configz",
		"v1.40.0": "UNKNOWN DEFAULTED from /configz",
	} {
		for _, text := range []string{`{"mode":""}`, `{"Mode":"","Linux":{}}`} {
			where := serve(t, paths{
				"/proxyMode": "iptables", "/configz": `{"kubeproxy.config.k8s.io":` + text + `}`,
				"/metrics": `kubernetes_build_info{git_version="` + version + `"} 1` + "\n",
			})
			content := readProxy(t, wholeHost(proxyProcess("--config=/etc/kp")), where, "").GetStable().GetKubeProxy()
			if got := configured(content); got != want {
				t.Errorf("%s, %s: %s, want %s", version, text, got, want)
			}
		}
	}
	file := map[string]string{"var/lib/kube-proxy/config.conf": "kind: KubeProxyConfiguration\nmode: \"\"\n"}
	content := readProxyFacts(t, wholeHost(file))
	if got := configured(content); got != "UNKNOWN DEFAULTED from /var/lib/kube-proxy/config.conf" {
		t.Errorf("of a file: %s", got)
	}
}

// Configuration and process disagree, either way round: three facts, none bent to fit another.
func TestState30ConfiguredIsNotRunning(t *testing.T) {
	for running, written := range map[string]string{"ipvs": "nftables", "nftables": "ipvs"} {
		tree := wholeHost(
			aProcess("417", "kube-proxy", "/usr/bin/kube-proxy", "--config=/etc/kubernetes/kube-proxy.config.yaml"),
			map[string]string{
				"etc/kubernetes/kube-proxy.config.yaml": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: " + written + "\n",
			})
		content := readProxy(t, tree, serve(t, paths{"/proxyMode": running}), "").GetStable().GetKubeProxy()
		if content.GetRunningMode() != proxyMode(running) || content.GetConfiguredMode() != proxyMode(written) ||
			content.GetConfiguredModeOrigin() != modeExplicit ||
			content.GetConfiguredModeSource() != "/etc/kubernetes/kube-proxy.config.yaml" {
			t.Errorf("running %v, configured %s", content.GetRunningMode(), configured(content))
		}
	}
}

// k3s has kube-proxy inside, hides its flags, and is configured by a file and drop-ins.
func TestState54K3s(t *testing.T) {
	agent := aProcess("900", "k3s-agent", "/usr/local/bin/k3s agent", "", "", "")
	unit := map[string]string{"etc/systemd/system/k3s-agent.service": "[Service]\nExecStart=/usr/local/bin/k3s \\\n    agent \\\n\t'--node-label' 'a=b' \\\n"}
	for name, test := range map[string]struct {
		files      map[string]string
		configured string
		program    string
	}{
		"a drop-in": {map[string]string{
			"etc/rancher/k3s/config.yaml":          "server: https://x:6443\n",
			"etc/rancher/k3s/config.yaml.d/a.yaml": "kube-proxy-arg:\n- proxy-mode=ipvs\n- ipvs-exclude-cidrs=10.1.0.0/16\n",
		}, "IPVS EXPLICIT from /etc/rancher/k3s/config.yaml", "k3s"},
		"a later drop-in wins": {map[string]string{
			"etc/rancher/k3s/config.yaml.d/a.yaml": "kube-proxy-arg: [proxy-mode=ipvs]\n",
			"etc/rancher/k3s/config.yaml.d/b.yaml": "kube-proxy-arg: proxy-mode=nftables\n",
		}, "NFTABLES EXPLICIT from /etc/rancher/k3s/config.yaml", "k3s"},
		"one that adds": {map[string]string{
			"etc/rancher/k3s/config.yaml.d/a.yaml": "kube-proxy-arg: [proxy-mode=ipvs]\n",
			"etc/rancher/k3s/config.yaml.d/b.yaml": "kube-proxy-arg+: [ipvs-scheduler=lc]\n",
		}, "IPVS EXPLICIT from /etc/rancher/k3s/config.yaml", "k3s"},
		"nothing said":     {nil, "IPTABLES DEFAULTED from /etc/rancher/k3s/config.yaml", "k3s"},
		"not a drop-in":    {map[string]string{"etc/rancher/k3s/config.yaml.d/a.bak": "kube-proxy-arg: [proxy-mode=ipvs]\n"}, "IPTABLES DEFAULTED from /etc/rancher/k3s/config.yaml", "k3s"},
		"turned off":       {map[string]string{"etc/rancher/k3s/config.yaml": "disable-kube-proxy: true\n"}, "", ""},
		"turned off, text": {map[string]string{"etc/rancher/k3s/config.yaml": "disable-kube-proxy: \"true\"\n"}, "", ""},
		"turned off by its unit": {map[string]string{
			"etc/systemd/system/k3s-agent.service": "[Service]\nExecStart=/usr/local/bin/k3s agent --disable-kube-proxy\n",
		}, "", ""},
		"moved configuration": {map[string]string{
			"etc/systemd/system/k3s-agent.service": "[Service]\nEnvironmentFile=-/etc/default/k3s\nExecStart=/usr/local/bin/k3s agent $OPTIONS\n",
			"etc/default/k3s":                      "OPTIONS=\"-c /srv/k3s.yaml\"\n",
			"srv/k3s.yaml":                         "kube-proxy-arg: [proxy-mode=ipvs]\n",
		}, "IPVS EXPLICIT from /srv/k3s.yaml", "k3s"},
	} {
		content := readProxyFacts(t, wholeHost(agent, unit, test.files))
		var program string
		for _, process := range content.GetProcesses() {
			program = process.GetProgram()
		}
		if program != test.program {
			t.Errorf("%s: program %q, want %q", name, program, test.program)
		}
		if got := configured(content); test.configured != "" && got != test.configured {
			t.Errorf("%s: %s, want %s", name, got, test.configured)
		}
	}
	content := readProxyFacts(t, wholeHost(agent, unit, map[string]string{
		"etc/rancher/k3s/config.yaml.d/a.yaml": "kube-proxy-arg: [proxy-mode=ipvs, ipvs-exclude-cidrs=10.1.0.0/16]\n",
	}))
	if diff := cmp.Diff([]string{"10.1.0.0/16"}, content.GetSettings().GetIpvsExcludeCidrs()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"/etc/rancher/k3s/config.yaml.d/a.yaml (k3s configuration) IPVS EXPLICIT",
		"/etc/systemd/system/k3s-agent.service (systemd unit) IPVS EXPLICIT",
	}, fileLines(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rke2 writes a static pod into a folder that can be moved.
func TestState55RKE2(t *testing.T) {
	const manifest = `apiVersion: v1
kind: Pod
metadata: {name: kube-proxy, namespace: kube-system}
spec:
  containers:
  - name: kube-proxy
    command: [kube-proxy]
    args: ["--cluster-cidr=10.42.0.0/16", "--proxy-mode=ipvs", "--masquerade-all"]
`
	server := aProcess("800", "rke2", "/usr/local/bin/rke2 server", "")
	for name, files := range map[string]map[string]string{
		"where it is": {"var/lib/rancher/rke2/agent/pod-manifests/kube-proxy.yaml": manifest},
		"moved by its configuration": {
			"etc/rancher/rke2/config.yaml":                 "data-dir: /srv/rke2\n",
			"srv/rke2/agent/pod-manifests/kube-proxy.yaml": manifest,
		},
		"moved by a drop-in": {
			"etc/rancher/rke2/config.yaml.d/1.yaml":        "data-dir: /srv/rke2\n",
			"srv/rke2/agent/pod-manifests/kube-proxy.yaml": manifest,
		},
		"moved by its unit": {
			"usr/lib/systemd/system/rke2-server.service":   "[Service]\nExecStart=/usr/local/bin/rke2 server -d /srv/rke2\n",
			"srv/rke2/agent/pod-manifests/kube-proxy.yaml": manifest,
		},
		"told by its kubelet": mergeFiles(
			aProcess("801", "kubelet", "/srv/x/bin/kubelet", "--pod-manifest-path=/srv/rke2/agent/pod-manifests"),
			map[string]string{"srv/rke2/agent/pod-manifests/kube-proxy.yaml": manifest}),
	} {
		proxy := aProcess("850", "kube-proxy", "kube-proxy", "--cluster-cidr=10.42.0.0/16", "--proxy-mode=ipvs", "--masquerade-all")
		content := readProxyFacts(t, wholeHost(server, proxy, files))
		if got := configured(content); got != "IPVS EXPLICIT from --proxy-mode" {
			t.Errorf("%s: %s", name, got)
		}
		if len(content.GetProcesses()) != 1 || content.GetProcesses()[0].GetPid() != 850 {
			t.Errorf("%s: processes %v", name, content.GetProcesses())
		}
		if !content.GetSettings().GetIptablesMasqueradeAll() || content.GetSettings().GetSource() != "flags of process 850" {
			t.Errorf("%s: settings %v", name, content.GetSettings())
		}
		found := false
		for _, line := range fileLines(content) {
			found = found || strings.HasSuffix(line, "/agent/pod-manifests/kube-proxy.yaml (static-pod manifest) IPVS EXPLICIT")
		}
		if !found {
			t.Errorf("%s: files %q", name, fileLines(content))
		}
		// Its kube-proxy is about to be started again: rke2 itself stands for it.
		content = readProxyFacts(t, wholeHost(server, files))
		if len(content.GetProcesses()) != 1 || content.GetProcesses()[0].GetProgram() != "rke2" || content.GetRunningMode() != proxyModeUnknown {
			t.Errorf("%s, without its kube-proxy: %v", name, content)
		}
	}
	off := map[string]string{"etc/rancher/rke2/config.yaml": "disable-kube-proxy: true\n"}
	if content := readProxyFacts(t, wholeHost(server, off)); len(content.GetProcesses()) != 0 {
		t.Errorf("turned off: %v", content.GetProcesses())
	}
}

func mergeFiles(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, files := range all {
		maps.Copy(merged, files)
	}
	return merged
}

// A kube-proxy that is gone, with an eBPF one in its place: none once it is proven, which an orphan manifest forbids, since a
// kubelet would start it.
func TestState20ReplacedKubeProxy(t *testing.T) {
	replaced := wholeHost(
		aProcess("700", "kubelet", "/usr/bin/kubelet"), aProcess("701", "cilium-agent", "cilium-agent"),
		map[string]string{"sys/fs/bpf/cilium/x": ""})
	orphan := mergeFiles(replaced, map[string]string{
		"etc/kubernetes/manifests/kube-proxy.manifest": "kind: Pod\nspec: {containers: [{name: kube-proxy, command: [sh, -c, 'kube-proxy --proxy-mode=iptables 1>>/x']}]}\n",
	})
	content := readFor(t, replaced, 11*time.Minute)
	if content.GetRunningMode() != proxyModeNone || len(content.GetNoneMissing()) != 0 ||
		content.GetRunningModeSource() != "proven: no kube-proxy for 10m0s, no manifest or unit for one, and cilium takes its place" {
		t.Errorf("%v from %q, missing %q", content.GetRunningMode(), content.GetRunningModeSource(), content.GetNoneMissing())
	}
	content = readFor(t, orphan, 11*time.Minute)
	want := "no kube-proxy runs, but /etc/kubernetes/manifests/kube-proxy.manifest (static-pod manifest) starts one"
	if content.GetRunningMode() != proxyModeUnknown || content.GetRunningModeSource() != want {
		t.Errorf("with an orphan manifest: %v from %q", content.GetRunningMode(), content.GetRunningModeSource())
	}
	if diff := cmp.Diff([]string{
		"/etc/kubernetes/manifests/kube-proxy.manifest (static-pod manifest) IPTABLES EXPLICIT",
	}, fileLines(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Nor may a person assert it away.
	content = readProxy(t, orphan, nowhere(t), "Cilium does it").GetStable().GetKubeProxy()
	if content.GetRunningMode() != proxyModeUnknown || !strings.Contains(content.GetRunningModeSource(), "overrules the assertion") {
		t.Errorf("asserted: %v from %q", content.GetRunningMode(), content.GetRunningModeSource())
	}
}

// readFor reads a fixture every minute for so long and returns the last reading.
func readFor(t *testing.T, tree map[string]string, span time.Duration) *offrampv1.KubeProxyFacts {
	t.Helper()
	in := proxySurroundings{host: hostOf(t, tree), addresses: nowhere(t), history: newHistory(aMoment(), nil)}
	var section *offrampv1.Section
	for after := time.Duration(0); after <= span; after += time.Minute {
		in.host.Now = func() time.Time { return aMoment().Add(after) }
		section, _ = readKubeProxy(t.Context(), in)
	}
	return section.GetStable().GetKubeProxy()
}

// Calico in eBPF mode takes kube-proxy's place; in its other modes it does not.
func TestState45Calico(t *testing.T) {
	node := wholeHost(aProcess("700", "kubelet", "kubelet"), aProcess("702", "calico-node", "calico-node", "-felix"))
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"eBPF":         {map[string]string{"sys/fs/bpf/tc/globals/cali_v4_nat_fe3": ""}, []string{"calico-ebpf"}},
		"another mode": {nil, nil},
		"another map":  {map[string]string{"sys/fs/bpf/tc/globals/cali_v4_nat_fe3_old": "", "sys/fs/bpf/tc/globals/cali_state": ""}, nil},
	} {
		if diff := cmp.Diff(test.want, readProxyFacts(t, mergeFiles(node, test.files)).GetReplacements()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Somebody uses node ports on localhost: from iptables mode that is a regression, from ipvs mode it never worked.
func TestState41LocalhostNodePorts(t *testing.T) {
	where := serve(t, paths{"/proxyMode": "iptables", "/metrics": strings.Join([]string{
		metricLocalhost + " 17", metricInvalid + " 3",
		metricDurationSum + `{ip_family="IPv4"} 1.5`, metricDurationCount + `{ip_family="IPv4"} 2`,
		metricDurationSum + `{ip_family="IPv6"} 0.5`, metricDurationCount + `{ip_family="IPv6"} 2`,
	}, "\n") + "\n" + metricLastSync + " 1.7e9\n"})
	got := readProxy(t, hostProcesses(proxyProcess()), where, "").GetVolatile().GetKubeProxy()
	if got.LocalhostNodeportPackets == nil || got.GetLocalhostNodeportPackets() != 17 || got.GetInvalidDroppedPackets() != 3 {
		t.Errorf("%v", got)
	}
	if got.GetMeanSyncDuration().AsDuration() != 500*time.Millisecond || got.GetSyncsMeasured() != 4 {
		t.Errorf("mean %v of %d", got.GetMeanSyncDuration().AsDuration(), got.GetSyncsMeasured())
	}
	where = serve(t, paths{"/metrics": metricLastSync + " 1.7e9\n"})
	got = readProxy(t, hostProcesses(proxyProcess()), where, "").GetVolatile().GetKubeProxy()
	if got.LocalhostNodeportPackets != nil || got.InvalidDroppedPackets != nil || got.GetMeanSyncDuration() != nil {
		t.Errorf("what is not exported is reported: %v", got)
	}
}
