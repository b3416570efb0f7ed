package orders

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/programs"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestMain(m *testing.M) { os.Exit(main(m)) }

// standInVariable tells the inner test process where the stand-in for kube-proxy is.
const standInVariable = "OFFRAMP_E2E_STANDIN"

func main(m *testing.M) int {
	if os.Getenv(standInVariable) == "" {
		dir, err := os.MkdirTemp("", "offramp-standin-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		// It has to be named so: the agent looks for a process of this name.
		path := filepath.Join(dir, "kube-proxy")
		if err := lab.GoBuild(context.Background(), "offramp.dev/offramp/e2e/standin", path); err != nil {
			panic(err)
		}
		if err := os.Setenv(standInVariable, path); err != nil {
			panic(err)
		}
	}
	return programs.Main(m)
}

const (
	capture = "ipvs-then-nftables"
	address = "127.0.0.1:8443"
	node    = "node-a"
	foreign = "somebody-elses"
	patient = 60 * time.Second
)

// stage is an aggregator, a node with the leftovers of a capture and a stand-in for its kube-proxy, and that node's agent.
type stage struct {
	*testing.T

	aggregator, agent, proxy *process
	// at is where agent and people find the aggregator.
	at    string
	state string
	root  string
	audit string
}

// setUp returns nil outside of the namespace.
func setUp(t *testing.T) *stage {
	t.Helper()
	if !nstest.Enter(t) {
		return nil
	}
	nstest.NeedTool(t, "ipset", "nft", "iptables-nft-restore", "ip6tables-nft-restore")
	nstest.NeedKernel(t, "ip_set", "nf_tables")
	s := &stage{T: t, at: address, state: filepath.Join(t.TempDir(), "state"), root: t.TempDir(), audit: filepath.Join(t.TempDir(), "audit")}
	// A host root without boot files that name what would go.
	if err := os.MkdirAll(filepath.Join(s.root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, "etc", "os-release"), []byte("ID=test\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.restore()
	native(t, "", "ipset", "create", foreign, "hash:ip")
	s.startProxy()
	s.startAggregator()
	s.startAgent()
	return s
}

// restore gives the namespace what the capture has of rules and tables, and of sets.
func (s *stage) restore() {
	s.Helper()
	native(s.T, s.captured("iptables-nft-save.txt"), "iptables-nft-restore")
	native(s.T, s.captured("ip6tables-nft-save.txt"), "ip6tables-nft-restore")
	native(s.T, ownTables(s.captured("nft-ruleset.txt")), "nft", "-f", "-")
	s.dirty()
}

// dirty leaves the sets of ipvs mode.
func (s *stage) dirty() {
	s.Helper()
	native(s.T, s.captured("ipset-save.txt"), "ipset", "-exist", "restore")
}

func (s *stage) captured(file string) string {
	s.Helper()
	text, err := captures.Read(capture, file)
	if err != nil {
		s.Fatal(err)
	}
	return string(text)
}

// ownTables are kube-proxy's nftables tables of a ruleset.
func ownTables(ruleset string) string {
	return strings.Join(regexp.MustCompile(`(?ms)^table ip6? kube-proxy \{\n.*?^\}\n`).FindAllString(ruleset, -1), "")
}

func (s *stage) startProxy() {
	s.Helper()
	dir := s.TempDir()
	for _, file := range []string{"proxyMode.txt", "metrics.txt", "healthz.json"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(s.captured(file)), 0o600); err != nil {
			s.Fatal(err)
		}
	}
	s.proxy = start(s.T, "the stand-in for kube-proxy", []string{"OFFRAMP_STANDIN_CAPTURE=" + dir},
		append([]string{os.Getenv(standInVariable)}, strings.Fields(s.captured("cmdline.txt"))[1:]...)...)
	until(s.T, "the stand-in serves", s.proxy.says("serving a capture"))
}

func (s *stage) startAggregator() {
	s.Helper()
	s.aggregator = start(s.T, "the aggregator", nil, programs.Aggregator(), "run", "--listen", address, "--insecure-plaintext",
		"--auth", "none", "--heartbeat-interval", "1s", "--audit-log", s.audit)
	until(s.T, "the aggregator listens", s.aggregator.says("listening"))
}

func (s *stage) startAgent(more ...string) {
	s.Helper()
	s.agent = start(s.T, "the agent", nil, append([]string{programs.Agent(), "run", "--node", node, "--aggregator", s.at, "--insecure-plaintext",
		"--scan-interval", "5s", "--cleanup", "apply", "--state-dir", s.state, "--host-root", s.root}, more...)...)
}

// people starts kubectl-offramp.
func (s *stage) people(args ...string) *process {
	s.Helper()
	return start(s.T, "kubectl-offramp", nil, append([]string{programs.Kubectl(), "--aggregator", s.at, "--insecure-plaintext"}, args...)...)
}

// digest is that of the plan of the node now, which the agent on the node itself makes.
func (s *stage) digest() string {
	s.Helper()
	p := start(s.T, "a plan on the node", nil, programs.Agent(), "cleanup", "plan", "--node", node, "--state-dir", s.state, "--host-root", s.root)
	if code := p.code(); code != 3 {
		s.Fatalf("the plan on the node ends with %d:\n%s", code, p.said())
	}
	return regexp.MustCompile(`digest: ([0-9a-f]{64})`).FindStringSubmatch(p.said())[1]
}

// leftovers are the sets of ipvs mode that are there, by the native tool.
func (s *stage) leftovers() (left []string) {
	s.Helper()
	for _, name := range strings.Fields(native(s.T, "", "ipset", "list", "-n")) {
		if strings.HasPrefix(name, "KUBE-") {
			left = append(left, name)
		}
	}
	return left
}

// runs counts the clean-ups that the node's journal has of an order.
func (s *stage) runs(id string) (count int) {
	s.Helper()
	files, _ := filepath.Glob(filepath.Join(s.state, "journal", "*.jsonl"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			s.Fatal(err)
		}
		count += strings.Count(string(text), `"order":"`+id+`"`)
	}
	return count
}

// journal reports whether the journal of an order says something.
func (s *stage) journal(id, text string) func() bool {
	return func() bool {
		files, _ := filepath.Glob(filepath.Join(s.state, "journal", "*.jsonl"))
		for _, file := range files {
			said, err := os.ReadFile(file)
			if err == nil && strings.Contains(string(said), `"order":"`+id+`"`) && strings.Contains(string(said), text) {
				return true
			}
		}
		return false
	}
}

// recorded reports whether the node has a file of an order.
func (s *stage) recorded(id, suffix string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(s.state, "orders", id+suffix))
		return err == nil
	}
}

