package collect

import (
	"fmt"
	"slices"
)

// withEmbedded returns the kube-proxies, with those inside k3s. rke2 runs its own as a static pod: it counts where none is
// in sight, since it starts one, whenever that is.
func (f *proxyFiles) withEmbedded(list processList) []process {
	proxies := slices.Clone(list.kubeProxies)
	for _, supervisor := range list.supervisors {
		d, wanted := f.rke2, len(list.kubeProxies) == 0
		if supervisor.program == programK3s {
			d, wanted = f.k3s, true
		}
		if wanted && d.runsKubeProxy() {
			proxies = append(proxies, supervisor)
		}
	}
	return proxies
}

// configsOf returns how each of these is configured, as far as that is in sight.
func (f *proxyFiles) configsOf(proxies []process) []proxyConfig {
	configs := make([]proxyConfig, 0, len(proxies))
	for _, process := range proxies {
		configs = append(configs, f.configOf(process))
	}
	return configs
}

func (f *proxyFiles) configOf(p process) proxyConfig {
	switch p.program {
	case programK3s:
		return f.k3s.config()
	case programRKE2:
		return f.rke2.config()
	case programKubelite:
		for _, file := range f.list {
			if file.kind == fileArguments && file.err == nil {
				return file.config
			}
		}
		return proxyConfig{mode: configuredMode{source: "the file of kube-proxy's arguments is not in sight"}}
	default:
		return f.configOfProgram(p)
	}
}

// configOfProgram: with --config every other flag is ignored (cmd/kube-proxy/app/options.go). The file is the host's only if
// the process is a service of the host's, or a static pod says where on the host it is.
func (f *proxyFiles) configOfProgram(p process) proxyConfig {
	name, given := p.flags().last("config")
	if !given || name == "" {
		config := configOfFlags(p.flags(), "--proxy-mode")
		config.settings.Source = fmt.Sprintf("flags of process %d", p.pid)
		if _, found := p.flags().last("proxy-mode"); !found {
			config.mode.source = "no --proxy-mode and no --config"
		}
		return config
	}
	if config, known := f.configs[hostPath(name)]; known && p.unit {
		return config
	}
	if manifest, only := f.onlyManifest(); only && !p.unit && manifest.config.settings != nil {
		return manifest.config
	}
	return proxyConfig{mode: configuredMode{source: "--config " + clean(name) + " is not in sight"}}
}

// onlyManifest returns the one static pod of kube-proxy's.
func (f *proxyFiles) onlyManifest() (proxyFile, bool) {
	manifests := f.byKind(fileManifest)
	if len(manifests) != 1 {
		return proxyFile{}, false
	}
	return manifests[0], true
}

func (f *proxyFiles) byKind(kind string) []proxyFile {
	var files []proxyFile
	for _, file := range f.list {
		if file.kind == kind {
			files = append(files, file)
		}
	}
	return files
}

// config is what is configured: what kube-proxy itself says, else its processes' configuration, else, where none runs, what
// the files say that start one or are there for one.
func (p *kubeProxy) config() proxyConfig {
	switch {
	case p.configured.mode.found:
		return p.configured
	case len(p.configs) > 0:
		return oneConfig(p.configs, "the configurations of several kube-proxies differ")
	}
	var starting, others []proxyConfig
	for _, file := range p.files.list {
		switch {
		case file.err != nil || file.config.mode.source == "":
		case file.starts:
			starting = append(starting, file.config)
		case file.kind == fileConfig:
			others = append(others, file.config)
		}
	}
	if len(starting) > 0 {
		return oneConfig(starting, "the files that start a kube-proxy differ")
	}
	return oneConfig(others, "the configurations for a kube-proxy differ")
}

// oneConfig returns the configuration that all agree on in their mode: the first. Where they do not, nothing is known.
func oneConfig(configs []proxyConfig, otherwise string) proxyConfig {
	if len(configs) == 0 {
		return proxyConfig{}
	}
	for _, config := range configs {
		if config.mode.word != configs[0].mode.word || config.mode.found != configs[0].mode.found ||
			config.mode.preset != configs[0].mode.preset {
			return proxyConfig{mode: configuredMode{source: otherwise}}
		}
	}
	return configs[0]
}

// excludeCIDRs returns ipvs.excludeCIDRs of every configuration in sight, sorted, each once.
func (p *kubeProxy) excludeCIDRs() []string {
	cidrs := slices.Clone(p.configured.settings.GetIpvsExcludeCidrs())
	for _, config := range p.configs {
		cidrs = append(cidrs, config.settings.GetIpvsExcludeCidrs()...)
	}
	for _, file := range p.files.list {
		cidrs = append(cidrs, file.config.settings.GetIpvsExcludeCidrs()...)
	}
	slices.Sort(cidrs)
	return bounded(slices.Compact(cidrs))
}
