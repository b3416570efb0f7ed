package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// noneFor is how long no kube-proxy must have been seen before that none runs can be proven: one that crash-loops is
	// started again after at most five minutes (kubelet's MaxContainerBackOff).
	noneFor = 10 * time.Minute
	// maxNoneGap is how long nobody may have looked in between.
	maxNoneGap = 3 * time.Minute
)

// noneMissing lists what stands between this reading and the answer that no kube-proxy runs here. The words must be the
// same from reading to reading while nothing changes.
func (p *kubeProxy) noneMissing() []string {
	var missing []string
	switch {
	case len(p.processes.kubeProxies) > 0:
		first := p.processes.kubeProxies[0]
		missing = append(missing, fmt.Sprintf("process %d is a kube-proxy (%s)", first.pid, first.program))
	case p.answered:
		missing = append(missing, "something answers where kube-proxy would")
	}
	if !p.processes.visible {
		missing = append(missing, "the processes of the host are not in sight")
	}
	missing = append(missing, p.timeMissing()...)
	for _, file := range p.files.starting() {
		missing = append(missing, clean("/"+file.path)+" ("+file.kind+") starts a kube-proxy")
	}
	if p.filesErr != nil {
		missing = append(missing, clean(p.filesErr.Error()))
	}
	for _, place := range p.files.missing {
		missing = append(missing, clean(place))
	}
	missing = append(missing, p.successorMissing()...)
	return missing[:min(len(missing), maxSamples)]
}

// timeMissing also remembers this reading.
func (p *kubeProxy) timeMissing() []string {
	if p.in.history == nil {
		return []string{"a single reading cannot tell that none ran for " + noneFor.String()}
	}
	now := p.in.host.Now()
	// Without the id of the boot a stretch of an earlier one could not be told.
	bootID, _ := readValue(p.in.host.sysctlPath("kernel/random/boot_id"))
	since := p.in.history.seeProxy(p.runs() || p.answered || !p.processes.visible, bootID, now)
	if since.IsZero() || now.Sub(since) < noneFor {
		return []string{"none was seen for less than " + noneFor.String() + " so far"}
	}
	return nil
}

// successorMissing: something takes kube-proxy's place, or there is no kubelet and so no node of a cluster.
func (p *kubeProxy) successorMissing() []string {
	if len(p.replacements()) > 0 {
		return nil
	}
	if len(p.processes.kubelets) > 0 {
		return []string{fmt.Sprintf("a kubelet runs (process %d), and nothing that takes kube-proxy's place was found", p.processes.kubelets[0].pid)}
	}
	if len(p.files.kubeletUnits) > 0 {
		return []string{clean(p.files.kubeletUnits[0]) + " starts a kubelet, and nothing that takes kube-proxy's place was found"}
	}
	return nil
}

// proof says from what it was concluded that none runs.
func (p *kubeProxy) proof() string {
	successor := "there is no kubelet"
	if found := p.replacements(); len(found) > 0 {
		successor = strings.Join(found, ", ") + " takes its place"
	}
	return "proven: no kube-proxy for " + noneFor.String() + ", no manifest or unit for one, and " + successor
}

// replacements lists programs that take kube-proxy's place, each by two signs where there are two.
func (p *kubeProxy) replacements() []string {
	var found []string
	for name, is := range map[string]func() bool{
		"cilium": func() bool {
			return p.hasProcess(nameCilium) && (p.hasLink("cilium_host") || p.hasBPF("cilium") || p.hasBPF("tc/globals/cilium_lb4_services_v2"))
		},
		"calico-ebpf":  func() bool { return p.hasProcess(nameCalico) && p.hasCalicoMaps() },
		"antrea-proxy": func() bool { return p.hasProcess(nameAntrea) },
		"kube-router":  p.hasKubeRouter,
	} {
		if is() {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func (p *kubeProxy) hasProcess(name string) bool {
	_, found := p.processes.others[name]
	return found
}

// hasKubeRouter: its service proxy is one of three parts, and on unless told otherwise.
func (p *kubeProxy) hasKubeRouter() bool {
	router, found := p.processes.others[nameKubeRouter]
	_, told := router.flags().last("run-service-proxy")
	return found && (!told || router.flags().on("run-service-proxy"))
}

func (p *kubeProxy) hasLink(name string) bool { return p.in.network.hasLink(name) }

// hasLink reports whether there is a link of that name. A nil network has none.
func (n *network) hasLink(name string) bool {
	if n == nil {
		return false
	}
	for _, link := range n.links {
		if link.name == name {
			return true
		}
	}
	return false
}

func (p *kubeProxy) hasBPF(name string) bool {
	found, err := exists(filepath.Join(p.in.host.Sys, "fs/bpf", name))
	return found && err == nil
}

// hasCalicoMaps looks for the front end of the address translation in eBPF, whose name ends in the number of its version
// (felix/bpf/nat/maps.go). Calico makes it in no other mode.
func (p *kubeProxy) hasCalicoMaps() bool {
	entries, err := os.ReadDir(filepath.Join(p.in.host.Sys, "fs/bpf/tc/globals"))
	if err != nil {
		return false
	}
	pattern := regexp.MustCompile(`^cali_v[46]_nat_fe[0-9]*$`)
	return slices.ContainsFunc(entries, func(entry os.DirEntry) bool { return pattern.MatchString(entry.Name()) })
}
