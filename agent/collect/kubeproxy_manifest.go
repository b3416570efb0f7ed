package collect

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// maxManifests bounds how many files of one folder of static pods are looked at.
const maxManifests = 128

// staticPod is a kube-proxy in a static pod.
type staticPod struct {
	flags arguments
	// hostPaths are where the container's paths are on the host, by mount path.
	hostPaths map[string]string
}

// manifestFolders are where kubelets of this host find static pods: where the installers put them, and where a running
// kubelet or its configuration says.
func manifestFolders(tree *hostTree, list processList) []string {
	folders := []string{"etc/kubernetes/manifests"}
	configs := []string{"var/lib/kubelet/config.yaml"}
	for _, kubelet := range list.kubelets {
		if folder, found := kubelet.flags().last("pod-manifest-path"); found {
			folders = append(folders, hostPath(folder))
		}
		if config, found := kubelet.flags().last("config"); found {
			configs = append(configs, hostPath(config))
		}
	}
	for _, name := range configs {
		if text, found, err := tree.read(name); found && err == nil {
			if config, err := parseYAML(text); err == nil && config.text("staticPodPath") != "" {
				folders = append(folders, hostPath(config.text("staticPodPath")))
			}
		}
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// hostPath turns an absolute path of the host's into one relative to its root.
func hostPath(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// readManifests looks for static pods of kube-proxy's and returns what could not be read. kubelet takes every file whose
// name does not begin with a dot.
func (f *proxyFiles) readManifests(tree *hostTree, folders []string) (unread []string) {
	for _, folder := range folders {
		names, _, err := tree.list(folder)
		if err != nil {
			unread = append(unread, err.Error())
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
		if len(names) > maxManifests {
			unread = append(unread, "/"+folder+": too many files")
		}
		for _, name := range names[:min(len(names), maxManifests)] {
			if !f.readManifest(tree, path.Join(folder, name)) {
				unread = append(unread, "/"+path.Join(folder, name)+": not understood as a manifest")
			}
		}
	}
	return unread
}

// readManifest adds a file if it is a static pod of kube-proxy's. False says that it cannot be told: kubelet may understand
// what we do not.
func (f *proxyFiles) readManifest(tree *hostTree, name string) bool {
	if slices.ContainsFunc(f.list, func(file proxyFile) bool { return file.path == name }) {
		return true
	}
	text, found, err := tree.read(name)
	if !found && err == nil {
		return true
	}
	var pod staticPod
	is := false
	if err == nil {
		pod, is, err = parseManifest(text)
	}
	switch {
	case err != nil:
		f.list = append(f.list, proxyFile{path: name, kind: fileManifest, err: err, starts: isManifestName(name)})
	case is:
		f.list = append(f.list, proxyFile{
			path: name, kind: fileManifest, starts: true, config: f.configFromFlags(tree, pod.onHost(), "/"+name),
		})
	}
	return err == nil
}

// isManifestName: kops and GKE write kube-proxy.manifest, rke2 kube-proxy.yaml.
func isManifestName(name string) bool {
	base := path.Base(name)
	return strings.TrimSuffix(base, path.Ext(base)) == kubeProxyName
}

// parseManifest reads a static pod; is reports whether it is a kube-proxy.
func parseManifest(text []byte) (pod staticPod, is bool, err error) {
	top, err := parseYAML(text)
	if err != nil {
		return staticPod{}, false, err
	}
	spec := top.object("spec")
	if top.text("kind") != "Pod" || spec == nil {
		return staticPod{}, false, errors.New("it is no Pod")
	}
	for _, container := range spec.objects("containers") {
		if flags, ok := containerFlags(container); ok {
			return staticPod{flags, hostPathsOf(spec, container)}, true, nil
		}
	}
	return staticPod{}, false, nil
}

// containerFlags returns kube-proxy's flags: GKE runs it through "sh -c", kops through go-runner, hyperkube as its first
// argument, and others as the image's own entry point in a container of that name.
func containerFlags(container object) (arguments, bool) {
	words := append(container.words("command"), container.words("args")...)
	var line []string
	for i, word := range words {
		if i > 0 && words[i-1] == "-c" {
			line = append(line, splitWords(word)...)
			continue
		}
		line = append(line, word)
	}
	if flags, found := flagsOfLine(line); found {
		return flags, true
	}
	return arguments(line), container.text("name") == kubeProxyName
}

// flagsOfLine returns what follows kube-proxy in a command line.
func flagsOfLine(line []string) (arguments, bool) {
	for i, word := range line {
		hyperkube := word == "proxy" && i > 0 && isProgram(line[i-1], "hyperkube")
		if isProgram(word, kubeProxyName) || hyperkube {
			return line[i+1:], true
		}
	}
	return nil, false
}

func hostPathsOf(spec, container object) map[string]string {
	volumes := map[string]string{}
	for _, volume := range spec.objects("volumes") {
		if from := volume.object("hostPath").text("path"); from != "" {
			volumes[volume.text("name")] = from
		}
	}
	paths := map[string]string{}
	for _, mount := range container.objects("volumeMounts") {
		if from, found := volumes[mount.text("name")]; found {
			paths[path.Clean(mount.text("mountPath"))] = from
		}
	}
	return paths
}

// onHost is the flags with --config as the path on the host; where it is not there, a path that no host has.
func (p staticPod) onHost() arguments {
	config, found := p.flags.last("config")
	if !found || config == "" {
		return p.flags
	}
	config = path.Clean(config)
	for inside, outside := range p.hostPaths {
		if rest, below := strings.CutPrefix(config, inside); below && (rest == "" || rest[0] == '/') {
			return append(slices.Clone(p.flags), "--config="+path.Join(outside, rest))
		}
	}
	return append(slices.Clone(p.flags), "--config=in the container "+config)
}
