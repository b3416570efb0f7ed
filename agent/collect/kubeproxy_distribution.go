package collect

import (
	"path"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// distributionNames is where k3s and rke2, which are alike, keep their things.
type distributionNames struct {
	program         program
	kind            string
	config, dataDir string
	units           []string
	// inside: kube-proxy is a part of the program itself, not a static pod that it writes.
	inside bool
}

func k3sNames() distributionNames {
	return distributionNames{
		program: programK3s, kind: "k3s configuration", config: "etc/rancher/k3s/config.yaml", dataDir: "var/lib/rancher/k3s",
		units: []string{"k3s.service", "k3s-agent.service"}, inside: true,
	}
}

func rke2Names() distributionNames {
	return distributionNames{
		program: programRKE2, kind: "rke2 configuration", config: "etc/rancher/rke2/config.yaml", dataDir: "var/lib/rancher/rke2",
		units: []string{"rke2-server.service", "rke2-agent.service"},
	}
}

// distribution is k3s or rke2 as its files, units and processes say it runs.
type distribution struct {
	names distributionNames
	files []proxyFile
	// source is where it is configured.
	source string
	// flags are those of the files, then those of units and processes: what comes later wins.
	flags arguments
	// dataDir is relative to the host's root.
	dataDir string
	// units are those that start it.
	units   []string
	missing []string
	// seen: it runs, or a unit would start it.
	seen bool
}

// manifests is where its kubelet finds static pods.
func (d distribution) manifests() string { return path.Join(d.dataDir, "agent/pod-manifests") }

func readDistribution(tree *hostTree, names distributionNames, processes []process, units unitList) distribution {
	d := distribution{names: names}
	started := d.startedWith(processes, units)
	config := names.config
	if other, found := started.last("config"); found {
		config = hostPath(other)
	}
	d.source = "/" + config
	d.readConfig(tree, config)
	d.flags = append(d.flags, started...)
	d.dataDir = names.dataDir
	if folder, found := d.flags.last("data-dir"); found && folder != "" {
		d.dataDir = hostPath(folder)
	}
	// The files are described once all flags are known, since a drop-in may change what the file before it says.
	for i := range d.files {
		if d.files[i].err == nil {
			d.files[i].config = d.config()
		}
	}
	for _, where := range d.units {
		d.files = append(d.files, proxyFile{path: where, kind: fileUnit, starts: d.runsKubeProxy(), config: d.config()})
	}
	return d
}

// startedWith returns the flags of units and processes. The processes hide theirs, as a rule.
func (d *distribution) startedWith(processes []process, units unitList) arguments {
	var flags arguments
	for _, unit := range units.units {
		more, starts := unit.flagsOf(string(d.names.program))
		if slices.Contains(d.names.units, unit.name) && (starts || unit.err != nil) {
			d.units = append(d.units, unit.path)
			flags = append(flags, more...)
		}
		if slices.Contains(d.names.units, unit.name) && unit.err != nil {
			d.missing = append(d.missing, unit.err.Error())
		}
	}
	d.seen = len(d.units) > 0
	for _, process := range processes {
		if process.program == d.names.program {
			d.seen = true
			flags = append(flags, process.flags()...)
		}
	}
	return flags.long()
}

// long writes the short forms that k3s and rke2 know as the long ones.
func (a arguments) long() arguments {
	flags := slices.Clone(a)
	for i, flag := range flags {
		switch flag {
		case "-c":
			flags[i] = "--config"
		case "-d":
			flags[i] = "--data-dir"
		}
	}
	return flags
}

// readConfig reads the configuration and what stands beside it in config.yaml.d, in the order of names. What comes later
// wins, and lists whose key ends in "+" are added to.
func (d *distribution) readConfig(tree *hostTree, config string) {
	d.readOne(tree, config)
	folder := config + ".d"
	names, _, err := tree.list(folder)
	if err != nil {
		d.missing = append(d.missing, err.Error())
	}
	for _, name := range names {
		if extension := path.Ext(name); extension == ".yaml" || extension == ".yml" {
			d.readOne(tree, path.Join(folder, name))
		}
	}
}

func (d *distribution) readOne(tree *hostTree, name string) {
	text, found, err := tree.read(name)
	if err != nil {
		d.missing = append(d.missing, err.Error())
	}
	if !found {
		return
	}
	var config object
	if err == nil && strings.TrimSpace(string(text)) != "" {
		config, err = parseYAML(text)
	}
	if err != nil {
		d.files = append(d.files, proxyFile{path: name, kind: d.names.kind, err: err})
		return
	}
	flags, tells := distributionFlags(config)
	if !tells {
		return
	}
	if config.has("kube-proxy-arg") {
		d.flags = d.flags.without("kube-proxy-arg")
	}
	d.flags = append(d.flags, flags...)
	d.files = append(d.files, proxyFile{path: name, kind: d.names.kind})
}

// distributionFlags turns the keys that matter into flags: that is what k3s does with all of them (pkg/configfilearg).
func distributionFlags(config object) (flags arguments, tells bool) {
	for _, key := range []string{"kube-proxy-arg", "disable-kube-proxy", "disable-agent", "data-dir"} {
		for _, name := range []string{key, key + "+"} {
			for _, value := range config.words(name) {
				flags = append(flags, "--"+key+"="+value)
				tells = tells || key != "data-dir"
			}
		}
	}
	return flags, tells || len(flags) > 0
}

// without leaves out a flag that is written with "=".
func (a arguments) without(name string) arguments {
	return slices.DeleteFunc(slices.Clone(a), func(flag string) bool { return strings.HasPrefix(flag, "--"+name+"=") })
}

// runsKubeProxy reports whether it runs a kube-proxy when it runs.
func (d distribution) runsKubeProxy() bool {
	return !d.flags.on("disable-kube-proxy") && !d.flags.on("disable-agent")
}

// proxyFlags are the flags that it hands to kube-proxy: each written without the dashes.
func (d distribution) proxyFlags() arguments {
	flags := arguments(d.flags.all("kube-proxy-arg"))
	for i, value := range flags {
		flags[i] = "--" + strings.TrimLeft(value, "-")
	}
	return flags
}

// config is how its kube-proxy runs. Without a word about it that is iptables mode, whatever kube-proxy's own default
// (k3s pkg/daemons/agent/agent_linux.go).
func (d distribution) config() proxyConfig {
	config := configOfFlags(d.proxyFlags(), d.source)
	if file, given := d.proxyFlags().last("config"); given {
		return proxyConfig{mode: configuredMode{source: cut("--config "+clean(file)+" of "+d.names.kind, maxSetting)}}
	}
	config.mode.preset = offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	return config
}
