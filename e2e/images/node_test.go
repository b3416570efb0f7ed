package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/nstest"
)

// node is a network namespace with a docker daemon inside: what its containers take for the host's network is the namespace.
type node struct {
	t      *testing.T
	daemon *Daemon
	// state is the folder that a node keeps for the agent.
	state string
}

// enterNode makes the calling test's process live in a fresh namespace with a daemon; false outside of it.
func enterNode(t *testing.T) (*node, bool) {
	t.Helper()
	if other := open(t, Agent).Config.Architecture; other != runtime.GOARCH {
		t.Skipf("images for %s cannot be run on %s", other, runtime.GOARCH)
	}
	if !nstest.Enter(t) {
		return nil, false
	}
	nstest.NeedTool(t, "iptables-legacy-restore", "iptables-nft-restore", "ipset", "nft")
	nstest.NeedKernel(t, "nf_tables", "ip_set", "ip_tables", "ip6_tables", "nft_compat")
	ownFolders(t)
	data, err := DataFolder()
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := Start(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Stop(); err != nil {
			t.Error(err)
		}
	})
	return &node{t: t, daemon: daemon, state: t.TempDir()}, true
}

// ownFolders gives the namespace a /run of its own, and the cgroups of the host, which its fresh /sys hides.
func ownFolders(t *testing.T) {
	t.Helper()
	mount := func(kind, at, options string) {
		if err := errors.Join(os.MkdirAll(at, 0o755), unix.Mount(kind, at, kind, 0, options)); err != nil {
			t.Fatalf("mount %s: %v", at, err)
		}
	}
	mount("tmpfs", "/run", "")
	mine, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mine), "\n") || strings.HasPrefix(string(mine), "0::") {
		mount("cgroup2", "/sys/fs/cgroup", "")
		return
	}
	mount("tmpfs", "/sys/fs/cgroup", "")
	for line := range strings.Lines(string(mine)) {
		if controllers := strings.Split(line, ":")[1]; controllers != "" {
			mount("cgroup", "/sys/fs/cgroup/"+strings.TrimPrefix(controllers, "name="), controllers)
		}
	}
}

// capabilities are those that deploy/ gives to an agent that may clean up.
func capabilities() []string { return []string{"NET_ADMIN", "NET_RAW"} }

// agent runs the agent's image as the DaemonSet does: no capability but these, a root file system that nobody can write, the
// host's network, and of the host's files only what it reads. It returns what the agent printed, and its exit code.
func (n *node) agent(args ...string) (string, int) {
	n.t.Helper()
	return n.run(tested().Name(Agent), nil, args...)
}

func (n *node) run(image string, more []string, args ...string) (string, int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute)
	defer cancel()
	options := []string{
		"run", "--rm", "--network", "host", "--read-only", "--security-opt", "no-new-privileges", "--cap-drop", "ALL",
		"-v", "/proc:/host/proc:ro", "-v", "/etc:/host/etc:ro", "-v", "/usr:/host/usr:ro", "-v", "/lib:/host/lib:ro",
		"-v", n.state + ":/var/lib/offramp", "-v", lockFile(n.t) + ":/run/xtables.lock",
	}
	for _, capability := range capabilities() {
		options = append(options, "--cap-add", capability)
	}
	out, err := n.daemon.Run(ctx, nil, slices.Concat(options, more, []string{image}, args)...)
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() > 4) {
		n.t.Fatalf("%v\n%s", err, n.daemon.Log())
	}
	if err != nil {
		n.t.Log(err)
		return out, ended.ExitCode()
	}
	return out, 0
}

// machine is the name of this host's architecture in paths of Debian.
func machine() string {
	return map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
}

// lockFile is the host's lock of iptables-legacy.
func lockFile(t *testing.T) string {
	t.Helper()
	const path = "/run/xtables.lock"
	file, err := os.OpenFile(path, os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	return path
}

// tool runs one of the host's own programs.
func tool(t *testing.T, input string, argv ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// tools are the backends and families of iptables.
func tools() []string {
	return []string{"iptables-legacy", "ip6tables-legacy", "iptables-nft", "ip6tables-nft"}
}

// look is what the host's native tools print of the node's rules, sets and tables, counters and times aside.
func look(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		all.WriteString("## " + name + "\n" + tool(t, "", name+"-save"))
	}
	all.WriteString("## ipset\n" + tool(t, "", "ipset", "list", "-name"))
	all.WriteString("## nft\n" + tool(t, "", "nft", "list", "tables"))
	text := regexp.MustCompile(`(?m)^#.*(Generated|Completed|Warning).*\n`).ReplaceAllString(all.String(), "")
	return regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(text, "[0:0]")
}

// leftBehind puts what kube-proxy left on a node, in both backends, beside what is there.
func leftBehind(t *testing.T, state string) {
	t.Helper()
	tool(t, captured(t, "legacy-"+state, "ipset-save.txt"), "ipset", "restore", "-exist")
	for _, name := range tools() {
		_, backend, _ := strings.Cut(name, "-")
		tool(t, kubeProxyRules(captured(t, backend+"-"+state, name+"-save.txt")), name+"-restore", "--noflush")
	}
}

func captured(t *testing.T, state, file string) string {
	t.Helper()
	text, err := captures.Read("1.37.2-"+state, file)
	if err != nil {
		t.Fatal(fmt.Errorf("%s of %s: %w", file, state, err))
	}
	return string(text)
}

// kubeProxyRules are kube-proxy's rules of a saved ruleset, its jumps at the top of their chains as it inserts them itself.
// Left out is what kubelet owns, and matches that this kernel may lack.
func kubeProxyRules(saved string) string {
	others := regexp.MustCompile(`KUBE-FIREWALL|KUBELET-CANARY|IPTABLES-HINT| -m (ipvs|nfacct|physdev) |^#`)
	var kept, top strings.Builder
	for line := range strings.Lines(saved) {
		fields := strings.Fields(line)
		switch {
		case others.MatchString(line), strings.HasPrefix(line, ":") && fields[1] != "-":
		case line == "COMMIT\n":
			kept.WriteString(top.String() + line)
			top.Reset()
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(fields[1], "KUBE-"):
			before := top.String()
			top.Reset()
			top.WriteString("-I" + strings.TrimPrefix(line, "-A") + before)
		default:
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// stateFile reads one of the files that the agent left on the node.
func (n *node) stateFile(name string) string {
	n.t.Helper()
	content, err := os.ReadFile(filepath.Join(n.state, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(content)
}
