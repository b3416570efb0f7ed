package collect

import (
	"path"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Kinds of host files about a kube-proxy, as facts.proto lists them.
const (
	fileManifest  = "static-pod manifest"
	fileUnit      = "systemd unit"
	fileConfig    = "configuration"
	fileArguments = "arguments"
)

// proxyFile is a host file about a kube-proxy.
type proxyFile struct {
	path, kind string
	config     proxyConfig
	// starts: something starts a kube-proxy because of it, unless it is told otherwise.
	starts bool
	err    error
}

// proxyFiles is what the host's files say about a kube-proxy.
type proxyFiles struct {
	list []proxyFile
	// configs are configurations by path.
	configs map[string]proxyConfig
	// k3s and rke2 are as their configuration, units and flags say.
	k3s, rke2 distribution
	// kubeletUnits are units that start a kubelet.
	kubeletUnits []string
	// missing are places that were not in sight, or could not be read, where something that starts a kube-proxy might be.
	missing []string
}

// readProxyFiles looks at every place where something is that starts or configures a kube-proxy.
func readProxyFiles(tree *hostTree, list processList) *proxyFiles {
	files := &proxyFiles{configs: map[string]proxyConfig{}}
	units := readUnits(tree)
	files.missing = append(files.missing, units.missing...)
	files.k3s = readDistribution(tree, k3sNames(), list.supervisors, units)
	files.rke2 = readDistribution(tree, rke2Names(), list.supervisors, units)
	for _, d := range []distribution{files.k3s, files.rke2} {
		files.list = append(files.list, d.files...)
		// Where it neither runs nor would be started, nothing is missing that is not in sight.
		if d.seen {
			files.missing = append(files.missing, d.missing...)
		}
	}
	files.missing = append(files.missing, files.readManifests(tree, manifestFolders(tree, list))...)
	for _, d := range []distribution{files.k3s, files.rke2} {
		if unread := files.readManifests(tree, []string{d.manifests()}); d.seen {
			files.missing = append(files.missing, unread...)
		}
	}
	files.readConfigs(tree)
	files.addUnits(tree, units)
	files.readArguments(tree, list)
	slices.SortStableFunc(files.list, func(a, b proxyFile) int { return strings.Compare(a.path, b.path) })
	slices.Sort(files.missing)
	files.missing = slices.Compact(files.missing)
	return files
}

// starting returns the files because of which a kube-proxy is started.
func (f *proxyFiles) starting() []proxyFile {
	var starting []proxyFile
	for _, file := range f.list {
		if file.starts {
			starting = append(starting, file)
		}
	}
	return starting
}

// report is the files as they travel.
func (f *proxyFiles) report(version string) []*offrampv1.KubeProxyFile {
	files := f.list[:min(len(f.list), maxSamples)]
	report := make([]*offrampv1.KubeProxyFile, 0, len(files))
	for _, file := range files {
		entry := &offrampv1.KubeProxyFile{Path: clean("/" + file.path), Kind: file.kind}
		if file.err != nil {
			entry.Error = reasonOf(file.path, file.err)
		} else {
			entry.Mode, entry.ModeOrigin = file.config.mode.report(version)
		}
		report = append(report, entry)
	}
	return report
}

// reasonOf is why a file could not be read, without its path, which is told apart.
func reasonOf(name string, err error) string {
	return cut(printable([]byte(strings.TrimPrefix(err.Error(), "/"+name+": "))), maxReason)
}

// configFiles are where binary installs keep kube-proxy's configuration; each is a file or a folder of them.
func configFiles() []string {
	return []string{
		"var/lib/kube-proxy", "var/lib/kube-proxy-config",
		"etc/kubernetes/kube-proxy.config.yaml", "etc/kubernetes/kube-proxy-config.yaml", "etc/kubernetes/kube-proxy.yaml",
		"etc/kube-proxy", "etc/kubernetes/kube-proxy.conf",
	}
}

// readConfigs takes what is a KubeProxyConfiguration. Kubeconfigs and the like stand beside them.
func (f *proxyFiles) readConfigs(tree *hostTree) {
	for _, place := range configFiles() {
		names, found, err := tree.list(place)
		switch {
		case err == nil && found:
			for _, name := range names {
				f.readConfig(tree, path.Join(place, name))
			}
		case err == nil, path.Ext(place) != "":
			f.readConfig(tree, place)
		}
	}
	f.readGardenerMode(tree)
}

// readConfig adds a file if it is a configuration of kube-proxy's.
func (f *proxyFiles) readConfig(tree *hostTree, name string) {
	if _, known := f.configs[name]; known {
		return
	}
	text, found, err := tree.read(name)
	switch {
	case !found:
		return
	case err != nil:
		// A folder beside the configuration is not one of them, and neither is a socket.
		if isConfigName(name) {
			f.list = append(f.list, proxyFile{path: name, kind: fileConfig, err: err})
		}
		return
	}
	config, err := parseProxyConfig(text)
	switch {
	case err == nil:
		config.mode.source = "/" + name
		config.settings.Source = clean("/" + name)
		f.configs[name] = config
		f.list = append(f.list, proxyFile{path: name, kind: fileConfig, config: config})
	case isConfigName(name):
		f.list = append(f.list, proxyFile{path: name, kind: fileConfig, err: err})
	}
}

// isConfigName tells what is by its name meant to be kube-proxy's configuration.
func isConfigName(name string) bool {
	switch path.Base(name) {
	case "config", "config.conf", "config.yaml", "kube-proxy-config.yaml", "kube-proxy.config.yaml":
		return true
	default:
		return false
	}
}

// readGardenerMode: Gardener keeps the mode that its kube-proxy last ran in, to clean up when it changes.
func (f *proxyFiles) readGardenerMode(tree *hostTree) {
	const name = "var/lib/kube-proxy/mode"
	text, found, err := tree.read(name)
	if !found {
		return
	}
	mode := configuredMode{word: strings.ToLower(clean(strings.TrimSpace(string(text)))), found: true, source: "/" + name}
	f.list = append(f.list, proxyFile{path: name, kind: "last mode, by Gardener", config: proxyConfig{mode: mode}, err: err})
}

// microk8sArguments is where MicroK8s keeps kube-proxy's flags, one or more a line, with comments.
const microk8sArguments = "var/snap/microk8s/current/args/kube-proxy"

func (f *proxyFiles) readArguments(tree *hostTree, list processList) {
	names := []string{microk8sArguments}
	for _, process := range list.kubeProxies {
		if process.program == programKubelite {
			if name, found := process.flags().last("proxy-args-file"); found {
				names = []string{strings.TrimPrefix(name, "/")}
			}
		}
	}
	for _, name := range names {
		text, found, err := tree.read(name)
		if !found {
			continue
		}
		file := proxyFile{path: name, kind: fileArguments, err: err}
		if err == nil {
			file.config = f.configFromFlags(tree, splitLines(string(text)), "/"+name)
			f.configs[name] = file.config
		}
		f.list = append(f.list, file)
	}
}

// configFromFlags is what flags say: with --config what that file says, all other flags being ignored then.
func (f *proxyFiles) configFromFlags(tree *hostTree, flags arguments, source string) proxyConfig {
	if name, given := flags.last("config"); given && name != "" {
		name = strings.TrimPrefix(path.Clean(name), "/")
		f.readConfig(tree, name)
		if config, known := f.configs[name]; known {
			return config
		}
		return proxyConfig{mode: configuredMode{source: cut(source+": --config /"+clean(name)+" is not in sight", maxSetting)}}
	}
	return configOfFlags(flags, source)
}

// configOfFlags is what flags without --config say.
func configOfFlags(flags arguments, source string) proxyConfig {
	word, _ := flags.last("proxy-mode")
	settings := settingsFromFlags(flags)
	settings.Source = clean(source)
	metrics, _ := flags.last("metrics-bind-address")
	healthz, _ := flags.last("healthz-bind-address")
	return proxyConfig{
		mode: configuredMode{word: clean(word), found: true, source: clean(source)}, settings: settings, metrics: metrics, healthz: healthz,
	}
}