// apply has the plan done under an id, and returns the program that waits for it.
func (s *stage) apply(id, digest string) *process {
	s.Helper()
	return s.people("cleanup", "apply", node, "--plan", digest, "--order", id, "-o", "json")
}

// answer is what the program printed as the result.
func (s *stage) answer(p *process) *offrampv1.OrderResult {
	s.Helper()
	said := p.said()
	from := strings.Index(said, "{\n")
	if from < 0 {
		s.Fatalf("there is no result:\n%s", said)
	}
	var document json.RawMessage
	if err := json.NewDecoder(strings.NewReader(said[from:])).Decode(&document); err != nil {
		s.Fatalf("%v:\n%s", err, said)
	}
	result := &offrampv1.OrderResult{}
	if err := protojson.Unmarshal(document, result); err != nil {
		s.Fatalf("%v:\n%s", err, said)
	}
	return result
}

// holdsTrue compares what the person was told with the kernel and the journal.
func (s *stage) holdsTrue(id string, p *process) *offrampv1.OrderResult {
	s.Helper()
	code := p.code()
	result, left, runs := s.answer(p), s.leftovers(), s.runs(id)
	switch {
	case runs > 1:
		s.Errorf("it was done %d times", runs)
	case result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_DONE && (code != 0 || len(left) > 0 || runs != 1):
		s.Errorf("it is said to be done: exit code %d, %d sets are left, %d runs", code, len(left), runs)
	case result.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_DONE && code == 0:
		s.Errorf("it ended with %s and exit code 0", result.GetOutcome())
	case result.GetId() != id || result.GetNode() != node:
		s.Errorf("the result is of order %s of node %s", result.GetId(), result.GetNode())
	}
	if strings.Count(native(s.T, "", "ipset", "list", "-n"), foreign) != 1 {
		s.Error("somebody else's set is gone")
	}
	return result
}

// done holds that the order was done, once.
func (s *stage) done(id string, p *process) {
	s.Helper()
	if result := s.holdsTrue(id, p); result.GetOutcome() != offrampv1.OrderOutcome_ORDER_OUTCOME_DONE {
		s.Errorf("it ended with %s: %s", result.GetOutcome(), result.GetMessage())
	}
}
