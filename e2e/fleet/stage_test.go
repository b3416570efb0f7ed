package fleet

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/programs"
	"offramp.dev/offramp/internal/nstest"
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

const (
	heartbeat = time.Second
	// twoHeartbeats is how soon the view has to be right again after anything that happens to it.
	twoHeartbeats = 2 * heartbeat
	// address is the aggregator's, before and after it is killed. The loopback link is the test's own.
	address = "127.0.0.1:8443"
)

// How long a silent node is remembered: soon forgotten where a test makes up nodes, and else not while it runs.
const (
	soon  = 5 * heartbeat
	never = time.Hour
)

// stage is an aggregator with three nodes. Their agents share the test's network namespace, and so what they find in it.
type stage struct {
	*testing.T

	certificates authority.Files
	aggregator   *process
	agents       map[string]*process
	changed      bool
	forget       time.Duration
}

func nodes() []string { return []string{"node-a", "node-b", "node-c"} }

// setUp starts everything and waits until the view is right. It returns nil outside of the namespace. A node that is
// silent for as long as forget is forgotten.
func setUp(t *testing.T, forget time.Duration) *stage {
	t.Helper()
	if !nstest.Enter(t) {
		return nil
	}
	nstest.NeedTool(t, "ipset")
	nstest.NeedKernel(t, "ip_set")
	certificates, err := authority.Make(t.TempDir(), netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, certificates: certificates, agents: map[string]*process{}, forget: forget}
	s.leave("KUBE-CLUSTER-IP", "hash:ip,port", "family", "inet")
	s.startAggregator()
	for _, name := range nodes() {
		s.startAgent(name)
	}
	if took, wrong := s.untilRight(20 * time.Second); wrong != "" {
		t.Fatalf("the fleet does not come up within %s: %s", took, wrong)
	}
	return s
}

func (s *stage) startAggregator() {
	s.Helper()
	s.aggregator = start(s.T, "offramp-aggregator", programs.Aggregator(), "run", "--auth", "none", "--listen", address,
		"--heartbeat-interval", heartbeat.String(), "--forget-after", s.forget.String(),
		"--tls-cert-file", s.certificates.ServerCert, "--tls-key-file", s.certificates.ServerKey)
}

func (s *stage) startAgent(name string) {
	s.Helper()
	s.agents[name] = start(s.T, "the agent of "+name, programs.Agent(), "run", "--node", name, "--aggregator", address,
		"--ca-file", s.certificates.CA, "--scan-interval", "500ms", "--assert-no-kube-proxy", "a test", "--state-dir", "")
}

// leave puts something of kube-proxy's into the kernel, so that there is news.
func (s *stage) leave(set ...string) {
	s.Helper()
	s.native(append([]string{"ipset", "create"}, set...)...)
}

// change makes news: until every agent has told it, the view is wrong.
func (s *stage) change() {
	s.Helper()
	if s.changed = !s.changed; s.changed {
		s.leave("KUBE-IPVS-IPS", "hash:ip", "family", "inet")
		return
	}
	s.native("ipset", "destroy", "KUBE-IPVS-IPS")
}

// native runs a native tool and returns what it says.
func (s *stage) native(argv ...string) string {
	s.Helper()
	out, code, err := run(argv...)
	if err != nil || code != 0 {
		s.Fatalf("%v: exit code %d (%v)", argv, code, err)
	}
	return out
}

// tearDown ends everything in good order and holds that nothing is left.
func (s *stage) tearDown() {
	s.Helper()
	for _, agent := range s.agents {
		if agent.runs() {
			if code := agent.terminate(s.T); code != 0 {
				s.Errorf("%s ended with exit code %d at SIGTERM", agent.name, code)
			}
		}
	}
	if code := s.aggregator.terminate(s.T); code != 0 {
		s.Errorf("the aggregator ended with exit code %d at SIGTERM", code)
	}
	if left := others(s.T); len(left) > 0 {
		s.Errorf("processes are left: %v", left)
	}
}
