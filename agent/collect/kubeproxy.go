package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const kindKubeProxy = offrampv1.SectionKind_SECTION_KIND_KUBE_PROXY

// KubeProxyAddresses is where kube-proxy listens, each as IP:port, when the usual guesses (its configuration, then 10249 and
// 10256 on loopback) are wrong. Only addresses of the node itself are ever asked.
type KubeProxyAddresses struct {
	// Metrics serves /proxyMode, /metrics and /configz; Healthz serves /healthz.
	Metrics, Healthz []string
}

// proxySurroundings is what a kube-proxy is looked for in.
type proxySurroundings struct {
	host      Host
	addresses KubeProxyAddresses
	// network is nil when links and addresses could not be read: then only loopback is asked.
	network *network
	// assertedNone is why a person says that none runs here; empty when nobody does.
	assertedNone string
	// history is nil for a one-shot reading.
	history *history
}

// kubeProxy gathers what is in sight of kube-proxy in one reading.
type kubeProxy struct {
	in         proxySurroundings
	processes  processList
	files      *proxyFiles
	filesErr   error // the host's root could not be opened
	configs    []proxyConfig
	questioner *questioner
	modes      []modeAnswer
	configured proxyConfig   // of /configz
	metrics    *proxyMetrics // nil without an answer
	answered   bool          // something speaks HTTP where kube-proxy would
	health     int           // status of /healthz, 0 without an answer
	missing    []string      // what stands between this reading and "none"
}

// readKubeProxy looks for kube-proxy among the processes and in the host's files, and asks it.
func readKubeProxy(ctx context.Context, in proxySurroundings) (*offrampv1.Section, *kubeProxy) {
	processes, err := readProcesses(in.host)
	if err != nil {
		return failed(kindKubeProxy, err), nil
	}
	p := &kubeProxy{in: in, processes: processes, files: &proxyFiles{}, questioner: newQuestioner()}
	p.readFiles()
	p.processes.kubeProxies = p.files.withEmbedded(p.processes)
	p.configs = p.files.configsOf(p.processes.kubeProxies)
	var local *localAddresses
	if in.network != nil {
		local = in.network.local()
	}
	where, err := findListeners(in.addresses, p.configs, local)
	if err != nil {
		return failed(kindKubeProxy, err), nil
	}
	p.ask(ctx, where)
	p.missing = p.noneMissing()
	return p.section(), p
}

func (p *kubeProxy) readFiles() {
	tree, err := openHostTree(p.in.host)
	if err != nil {
		p.filesErr = err
		return
	}
	p.files = readProxyFiles(tree, p.processes)
	p.filesErr = tree.close()
}

// ask puts the questions. An address where nobody answers the first is not asked the others.
func (p *kubeProxy) ask(ctx context.Context, where listeners) {
	for _, address := range where.metrics {
		var word string
		mode := p.questioner.ask(ctx, address, "/proxyMode", maxModeAnswer, readText(&word))
		if mode.status == 0 {
			continue
		}
		p.answered = true
		if mode.ok {
			p.modes = append(p.modes, modeAnswer{mode.url, printable([]byte(word))})
		}
		p.questioner.ask(ctx, address, "/metrics", maxMetricsAnswer, p.takeMetrics)
		var config proxyConfig
		if p.questioner.ask(ctx, address, "/configz", maxAnswer, parseConfigz(&config)).ok {
			config.mode.source, config.settings.Source = "/configz", "/configz"
			p.configured = config
		}
	}
	for _, address := range where.healthz {
		// 503 is an answer: not healthy.
		p.health = p.questioner.ask(ctx, address, "/healthz", maxAnswer, discard, http.StatusServiceUnavailable).status
		if p.health != 0 {
			break
		}
	}
}

func (p *kubeProxy) takeMetrics(body io.Reader) (err error) {
	metrics, err := parseMetrics(body)
	if err == nil {
		p.metrics = metrics
	}
	return err
}

// runs: there is a kube-proxy now. A word at /proxyMode that is no mode counts: it may be a kube-proxy of the future.
func (p *kubeProxy) runs() bool {
	return len(p.processes.kubeProxies) > 0 || len(p.modes) > 0 || p.metrics != nil || p.configured.mode.found
}

