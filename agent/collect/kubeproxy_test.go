package collect

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// paths is what a server answers: path to body. Others are 404.
type paths map[string]string

func (p paths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, found := p[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	_, _ = fmt.Fprint(w, body)
}

// serve starts a server on loopback and returns where kube-proxy's questions go to it.
func serve(t *testing.T, handler http.Handler) KubeProxyAddresses {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	address := strings.TrimPrefix(server.URL, "http://")
	return KubeProxyAddresses{Metrics: []string{address}, Healthz: []string{address}}
}

// nowhere is an address where nobody listens.
func nowhere(t *testing.T) KubeProxyAddresses {
	t.Helper()
	server := httptest.NewServer(nil)
	server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	return KubeProxyAddresses{Metrics: []string{address}, Healthz: []string{address}}
}

func readProxy(t *testing.T, tree map[string]string, where KubeProxyAddresses, asserted string) *offrampv1.Section {
	t.Helper()
	section, _ := readKubeProxy(t.Context(), proxySurroundings{host: hostOf(t, tree), addresses: where, assertedNone: asserted})
	return section
}

// A node with a kube-proxy of the captures: its own answers, its own command line.
func TestReadKubeProxyOfCaptures(t *testing.T) {
	for name, want := range map[string]offrampv1.ProxyMode{
		"ipvs":                 offrampv1.ProxyMode_PROXY_MODE_IPVS,
		"ipvs-then-iptables":   offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
		"ipvs-then-nftables":   offrampv1.ProxyMode_PROXY_MODE_NFTABLES,
		"iptables":             offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
		"nftables":             offrampv1.ProxyMode_PROXY_MODE_NFTABLES,
		"iptables-sync-failed": offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
	} {
		t.Run(name, func(t *testing.T) {
			where := serve(t, paths{
				"/proxyMode": readCapture(t, name, "proxyMode.txt"),
				"/metrics":   readCapture(t, name, "metrics.txt"),
				"/healthz":   readCapture(t, name, "healthz.json"),
			})
			tree := hostProcesses(proxyProcess(strings.Fields(readCapture(t, name, "cmdline.txt"))[1:]...))
			section := readProxy(t, tree, where, "")
			wantState(t, section, sectionPresent)
			content, volatile := section.GetStable().GetKubeProxy(), section.GetVolatile().GetKubeProxy()
			if content.GetRunningMode() != want || content.GetRunningModeSource() != "http://"+where.Metrics[0]+"/proxyMode" {
				t.Errorf("%v from %q, want %v", content.GetRunningMode(), content.GetRunningModeSource(), want)
			}
			if content.GetConfiguredMode() != proxyModeUnknown || !strings.Contains(content.GetConfiguredModeSource(), "--config /etc/kp") {
				t.Errorf("configured %v from %q", content.GetConfiguredMode(), content.GetConfiguredModeSource())
			}
			if diff := cmp.Diff([]offrampv1.AddressFamily{familyIPv4, familyIPv6}, content.GetFamilies()); diff != "" {
				t.Error(diff)
			}
			if len(volatile.GetSyncs()) != 2 || volatile.GetHealthStatus() != 200 || volatile.GetStartedAt() == nil {
				t.Errorf("volatile %v", volatile)
			}
			if !content.GetHostProcessesVisible() || len(content.GetProcesses()) != 1 {
				t.Errorf("processes %v", content.GetProcesses())
			}
			var statuses []string
			for _, endpoint := range content.GetEndpoints() {
				path := strings.TrimPrefix(endpoint.GetUrl(), "http://"+where.Metrics[0])
				statuses = append(statuses, fmt.Sprint(path, " ", endpoint.GetStatus(), " ", endpoint.GetError()))
			}
			if diff := cmp.Diff([]string{
				"/proxyMode 200 ", "/metrics 200 ", "/configz 404 not the status that was expected", "/healthz 200 ",
			}, statuses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadKubeProxyConfigured(t *testing.T) {
	where := serve(t, paths{
		"/proxyMode": "iptables",
		"/metrics":   `kubernetes_build_info{git_version="v1.37.2"} 1` + "\n",
		"/configz":   `{"kubeproxy.config.k8s.io":{"mode":""}}`,
	})
	content := readProxy(t, hostProcesses(proxyProcess("--proxy-mode=ipvs")), where, "").GetStable().GetKubeProxy()
	if content.GetConfiguredMode() != offrampv1.ProxyMode_PROXY_MODE_IPTABLES ||
		content.GetConfiguredModeOrigin() != offrampv1.ModeOrigin_MODE_ORIGIN_DEFAULTED ||
		content.GetConfiguredModeSource() != "/configz" || content.GetVersion() != "v1.37.2" {
		t.Errorf("%v", content)
	}
}

func TestReadKubeProxyThatIsNotThere(t *testing.T) {
	visible, hidden := hostProcesses(nil), map[string]string{"proc/1/comm": "offramp-agent\n", "proc/1/cmdline": "a\x00"}
	for name, test := range map[string]struct {
		tree     map[string]string
		asserted string
		state    offrampv1.SectionState
		mode     offrampv1.ProxyMode
		source   string
	}{
		"in sight":           {visible, "", sectionAbsent, proxyModeUnknown, "no kube-proxy is in sight"},
		"not in sight":       {hidden, "", sectionUnreadable, proxyModeUnknown, "the processes of the host are not in sight, and nothing answers"},
		"asserted":           {visible, "drained for repair", sectionAbsent, proxyModeNone, "asserted: drained for repair"},
		"asserted, no sight": {hidden, "drained for repair", sectionAbsent, proxyModeNone, "asserted: drained for repair"},
	} {
		section := readProxy(t, test.tree, nowhere(t), test.asserted)
		wantState(t, section, test.state)
		content := section.GetStable().GetKubeProxy()
		if content.GetRunningMode() != test.mode || content.GetRunningModeSource() != test.source {
			t.Errorf("%s: %v from %q", name, content.GetRunningMode(), content.GetRunningModeSource())
		}
		if content.GetAssertedNoneReason() != test.asserted {
			t.Errorf("%s: asserted %q", name, content.GetAssertedNoneReason())
		}
		if len(content.GetEndpoints()) != 2 || content.GetEndpoints()[0].GetError() != "connection refused" {
			t.Errorf("%s: endpoints %v", name, content.GetEndpoints())
		}
	}
}

func TestAnAssertionDoesNotHoldAgainstAKubeProxyThatIsSeen(t *testing.T) {
	for name, test := range map[string]struct {
		tree  map[string]string
		where KubeProxyAddresses
		mode  offrampv1.ProxyMode
	}{
		"a process":       {hostProcesses(proxyProcess()), nowhere(t), proxyModeUnknown},
		"an answer":       {hostProcesses(nil), serve(t, paths{"/proxyMode": "ipvs"}), offrampv1.ProxyMode_PROXY_MODE_IPVS},
		"an odd answer":   {hostProcesses(nil), serve(t, paths{"/proxyMode": "ebpf"}), proxyModeUnknown},
		"metrics":         {hostProcesses(nil), serve(t, paths{"/metrics": metricLastQueued + " 1.7e9\n"}), proxyModeUnknown},
		"a configuration": {hostProcesses(nil), serve(t, paths{"/configz": `{"kubeproxy.config.k8s.io":{"mode":"ipvs"}}`}), proxyModeUnknown},
	} {
		section := readProxy(t, test.tree, test.where, "we think so")
		wantState(t, section, sectionPresent)
		content := section.GetStable().GetKubeProxy()
		if content.GetRunningMode() != test.mode || !strings.Contains(content.GetRunningModeSource(), "overrules the assertion that none runs: we think so") {
			t.Errorf("%s: %v from %q", name, content.GetRunningMode(), content.GetRunningModeSource())
		}
	}
}

func TestAStrangerOnThePort(t *testing.T) {
	where := serve(t, paths{"/": "hello", "/metrics": "node_load1 1\n"})
	section := readProxy(t, hostProcesses(nil), where, "")
	wantState(t, section, sectionPresent)
	if got := section.GetStable().GetKubeProxy(); got.GetRunningMode() != proxyModeUnknown || !strings.Contains(got.GetRunningModeSource(), "not as kube-proxy does") {
		t.Errorf("%v from %q", got.GetRunningMode(), got.GetRunningModeSource())
	}
	if got := readProxy(t, hostProcesses(nil), where, "we know").GetStable().GetKubeProxy().GetRunningMode(); got != proxyModeNone {
		t.Errorf("asserted beside a stranger: %v", got)
	}
}

func TestHostileAnswersHarmOnlyTheirEndpoint(t *testing.T) {
	flood := func(w http.ResponseWriter, line string, count int) {
		for range count {
			if _, err := fmt.Fprint(w, line); err != nil {
				return
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/proxyMode", paths{"/proxyMode": "ipvs\n"})
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { flood(w, strings.Repeat("x", 1<<14)+" 1\n", 1<<10) })
	mux.HandleFunc("/configz", func(w http.ResponseWriter, _ *http.Request) { flood(w, strings.Repeat("[", 1<<12), 1<<9) })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	section := readProxy(t, hostProcesses(proxyProcess()), serve(t, mux), "")
	wantState(t, section, sectionPresent)
	content := section.GetStable().GetKubeProxy()
	if content.GetRunningMode() != offrampv1.ProxyMode_PROXY_MODE_IPVS {
		t.Errorf("running mode %v", content.GetRunningMode())
	}
	var errors []string
	for _, endpoint := range content.GetEndpoints() {
		errors = append(errors, endpoint.GetError())
	}
	if diff := cmp.Diff([]string{"", errTooLong.Error(), errTooLong.Error(), "not the status that was expected"}, errors); diff != "" {
		t.Error(diff)
	}
	if got := section.GetVolatile().GetKubeProxy().GetHealthStatus(); got != http.StatusFound {
		t.Errorf("health status %d: the redirect was followed", got)
	}
}

func TestUnhealthyIsAnAnswer(t *testing.T) {
	where := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	section := readProxy(t, hostProcesses(proxyProcess()), where, "")
	endpoints := section.GetStable().GetKubeProxy().GetEndpoints()
	if last := endpoints[len(endpoints)-1]; last.GetStatus() != 503 || last.GetError() != "" {
		t.Errorf("%v", last)
	}
	if got := section.GetVolatile().GetKubeProxy().GetHealthStatus(); got != 503 {
		t.Errorf("health status %d", got)
	}
}

func TestAListenerThatNeverAnswers(t *testing.T) {
	release := make(chan struct{})
	where := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer close(release)
	where.Healthz = nowhere(t).Healthz
	started := time.Now()
	section := readProxy(t, hostProcesses(proxyProcess()), where, "")
	if took := time.Since(started); took > 2*askTimeout {
		t.Errorf("it took %v", took)
	}
	content := section.GetStable().GetKubeProxy()
	if content.GetRunningMode() != proxyModeUnknown || content.GetRunningModeSource() != "process 417 is a kube-proxy, but no /proxyMode answers" {
		t.Errorf("%v from %q", content.GetRunningMode(), content.GetRunningModeSource())
	}
	// The words must be the same each time: they are part of what has a digest.
	if got := content.GetEndpoints()[0].GetError(); got != "no answer within 2s" {
		t.Errorf("error %q", got)
	}
}

func TestAProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://192.0.2.1:1")
	t.Setenv("http_proxy", "http://192.0.2.1:1")
	if transport, ok := newQuestioner().client.Transport.(*http.Transport); !ok || transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestQuestionsEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	where := serve(t, paths{"/proxyMode": "ipvs"})
	q := newQuestioner()
	var word string
	if got := q.ask(ctx, netip.MustParseAddrPort(where.Metrics[0]), "/proxyMode", 10, readText(&word)); got.ok || got.status != 0 {
		t.Errorf("%+v", got)
	}
}

func TestHistoryFollowsTheScans(t *testing.T) {
	answers := paths{"/proxyMode": "ipvs"}
	scanner := New(Config{Host: DefaultHost(), History: true, KubeProxy: serve(t, answers)})
	scanner.Scan(t.Context())
	answers["/proxyMode"] = "nftables"
	changes := facts.Find(scanner.Scan(t.Context()), kindHistory).GetStable().GetHistory().GetModeChanges()
	want := &offrampv1.ModeChange{From: offrampv1.ProxyMode_PROXY_MODE_IPVS, To: offrampv1.ProxyMode_PROXY_MODE_NFTABLES}
	if diff := cmp.Diff([]*offrampv1.ModeChange{want}, changes, protocmp.Transform(), protocmp.IgnoreFields(&offrampv1.ModeChange{}, "at")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
