package collect

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const fullConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
clusterCIDR: 10.244.0.0/16,fd00::/48
detectLocalMode: ClusterCIDR
nodePortAddresses: [192.0.2.0/24]
metricsBindAddress: 0.0.0.0:10249
featureGates: {KubeProxyIPVS: true, A: false}
conntrack: {tcpBeLiberal: true, min: null}
iptables: {masqueradeAll: true, masqueradeBit: 14}
nftables: {masqueradeBit: null}
ipvs: {scheduler: lc, strictARP: true, excludeCIDRs: [10.9.0.0/16]}
Mode: nftables
`

func fullSettings(source string) *offrampv1.KubeProxySettings {
	return &offrampv1.KubeProxySettings{
		Source: source, IpvsExcludeCidrs: []string{"10.9.0.0/16"}, IpvsScheduler: "lc", IpvsStrictArp: true,
		NodePortAddresses: []string{"192.0.2.0/24"}, IptablesMasqueradeAll: true, IptablesMasqueradeBit: 14, NftablesMasqueradeBit: -1,
		ClusterCidrs: []string{"10.244.0.0/16", "fd00::/48"}, DetectLocalMode: "ClusterCIDR",
		FeatureGates: []string{"A=false", "KubeProxyIPVS=true"}, ConntrackTcpBeLiberal: true,
	}
}

// The same settings in each of the forms in which kube-proxy has them.
func TestSettingsInEveryForm(t *testing.T) {
	const internal = `{"Mode":"ipvs","DetectLocalMode":"ClusterCIDR","DetectLocal":{"ClusterCIDRs":["10.244.0.0/16","fd00::/48"]},
		"NodePortAddresses":["192.0.2.0/24"],"FeatureGates":{"KubeProxyIPVS":true,"A":false},
		"Linux":{"Conntrack":{"TCPBeLiberal":true},"MasqueradeAll":true},"IPTables":{"MasqueradeBit":14},"NFTables":{"MasqueradeBit":null},
		"IPVS":{"Scheduler":"lc","StrictARP":true,"ExcludeCIDRs":["10.9.0.0/16"]}}`
	const before129 = `{"Mode":"ipvs","DetectLocalMode":"ClusterCIDR","ClusterCIDR":"10.244.0.0/16,fd00::/48",
		"NodePortAddresses":["192.0.2.0/24"],"FeatureGates":{"KubeProxyIPVS":true,"A":false},"Conntrack":{"TCPBeLiberal":true},
		"IPTables":{"MasqueradeAll":true,"MasqueradeBit":14},"IPVS":{"Scheduler":"lc","StrictARP":true,"ExcludeCIDRs":["10.9.0.0/16"]}}`
	for name, text := range map[string]string{"internal": internal, "internal, old": before129} {
		var config proxyConfig
		if err := parseConfigz(&config)(strings.NewReader(`{"kubeproxy.config.k8s.io":` + text + `}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(fullSettings(""), config.settings, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	config, err := parseProxyConfig([]byte(fullConfig))
	if err != nil || config.mode.word != "ipvs" || config.metrics != "0.0.0.0:10249" {
		t.Errorf("%+v, %v", config, err)
	}
	if diff := cmp.Diff(fullSettings(""), config.settings, protocmp.Transform()); diff != "" {
		t.Errorf("of a file (-want +got):\n%s", diff)
	}
	want := fullSettings("")
	want.NftablesMasqueradeAll = true // --masquerade-all is for every mode
	flags := strings.Fields("--proxy-mode=ipvs --cluster_cidr=10.244.0.0/16,fd00::/48 --detect-local-mode ClusterCIDR --nodeport-addresses=192.0.2.0/24 " +
		"--feature-gates=KubeProxyIPVS=true,A=false --conntrack-tcp-be-liberal --masquerade-all=true --iptables-masquerade-bit=14 " +
		"--ipvs-scheduler=lc --ipvs-strict-arp --ipvs-exclude-cidrs=10.9.0.0/16")
	if diff := cmp.Diff(want, settingsFromFlags(flags), protocmp.Transform()); diff != "" {
		t.Errorf("of flags (-want +got):\n%s", diff)
	}
}

// The one masqueradeAll of the internal form is that of the mode that runs.
func TestInternalMasqueradeAll(t *testing.T) {
	for mode, want := range map[string]string{"nftables": "nftables", "iptables": "iptables", "ipvs": "iptables", "": "iptables"} {
		got := object{"Mode": mode, "Linux": map[string]any{"MasqueradeAll": true}}.settings()
		if got.GetIptablesMasqueradeAll() != (want == "iptables") || got.GetNftablesMasqueradeAll() != (want == "nftables") {
			t.Errorf("%q: %v", mode, got)
		}
	}
}

func TestParseProxyConfigRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "it is empty",
		"[1, 2]":                  "it is not understood as YAML",
		"a: b: c":                 "it is not understood as YAML",
		"kind: Config\nmode: x\n": `it is no KubeProxyConfiguration, but a "Config"`,
		"mode: ipvs":              `it is no KubeProxyConfiguration, but a ""`,
	} {
		_, err := parseProxyConfig([]byte(text))
		checkError(t, err, want)
	}
	// A bomb of aliases must neither take the memory nor the time.
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	if _, err := parseProxyConfig([]byte(bomb)); err == nil {
		t.Error("a bomb is not refused")
	}
}

// Binary installs, each where its installer puts things.
func TestFilesOfInstallers(t *testing.T) {
	kops := `{"kind":"Pod","spec":{"containers":[{"name":"kube-proxy","command":["/go-runner","--log-file=/var/log/kube-proxy.log","/usr/local/bin/kube-proxy","--proxy-mode=nftables"]}]}}`
	withFile := `kind: Pod
spec:
  containers:
  - name: kube-proxy
    command: [kube-proxy, --config=/conf/kp/config.conf, --proxy-mode=iptables]
    volumeMounts: [{name: c, mountPath: /conf/kp}]
  volumes: [{name: c, hostPath: {path: /srv/kp}}]
`
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"kops": {map[string]string{"etc/kubernetes/manifests/kube-proxy.manifest": kops}, []string{
			"/etc/kubernetes/manifests/kube-proxy.manifest (static-pod manifest) NFTABLES EXPLICIT",
		}},
		"a pod with a file": {map[string]string{"etc/kubernetes/manifests/p.yaml": withFile, "srv/kp/config.conf": fullConfig}, []string{
			"/etc/kubernetes/manifests/p.yaml (static-pod manifest) IPVS EXPLICIT", "/srv/kp/config.conf (configuration) IPVS EXPLICIT",
		}},
		"a pod with a file of its own": {map[string]string{
			"etc/kubernetes/manifests/p.yaml": strings.ReplaceAll(withFile, "hostPath: {path: /srv/kp}", "configMap: {name: kp}"),
			"conf/kp/config.conf":             fullConfig, // another file of the same name
		}, []string{"/etc/kubernetes/manifests/p.yaml (static-pod manifest) UNKNOWN UNKNOWN"}},
		"a unit with a file": {map[string]string{
			"etc/systemd/system/kube-proxy.service":        "[Service]\nEnvironmentFile=/etc/kubernetes/proxy\nExecStart=/usr/bin/kube-proxy $ARGS\n",
			"etc/kubernetes/proxy":                         "# flags\nARGS=\"--config=/var/lib/kube-proxy/kube-proxy-config.yaml\"\n",
			"var/lib/kube-proxy/kube-proxy-config.yaml":    fullConfig,
			"var/lib/kube-proxy/kubeconfig":                "kind: Config\n",
			"etc/systemd/system/kube-proxy.service.d/x.md": "[Service]\nExecStart=\n",
		}, []string{
			"/etc/systemd/system/kube-proxy.service (systemd unit) IPVS EXPLICIT",
			"/var/lib/kube-proxy/kube-proxy-config.yaml (configuration) IPVS EXPLICIT",
		}},
		"a drop-in": {map[string]string{
			"usr/lib/systemd/system/kube-proxy.service":      "[Service]\nExecStart=/usr/bin/kube-proxy\n",
			"etc/systemd/system/kube-proxy.service.d/m.conf": "[Service]\nExecStart=\nExecStart=-/usr/bin/kube-proxy --proxy-mode=ipvs\n",
		}, []string{"/usr/lib/systemd/system/kube-proxy.service (systemd unit) IPVS EXPLICIT"}},
		"MicroK8s": {map[string]string{"var/snap/microk8s/current/args/kube-proxy": "# a comment --proxy-mode=iptables\n--kubeconfig=${SNAP_DATA}/x\n--proxy-mode=ipvs\n"}, []string{
			"/var/snap/microk8s/current/args/kube-proxy (arguments) IPVS EXPLICIT",
		}},
		"Gardener": {map[string]string{"var/lib/kube-proxy/mode": "IPVS\n"}, []string{"/var/lib/kube-proxy/mode (last mode, by Gardener) IPVS EXPLICIT"}},
		"kubeadm":  {map[string]string{"etc/kubernetes/manifests/etcd.yaml": "kind: Pod\nspec: {containers: [{name: etcd}]}\n"}, nil},
		"a configuration that is none": {map[string]string{"var/lib/kube-proxy/config.conf": "kind: [\n"}, []string{
			"/var/lib/kube-proxy/config.conf (configuration): it is not understood as YAML",
		}},
	} {
		if diff := cmp.Diff(test.want, fileLines(readProxyFacts(t, wholeHost(test.files)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A process in a container names a file of its container's: the host may have another one of that name.
func TestAFileOfAContainerIsNotTheHosts(t *testing.T) {
	files := map[string]string{"var/lib/kube-proxy/config.conf": fullConfig}
	process := aProcess("417", "kube-proxy", "kube-proxy", "--config=/var/lib/kube-proxy/config.conf")
	if got := configured(readProxyFacts(t, wholeHost(files, process))); got != "IPVS EXPLICIT from /var/lib/kube-proxy/config.conf" {
		t.Errorf("a service: %s", got)
	}
	for _, group := range []string{
		"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope\n", "0::/../pod1/2\n", "0::/\n", "",
		"12:cpu:/docker/1\n0::/system.slice/docker-1.scope\n",
	} {
		process["proc/417/cgroup"] = group
		content := readProxyFacts(t, wholeHost(files, process))
		if got := configured(content); got != "UNKNOWN UNKNOWN from --config /var/lib/kube-proxy/config.conf is not in sight" || content.GetSettings() != nil {
			t.Errorf("%q: %s, %v", group, got, content.GetSettings())
		}
	}
}

func TestHostileFilesHarmOnlyThemselves(t *testing.T) {
	host := hostOf(t, wholeHost(map[string]string{
		"etc/kubernetes/manifests/kube-proxy.yaml": strings.Repeat("a", maxHostFile+1),
		"etc/kubernetes/manifests/good.yaml":       "kind: Pod\nspec: {containers: [{name: kube-proxy, args: [--proxy-mode=ipvs]}]}\n",
		"var/lib/kube-proxy/config.conf":           "kind: \xff\xfe\x00",
		"outside/secret":                           fullConfig,
	}))
	for name, target := range map[string]string{"loop.yaml": "loop.yaml", "up.yaml": "../../../../../../../../etc/passwd", "gone.yaml": "/no/such"} {
		if err := os.Symlink(target, filepath.Join(host.Root, "etc/kubernetes/manifests", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(host.Root, "etc/kubernetes/manifests/pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	section, _ := readKubeProxy(t.Context(), proxySurroundings{host: host, addresses: nowhere(t)})
	wantState(t, section, sectionPresent)
	if diff := cmp.Diff([]string{
		"/etc/kubernetes/manifests/gone.yaml (static-pod manifest): not in sight",
		"/etc/kubernetes/manifests/good.yaml (static-pod manifest) IPVS EXPLICIT",
		"/etc/kubernetes/manifests/kube-proxy.yaml (static-pod manifest): too big to be read",
		"/etc/kubernetes/manifests/loop.yaml (static-pod manifest): too many levels of symbolic links",
		"/etc/kubernetes/manifests/pipe.yaml (static-pod manifest): not a regular file",
		"/etc/kubernetes/manifests/up.yaml (static-pod manifest): not in sight",
		"/var/lib/kube-proxy/config.conf (configuration): it is not understood as YAML",
	}, fileLines(section.GetStable().GetKubeProxy())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// excludeCIDRs outlive the configuration that named them.
func TestExcludedCIDRsAreRemembered(t *testing.T) {
	answers := paths{"/proxyMode": "ipvs", "/configz": `{"kubeproxy.config.k8s.io":{"mode":"ipvs","ipvs":{"excludeCIDRs":["10.9.1.0/16","no prefix"]}}}`}
	scanner := New(Config{Host: DefaultHost(), KubeProxy: serve(t, answers)})
	scanner.Scan(t.Context())
	answers["/configz"] = `{"kubeproxy.config.k8s.io":{"mode":"nftables"}}`
	scanner.Scan(t.Context())
	if diff := cmp.Diff([]string{"10.9.0.0/16"}, scanner.excludeCIDRs()); diff != "" {
		t.Error(diff)
	}
}

// They outlive the agent that saw them, too; and a reading that is told what an earlier one saw believes what it sees itself.
func TestExcludedCIDRsOverARestart(t *testing.T) {
	memory := &shelf{}
	answers := paths{"/proxyMode": "ipvs", "/configz": `{"kubeproxy.config.k8s.io":{"mode":"ipvs","ipvs":{"excludeCIDRs":["10.9.1.0/16"]}}}`}
	config := Config{Host: DefaultHost(), KubeProxy: serve(t, answers), History: true, Memory: memory}
	New(config).Scan(t.Context())
	if diff := cmp.Diff([]string{"10.9.0.0/16"}, memory.kept.ExcludeCIDRs); diff != "" {
		t.Fatalf("kept: %s", diff)
	}
	answers["/configz"] = `{"kubeproxy.config.k8s.io":{"mode":"nftables"}}`
	oneShot := Config{Host: DefaultHost(), KubeProxy: config.KubeProxy, ExcludeCIDRs: memory.kept.ExcludeCIDRs}
	for name, scanner := range map[string]*Scanner{"the next agent": New(config), "a one-shot reading": New(oneShot)} {
		scanner.Scan(t.Context())
		if diff := cmp.Diff([]string{"10.9.0.0/16"}, scanner.excludeCIDRs()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	answers["/configz"] = `{"kubeproxy.config.k8s.io":{"mode":"ipvs","ipvs":{"excludeCIDRs":["10.8.0.0/16"]}}}`
	for name, scanner := range map[string]*Scanner{"the next agent": New(config), "a one-shot reading": New(oneShot)} {
		scanner.Scan(t.Context())
		if diff := cmp.Diff([]string{"10.8.0.0/16"}, scanner.excludeCIDRs()); diff != "" {
			t.Errorf("%s, configured anew: %s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"10.8.0.0/16"}, memory.kept.ExcludeCIDRs); diff != "" {
		t.Errorf("kept: %s", diff)
	}
}

func TestSplitWords(t *testing.T) {
	for line, want := range map[string]string{
		`a b  c`:           "a|b|c",
		`'a b' "c d"e`:     "a b|c de",
		`a\ b "x\"y" '\z'`: `a b|x"y|\z`,
		`"open end`:        "open end",
		`a ''`:             "a|",
		"\t\n":             "",
	} {
		if got := strings.Join(splitWords(line), "|"); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestExpandIsBounded(t *testing.T) {
	variables := map[string]string{"A": strings.Repeat("x ", 1<<14)}
	words := expand(append(strings.Fields(strings.Repeat("$A ", 100)), strings.Repeat("${A}", 1<<10), "${B}"), variables)
	total := 0
	for _, word := range words {
		total += len(word)
	}
	if total > 2*maxProcFile || words[len(words)-1] != "${B}" {
		t.Errorf("%d bytes, the last word %q", total, words[len(words)-1])
	}
}

func FuzzProxyConfig(f *testing.F) {
	f.Add([]byte(fullConfig))
	f.Add([]byte("kind: Pod\nspec: {containers: [{name: kube-proxy, command: [sh, -c, 'kube-proxy --x']}]}\n"))
	f.Add([]byte("kube-proxy-arg: [a, 1, null, {x: y}]\ndisable-kube-proxy: true\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if config, err := parseProxyConfig(text); err == nil {
			checkSettings(t, config.settings)
		}
		if pod, is, err := parseManifest(text); err == nil && is {
			checkSettings(t, configOfFlags(pod.onHost(), "x").settings)
		}
		if top, err := parseYAML(text); err == nil {
			flags, _ := distributionFlags(top)
			d := distribution{flags: flags}
			checkSettings(t, d.config().settings)
		}
	})
}

func FuzzArguments(f *testing.F) {
	f.Add("--proxy-mode=ipvs --ipvs-exclude-cidrs 10.0.0.0/8,x --feature-gates=A=true")
	f.Add("[Service]\nExecStart=/usr/bin/kube-proxy \\\n --x '$A' ${B}\nEnvironment=A=1 \"B=2 3\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		tree, err := openHostTree(hostOf(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tree.close() }()
		checkSettings(t, settingsFromFlags(splitLines(text)))
		for _, line := range parseUnit(tree, text) {
			if flags, found := flagsOfLine(line); found {
				checkSettings(t, settingsFromFlags(flags))
			}
		}
		programOf("k3s", strings.Split(text, "\x00"))
	})
}

// checkSettings fails when settings could not be sent.
func checkSettings(t *testing.T, settings *offrampv1.KubeProxySettings) {
	t.Helper()
	for _, list := range [][]string{
		settings.GetIpvsExcludeCidrs(), settings.GetNodePortAddresses(), settings.GetClusterCidrs(), settings.GetFeatureGates(),
		{settings.GetIpvsScheduler(), settings.GetDetectLocalMode()},
	} {
		if len(list) > maxSettings {
			t.Errorf("%d settings", len(list))
		}
		for _, text := range list {
			if strings.ToValidUTF8(text, "") != text || len(text) > maxSetting {
				t.Errorf("%q cannot be sent", text)
			}
		}
	}
}