// seen: there is a kube-proxy, or what starts one. An assertion does not hold against that.
func (p *kubeProxy) seen() bool { return p.runs() || len(p.files.starting()) > 0 }

func (p *kubeProxy) section() *offrampv1.Section {
	content := p.facts()
	content.AssertedNoneReason = cut(printable([]byte(p.in.assertedNone)), maxErrorBytes)
	content.RunningMode, content.RunningModeSource = p.running(content.GetAssertedNoneReason())
	stable := &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: content}}
	var section *offrampv1.Section
	switch {
	case p.seen() || p.answered:
		section = read(kindKubeProxy, false, stable)
	case p.processes.visible || p.in.assertedNone != "":
		section = absent(kindKubeProxy)
		section.Stable.Content = stable.GetContent()
	default:
		section = failed(kindKubeProxy, errors.New("the processes of the host are not in sight, and nothing answers"))
		section.Stable.Content = stable.GetContent()
	}
	section.Volatile.Content = &offrampv1.SectionVolatile_KubeProxy{KubeProxy: p.volatile()}
	return section
}

func (p *kubeProxy) facts() *offrampv1.KubeProxyFacts {
	content := &offrampv1.KubeProxyFacts{
		HostProcessesVisible: p.processes.visible,
		Endpoints:            p.questioner.endpoints,
		NoneMissing:          p.missing,
		Replacements:         p.replacements(),
	}
	if p.metrics != nil {
		content.Version = p.metrics.version
		for _, family := range slices.Sorted(maps.Keys(p.metrics.syncs)) {
			if family != offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED {
				content.Families = append(content.Families, family)
			}
		}
	}
	for _, process := range p.processes.kubeProxies[:min(len(p.processes.kubeProxies), maxProcesses)] {
		content.Processes = append(content.Processes, process.report())
	}
	config := p.config()
	content.ConfiguredMode, content.ConfiguredModeOrigin = config.mode.report(content.GetVersion())
	content.ConfiguredModeSource = config.mode.source
	content.Settings = config.settings
	content.Files = p.files.report(content.GetVersion())
	return content
}

// running concludes what runs, and from what.
func (p *kubeProxy) running(assertedNone string) (offrampv1.ProxyMode, string) {
	if assertedNone != "" && !p.seen() {
		return proxyModeNone, cut("asserted: "+assertedNone, maxErrorBytes)
	}
	mode, source := proxyModeUnknown, "no kube-proxy is in sight"
	switch {
	case len(p.modes) > 0:
		mode, source = runningMode(p.modes)
	case len(p.processes.kubeProxies) > 0:
		source = fmt.Sprintf("process %d is a kube-proxy, but no /proxyMode answers", p.processes.kubeProxies[0].pid)
	case p.runs():
		source = "something answers as kube-proxy does, but not at /proxyMode"
	case p.seen():
		file := p.files.starting()[0]
		source = "no kube-proxy runs, but " + clean("/"+file.path) + " (" + file.kind + ") starts one"
	case p.answered:
		source = "something answers where kube-proxy would, but not as kube-proxy does"
	case !p.processes.visible:
		source = "the processes of the host are not in sight, and nothing answers"
	case len(p.missing) == 0:
		mode, source = proxyModeNone, p.proof()
	}
	if assertedNone != "" {
		source += "; this overrules the assertion that none runs: " + assertedNone
	}
	return mode, cut(source, maxErrorBytes)
}

func (p *kubeProxy) volatile() *offrampv1.KubeProxyVolatile {
	content := &offrampv1.KubeProxyVolatile{HealthStatus: uint32(p.health)} //nolint:gosec // 0 to 999
	if p.metrics != nil {
		for _, family := range slices.Sorted(maps.Keys(p.metrics.syncs)) {
			content.Syncs = append(content.Syncs, p.metrics.syncs[family])
		}
		p.metrics.addTo(content)
	}
	for _, process := range p.processes.kubeProxies {
		oldest := content.GetStartedAt().AsTime()
		if !process.started.IsZero() && (content.GetStartedAt() == nil || process.started.Before(oldest)) {
			content.StartedAt = timestamppb.New(process.started)
		}
	}
	return content
}
