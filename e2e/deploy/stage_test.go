package deploy

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
	"offramp.dev/offramp/e2e/nodes"
	"offramp.dev/offramp/e2e/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// needed makes these tests run where they would be skipped: they want two minutes and half an hour of building before.
const needed = "OFFRAMP_E2E_DEPLOY"

// The nodes of the stage.
const (
	clean = "clean"
	dirty = "dirty"
)

// stage is a cluster that has all that a cluster has, and no Offramp yet.
type stage struct {
	*testing.T

	lab     *lab.Lab
	cluster *cluster.Cluster
	nodes   map[string]*nodes.Node
	proxies map[string]*cluster.Proxy
	dir     string

	kubectl string // the program
	// whole is the whole test: what lives longer than a part of it is started with its context.
	whole *testing.T
}

// in is the stage for a part of a test.
func (s *stage) in(t *testing.T) *stage {
	part := *s
	part.T = t
	return &part
}

func setUp(t *testing.T) *stage {
	t.Helper()
	if os.Getenv(needed) == "" {
		t.Skipf("make e2e-deploy sets %s", needed)
	}
	began := time.Now()
	s := &stage{T: t, whole: t, lab: labtest.Start(t), dir: t.TempDir(), nodes: map[string]*nodes.Node{}, proxies: map[string]*cluster.Proxy{}}
	s.startCluster()
	s.addNodes(s.images())
	s.apply(nodes.DNSManifest())
	s.rolledOut("kube-system", "deployment/coredns")
	t.Logf("the cluster is there (%s)", time.Since(began).Round(time.Second))
	return s
}

func (s *stage) startCluster() {
	s.Helper()
	var err error
	if s.kubectl, err = kube.Build(s.Context(), kube.Kubectl, s.Output()); err != nil {
		s.Fatal(err)
	}
	s.cluster, err = cluster.Start(s.Context(), s.lab, cluster.Options{Log: s.Output(), Kubelets: []string{clean, dirty}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			s.Error(err)
		}
		if s.Failed() {
			s.keep(s.cluster.Logs())
		}
	})
	// kubectl finds plugins in PATH by their names.
	if err := os.Symlink(programs.Kubectl(), filepath.Join(s.dir, "kubectl-offramp")); err != nil {
		s.Fatal(err)
	}
	s.write("admin.conf", s.cluster.Kubeconfig(""))
}

// addNodes makes both nodes at the same time, each with a kube-proxy in nftables mode.
func (s *stage) addNodes(images []string) {
	s.Helper()
	// Not with a context of the group's: the nodes live longer.
	var group errgroup.Group
	for _, name := range []string{clean, dirty} {
		s.nodes[name] = &nodes.Node{}
		group.Go(func() error {
			n, err := nodes.Add(s.Context(), s.cluster, cluster.NodeSpec{Name: name, Proxy: kube.Proxy137}, images...)
			*s.nodes[name] = *n
			return err
		})
	}
	err := group.Wait()
	s.Cleanup(s.closeNodes)
	if err != nil {
		s.Fatal(err)
	}
	for name, n := range s.nodes {
		// Without iptables it cannot remove what the test puts there.
		p, err := n.SyncedProxy(s.Context(), cluster.ProxyConfig{Mode: "nftables", Without: []string{"iptables", "ip6tables"}})
		if err != nil {
			s.Fatal(err)
		}
		s.proxies[name] = p
	}
}

func (s *stage) closeNodes() {
	for name, n := range s.nodes {
		if s.Failed() && n.Node != nil {
			logs := map[string]string{}
			for part, text := range n.Logs() {
				logs[name+"-"+part] = text
			}
			s.keep(logs)
		}
		if err := n.Close(); err != nil {
			s.Error(err)
		}
	}
}

// keep shows the end of logs of a test that has failed.
func (s *stage) keep(logs map[string]string) {
	s.Helper()
	for name, text := range logs {
		path := filepath.Join(s.ArtifactDir(), name+".log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			s.Error(err)
		}
		s.Logf("%s (all of it in %s):\n%s", name, path, text[max(0, len(text)-2000):])
	}
}

func (s *stage) write(name, content string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// run runs a program in the lab's network to its end, as the administrator.
func (s *stage) run(argv ...string) (string, int) { return s.runInput("", argv...) }

func (s *stage) runInput(input string, argv ...string) (string, int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.lab.Command(ctx, argv...)
	cmd.Env = append(os.Environ(), "HOME="+s.dir, "KUBECONFIG="+filepath.Join(s.dir, "admin.conf"), "PATH="+s.dir+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatalf("%v: %v: %s", argv, err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// must runs kubectl and fails the test where that fails.
func (s *stage) must(args ...string) string {
	s.Helper()
	out, code := s.run(append([]string{s.kubectl}, args...)...)
	if code != 0 {
		s.Fatalf("kubectl %s: exit status %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

func (s *stage) helm(args ...string) {
	s.Helper()
	program, err := kube.Build(s.Context(), kube.Helm, s.Output())
	if err != nil {
		s.Fatal(err)
	}
	if out, code := s.run(append([]string{program}, args...)...); code != 0 {
		s.Fatalf("helm %s: exit status %d: %s", strings.Join(args, " "), code, out)
	}
}

// offramp runs kubectl's plugin by its name, as somebody who has one of Offramp's two roles for people and no other right.
func (s *stage) offramp(who string, args ...string) (string, int) {
	s.Helper()
	return s.run(append(append([]string{s.kubectl, "offramp"}, args...), "--as", who)...)
}

func (s *stage) apply(manifest string) {
	s.Helper()
	if out, code := s.runInput(manifest, s.kubectl, "apply", "-f", "-"); code != 0 {
		s.Fatalf("kubectl apply: %s", out)
	}
}

func (s *stage) rolledOut(namespace string, what ...string) {
	s.Helper()
	for _, name := range what {
		out, code := s.run(s.kubectl, "-n", namespace, "rollout", "status", name, "--timeout=180s")
		if code != 0 {
			s.Fatalf("%s: %s\n%s", name, out, s.pods(namespace))
		}
	}
}

// pods is what can be seen of pods that do not get ready.
func (s *stage) pods(namespace string) string {
	s.Helper()
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "-o", "wide"}, {"get", "events", "--sort-by=.lastTimestamp"}, {"logs", "-l", "app.kubernetes.io/part-of=offramp", "--tail=20", "--prefix"},
		{"logs", "-l", "app.kubernetes.io/name=offramp-agent", "--tail=20", "--prefix"}, {"logs", "-l", "app.kubernetes.io/name=offramp-aggregator", "--tail=20", "--prefix"},
	} {
		out, _ := s.run(append([]string{s.kubectl, "-n", namespace}, args...)...)
		all.WriteString(out + "\n")
	}
	return all.String()
}

func (s *stage) eventually(limit time.Duration, what string, happens func() bool) {
	s.Helper()
	if !s.within(limit, happens) {
		s.Fatalf("not within %s: %s", limit, what)
	}
}

func (*stage) within(limit time.Duration, happens func() bool) bool {
	for deadline := time.Now().Add(limit); !happens(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
