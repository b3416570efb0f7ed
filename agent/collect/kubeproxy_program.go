package collect

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// program is what a kube-proxy runs as, or inside of.
type program string

const (
	programNone      program = ""
	programKubeProxy program = "kube-proxy"
	programHyperkube program = "hyperkube"
	programKubelite  program = "kubelite"
	programK3s       program = "k3s"
	programRKE2      program = "rke2"
)

// Names of processes, as in /proc/PID/comm.
const (
	kubeProxyName  = "kube-proxy"
	nameKubelet    = "kubelet"
	nameCilium     = "cilium-agent"
	nameCalico     = "calico-node"
	nameAntrea     = "antrea-agent"
	nameKubeRouter = "kube-router"
	nameFirewalld  = "firewalld"
	nameDocker     = "dockerd"
	nameNodeCache  = "node-cache"
	nameKubeVIP    = "kube-vip"
	nameKeepalived = "keepalived"
	// nameMetalLB is what MetalLB runs on each node. Others may have a program of that name: whoever takes it for MetalLB then
	// is too careful.
	nameMetalLB = "speaker"
)

// matters reports whether more than the name of a process is looked at.
func matters(name string) bool {
	switch name {
	case kubeProxyName, nameKubelet, "hyperkube", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2",
		nameCilium, nameCalico, nameAntrea, nameKubeRouter, nameFirewalld, nameDocker, nameNodeCache,
		nameKubeVIP, nameKeepalived, nameMetalLB:
		return true
	default:
		return false
	}
}

// programOf tells what a process is, if it is a kube-proxy or may have one inside.
func programOf(name string, args []string) program {
	switch name {
	case kubeProxyName:
		return programKubeProxy
	case "hyperkube":
		// kube-bench's list of names: "hyperkube proxy", "hyperkube kube-proxy".
		if role := roleOf(args); role == "proxy" || role == kubeProxyName {
			return programHyperkube
		}
	case "kubelite":
		return programKubelite
	case "k3s", "k3s-server", "k3s-agent":
		if isNodeRole(name, args) {
			return programK3s
		}
	case "rke2":
		if isNodeRole(name, args) {
			return programRKE2
		}
	}
	return programNone
}

// isNodeRole reports whether k3s or rke2 runs as what makes a node; the same program is kubectl, crictl and more.
func isNodeRole(name string, args []string) bool {
	role := roleOf(args)
	return role == "server" || role == "agent" || role == "" && name != "k3s" && name != "rke2"
}

// roleOf is the first argument that is no flag. k3s and rke2 overwrite their command line with one string, "k3s server", to
// hide their flags (pkg/cli/server, gspt.SetProcTitle).
func roleOf(args []string) string {
	words := args[min(1, len(args)):]
	if len(args) > 0 {
		_, title, _ := strings.Cut(args[0], " ")
		words = append(strings.Fields(title), words...)
	}
	for _, word := range words {
		if word != "" && !strings.HasPrefix(word, "-") {
			return word
		}
	}
	return ""
}

// isKubelet: k3s and kubelite have it inside; rke2 starts one of its own.
func isKubelet(p process) bool {
	switch p.name {
	case nameKubelet:
		return true
	case "hyperkube":
		return roleOf(p.args) == nameKubelet
	default:
		return p.program == programK3s || p.program == programKubelite
	}
}

// arguments are flags as pflag reads them: --name=value or --name value, with - and _ alike in a name
// (k8s.io/component-base/cli/flag WordSepNormalizeFunc).
type arguments []string

// all returns every value that a flag was given, in order. A flag with neither "=" nor a value after it counts as "".
func (a arguments) all(name string) []string {
	var values []string
	for i := 0; i < len(a); i++ {
		if a[i] == "--" {
			break
		}
		flag, isFlag := strings.CutPrefix(a[i], "--")
		flag, value, hasValue := strings.Cut(flag, "=")
		if !isFlag || strings.ReplaceAll(flag, "_", "-") != name {
			continue
		}
		if !hasValue {
			if i+1 >= len(a) {
				break
			}
			i++
			value = a[i]
		}
		values = append(values, value)
	}
	return values
}

// last returns the last value that a flag was given, which is the one that counts.
func (a arguments) last(name string) (value string, found bool) {
	values := a.all(name)
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// list returns the items of a flag that takes lists: its values, each with commas between items.
func (a arguments) list(name string) []string {
	return splitList(strings.Join(a.all(name), ","))
}

// on reports whether a flag that is true or false is true. It takes a value only with "=".
func (a arguments) on(name string) bool {
	on := false
	for _, argument := range a {
		if argument == "--" {
			break
		}
		flag, isFlag := strings.CutPrefix(argument, "--")
		flag, value, hasValue := strings.Cut(flag, "=")
		if isFlag && strings.ReplaceAll(flag, "_", "-") == name {
			on = !hasValue || isTrue(value)
		}
	}
	return on
}

// isTrue reads a truth value as strconv.ParseBool and YAML do.
func isTrue(text string) bool {
	return slices.Contains([]string{"1", "t", "true", "yes", "on"}, strings.ToLower(text))
}

func splitList(text string) []string {
	isSeparator := func(r rune) bool { return r == ',' || unicode.IsSpace(r) }
	return strings.FieldsFunc(text, isSeparator)
}

// isProgram reports whether a word of a command line is that program, with or without its path.
func isProgram(word, name string) bool { return path.Base(word) == name }
