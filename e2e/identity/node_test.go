package identity

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/programs"
	"offramp.dev/offramp/internal/nstest"
)

const (
	capture = "ipvs-then-nftables"
	foreign = "somebody-elses"
)

// dirty is a node: network, processes and mounts of its own, in the kernel what a kube-proxy left that went from ipvs to
// nftables mode, and a stand-in for the kube-proxy that runs now.
type dirty struct {
	*testing.T

	name        string
	network     *lab.Network
	init        int // the process that holds the namespaces
	state, root string
	proxy       *process
	agent       *process
}

// buildStandIn builds the stand-in. It has to be called kube-proxy: the agent looks for a process of that name.
func buildStandIn(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kube-proxy")
	if err := lab.GoBuild(t.Context(), "offramp.dev/offramp/e2e/standin", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// addDirty makes a node. number is different for each.
func (s *stage) addDirty(name string, number int, standIn string) *dirty {
	s.Helper()
	nstest.NeedTool(s.T, "ipset", "nft", "iptables-nft-restore", "ip6tables-nft-restore", "unshare", "nsenter")
	nstest.NeedKernel(s.T, "ip_set", "nf_tables", "veth")
	network, err := s.lab.Network(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	d := &dirty{T: s.T, name: name, network: network, state: filepath.Join(s.dir, "state-of-"+name), root: s.TempDir()}
	if err := network.Join("eth0"); err != nil {
		s.Fatal(err)
	}
	d.hold()
	d.native("", "ip", "address", "add", fmt.Sprintf("198.18.201.%d/16", number), "dev", "eth0")
	// A host root without boot files that name what would go.
	if err := os.MkdirAll(filepath.Join(d.root, "etc"), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.root, "etc", "os-release"), []byte("ID=test\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	d.fill()
	d.startProxy(standIn)
	return d
}

// hold makes namespaces of processes and mounts that end with the test, so that the agent sees no process of the host's.
func (d *dirty) hold() {
	d.Helper()
	holder := startCommand(d.T, "the holder of "+d.name, d.network.Command(d.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc", "--propagation", "private", "sh", "-c", "mount -t sysfs sysfs /sys && echo held && exec sleep infinity"))
	holder.says(d.T, 0, "held")
	pid := holder.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		d.Fatal(err)
	}
	if d.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		d.Fatalf("the holder's children are %q", children)
	}
}

// command is a program on the node.
func (d *dirty) command(argv ...string) *lab.HostCommand {
	return d.network.Command(d.Context(), append([]string{"nsenter", "--target", strconv.Itoa(d.init), "--mount", "--pid"}, argv...)...)
}

// native runs a native tool on the node.
func (d *dirty) native(input string, argv ...string) string {
	d.Helper()
	cmd := d.command(argv...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.Fatalf("on %s: %v: %v: %s", d.name, argv, err, out)
	}
	return string(out)
}

func (d *dirty) captured(file string) string {
	d.Helper()
	text, err := captures.Read(capture, file)
	if err != nil {
		d.Fatal(err)
	}
	return string(text)
}

// fill gives the kernel what the capture has, and a set of somebody else's.
func (d *dirty) fill() {
	d.Helper()
	d.native(d.captured("iptables-nft-save.txt"), "iptables-nft-restore")
	d.native(d.captured("ip6tables-nft-save.txt"), "ip6tables-nft-restore")
	own := regexp.MustCompile(`(?ms)^table ip6? kube-proxy \{\n.*?^\}\n`).FindAllString(d.captured("nft-ruleset.txt"), -1)
	d.native(strings.Join(own, ""), "nft", "-f", "-")
	d.native(d.captured("ipset-save.txt"), "ipset", "-exist", "restore")
	d.native("", "ipset", "create", foreign, "hash:ip")
}

func (d *dirty) startProxy(standIn string) {
	d.Helper()
	dir := d.TempDir()
	for _, file := range []string{"proxyMode.txt", "metrics.txt", "healthz.json"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(d.captured(file)), 0o600); err != nil {
			d.Fatal(err)
		}
	}
	argv := append([]string{"env", "OFFRAMP_STANDIN_CAPTURE=" + dir, standIn}, strings.Fields(d.captured("cmdline.txt"))[1:]...)
	d.proxy = startCommand(d.T, "the stand-in for kube-proxy of "+d.name, d.command(argv...))
	d.proxy.says(d.T, 0, "serving a capture")
}

// pauseProxy keeps every reading of the node from coming to its end: kube-proxy does not answer.
func (d *dirty) pauseProxy() (resume func()) {
	_ = syscall.Kill(-d.proxy.cmd.Process.Pid, syscall.SIGSTOP)
	return func() { _ = syscall.Kill(-d.proxy.cmd.Process.Pid, syscall.SIGCONT) }
}

// startDirtyAgent starts the node's agent, which obeys orders and has a stream to each of the aggregators.
func (s *stage) startDirtyAgent(d *dirty, aggregators ...string) {
	s.Helper()
	argv := []string{programs.Agent(), "run", "--node", d.name, "--ca-file", s.caFile, "--server-name", "offramp-aggregator.offramp.svc",
		"--token-file", s.file("token-"+d.name, s.agentToken(d.name)), "--scan-interval", "5s", "--cleanup", "apply", "--state-dir", d.state, "--host-root", d.root}
	for _, address := range aggregators {
		argv = append(argv, "--aggregator", address)
	}
	d.agent = startCommand(s.T, "the agent of "+d.name, d.command(argv...))
	eventually(s.T, 60*time.Second, d.name+" is in view", func() bool { return s.connected(d.name) })
}

// leftovers are the sets of ipvs mode that are there.
func (d *dirty) leftovers() (left []string) {
	d.Helper()
	for _, name := range strings.Fields(d.native("", "ipset", "list", "-n")) {
		if strings.HasPrefix(name, "KUBE-") {
			left = append(left, name)
		}
	}
	return left
}

// kernel is all that the native tools say of what a clean-up could change. Times and counters are left out. It waits until the
// kernel has made up its mind about the node's own addresses.
func (d *dirty) kernel() string {
	d.Helper()
	eventually(d.T, 10*time.Second, "the addresses of "+d.name+" are settled", func() bool {
		return !strings.Contains(d.native("", "ip", "address"), "tentative")
	})
	var all strings.Builder
	for _, argv := range [][]string{
		{"ipset", "save"}, {"nft", "--stateless", "list", "ruleset"}, {"ip", "address"}, {"ip", "route", "show", "table", "all"},
	} {
		lines := strings.Split(d.native("", argv...), "\n")
		for i, line := range lines {
			// How long an address of the kernel's own is good counts down.
			lines[i] = regexp.MustCompile(`expires \d+sec|valid_lft \d+sec.*`).ReplaceAllString(line, "")
		}
		all.WriteString(strings.Join(argv, " ") + "\n" + strings.Join(lines, "\n"))
	}
	return all.String()
}

// runs counts the clean-ups that the node's journal has of an order.
func (d *dirty) runs(id string) (count int) {
	d.Helper()
	files, _ := filepath.Glob(filepath.Join(d.state, "journal", "*.jsonl"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			d.Fatal(err)
		}
		count += strings.Count(string(text), `"order":"`+id+`"`)
	}
	return count
}
