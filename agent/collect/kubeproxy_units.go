package collect

// flagsOf returns the flags of a program that a unit starts.
func (u unit) flagsOf(names ...string) (arguments, bool) {
	for _, line := range u.lines {
		for i, word := range line {
			for _, name := range names {
				if isProgram(word, name) {
					return line[i+1:], true
				}
			}
		}
	}
	return nil, false
}

// startsKubeProxy reports whether the unit starts a kube-proxy that is a program of its own, and with which flags.
func (u unit) startsKubeProxy() (arguments, bool) {
	for _, line := range u.lines {
		if flags, found := flagsOfLine(line); found {
			return flags, true
		}
	}
	return nil, u.name == "kube-proxy.service" && u.err != nil
}

// startsKubelet reports whether the unit starts a kubelet, also inside another program.
func (u unit) startsKubelet() bool {
	if u.name == "kubelet.service" || u.name == "k0sworker.service" {
		return true
	}
	_, found := u.flagsOf(nameKubelet, "kubelite", "k3s", "rke2")
	return found || u.isKubelite()
}

// isKubelite: MicroK8s starts its daemons through a script, so that only the unit's name tells.
func (u unit) isKubelite() bool {
	return u.name == "snap.microk8s.daemon-kubelite.service" || u.name == "snap.microk8s.daemon-proxy.service"
}

// addUnits adds the units that start a kube-proxy, and notes those that start a kubelet. Those of k3s and rke2 come with
// their distribution.
func (f *proxyFiles) addUnits(tree *hostTree, list unitList) {
	for _, unit := range list.units {
		if unit.startsKubelet() {
			f.kubeletUnits = append(f.kubeletUnits, "/"+unit.path)
		}
		flags, starts := unit.startsKubeProxy()
		switch {
		case starts && unit.err != nil:
			f.list = append(f.list, proxyFile{path: unit.path, kind: fileUnit, starts: true, err: unit.err})
		case starts:
			config := f.configFromFlags(tree, flags, "/"+unit.path)
			f.list = append(f.list, proxyFile{path: unit.path, kind: fileUnit, starts: true, config: config})
		case unit.isKubelite():
			f.list = append(f.list, proxyFile{path: unit.path, kind: fileUnit, starts: true})
		}
	}
}
