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

// KubeProxyAddresses is where kube-proxy listens, each as IP:port, when the usual guesses (its flags, then 10249 and 10256
// on loopback) are wrong. Only addresses of the node itself are ever asked.
type KubeProxyAddresses struct {
	// Metrics serves /proxyMode, /metrics and /configz; Healthz serves /healthz.
	Metrics, Healthz []string
}

// kubeProxy gathers what is in sight of kube-proxy in one reading.
type kubeProxy struct {
	processes  processList
	questioner *questioner
	modes      []modeAnswer
	configured configuredMode
	metrics    *proxyMetrics // nil without an answer
	answered   bool          // something speaks HTTP where kube-proxy would
	health     int           // status of /healthz, 0 without an answer
}

// readKubeProxy looks for kube-proxy among the processes and asks it. local may be nil: then only loopback is asked.
// assertedNone is why a person says that none runs here; empty when nobody does.
func readKubeProxy(
	ctx context.Context, host Host, addresses KubeProxyAddresses, local *localAddresses, assertedNone string,
) *offrampv1.Section {
	processes, err := readProcesses(host)
	if err != nil {
		return failed(kindKubeProxy, err)
	}
	where, err := findListeners(addresses, processes.kubeProxies, local)
	if err != nil {
		return failed(kindKubeProxy, err)
	}
	p := &kubeProxy{processes: processes, questioner: newQuestioner()}
	p.ask(ctx, where)
	return p.section(assertedNone)
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
		var configured configuredMode
		configz := p.questioner.ask(ctx, address, "/configz", maxAnswer, parseConfigz(&configured))
		if configz.ok {
			configured.source = "/configz"
			p.configured = configured
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

// seen: there is a kube-proxy. An assertion does not hold against that. A word at /proxyMode that is no mode counts: it
// may be a kube-proxy of the future.
func (p *kubeProxy) seen() bool {
	return len(p.processes.kubeProxies) > 0 || len(p.modes) > 0 || p.metrics != nil || p.configured.found
}

func (p *kubeProxy) section(assertedNone string) *offrampv1.Section {
	content := p.facts()
	content.AssertedNoneReason = cut(printable([]byte(assertedNone)), maxErrorBytes)
	content.RunningMode, content.RunningModeSource = p.running(content.GetAssertedNoneReason())
	stable := &offrampv1.SectionStable{Content: &offrampv1.SectionStable_KubeProxy{KubeProxy: content}}
	var section *offrampv1.Section
	switch {
	case p.seen() || p.answered:
		section = read(kindKubeProxy, false, stable)
	case p.processes.visible || assertedNone != "":
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
	configured := p.configured
	if !configured.found {
		configured = modeFromFlags(p.processes.kubeProxies)
	}
	content.ConfiguredMode, content.ConfiguredModeOrigin = configured.report(content.GetVersion())
	content.ConfiguredModeSource = configured.source
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
	case p.seen():
		source = "something answers as kube-proxy does, but not at /proxyMode"
	case p.answered:
		source = "something answers where kube-proxy would, but not as kube-proxy does"
	case !p.processes.visible:
		source = "the processes of the host are not in sight, and nothing answers"
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
	}
	for _, process := range p.processes.kubeProxies {
		oldest := content.GetStartedAt().AsTime()
		if !process.started.IsZero() && (content.GetStartedAt() == nil || process.started.Before(oldest)) {
			content.StartedAt = timestamppb.New(process.started)
		}
	}
	return content
}
