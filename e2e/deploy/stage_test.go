package deploy

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/kube"
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
	*nodes.Stage

	dir string

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
	s := &stage{T: t, whole: t, dir: t.TempDir()}
	// Without iptables it cannot remove what the test puts there.
	proxies := []cluster.ProxyConfig{{Mode: "nftables", Without: []string{"iptables", "ip6tables"}}}
	specs := []nodes.Spec{{Name: clean, Proxies: proxies}, {Name: dirty, Proxies: proxies}}
	var err error
	s.Stage, err = nodes.StartStage(t.Context(), labtest.Start(t), t.Output(), specs, s.images()...)
	t.Cleanup(s.close)
	if err != nil {
		t.Fatal(err)
	}
	// kubectl finds plugins in PATH by their names.
	if err := os.Symlink(programs.Kubectl(), filepath.Join(s.Dir, "kubectl-offramp")); err != nil {
		t.Fatal(err)
	}
	t.Logf("the cluster is there (%s)", time.Since(began).Round(time.Second))
	return s
}

func (s *stage) close() {
	if s.Failed() {
		s.keep(s.Logs())
	}
	if err := s.Close(); err != nil {
		s.Error(err)
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

// run runs a program in the lab's network to its end, as the administrator.
func (s *stage) run(argv ...string) (string, int) { return s.runInput("", argv...) }

func (s *stage) runInput(input string, argv ...string) (string, int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	out, code, err := s.Exec(ctx, input, argv...)
	if err != nil {
		s.Fatalf("%v: %v: %s", argv, err, out)
	}
	return out, code
}

// must runs kubectl and fails the test where that fails.
func (s *stage) must(args ...string) string {
	s.Helper()
	out, code := s.run(append([]string{s.Kubectl}, args...)...)
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
	return s.run(append(append([]string{s.Kubectl, "offramp"}, args...), "--as", who)...)
}

func (s *stage) apply(manifest string) {
	s.Helper()
	if out, code := s.runInput(manifest, s.Kubectl, "apply", "-f", "-"); code != 0 {
		s.Fatalf("kubectl apply: %s", out)
	}
}

func (s *stage) rolledOut(namespace string, what ...string) {
	s.Helper()
	for _, name := range what {
		out, code := s.run(s.Kubectl, "-n", namespace, "rollout", "status", name, "--timeout=180s")
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
		out, _ := s.run(append([]string{s.Kubectl, "-n", namespace}, args...)...)
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
