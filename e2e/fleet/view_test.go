package fleet

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ask runs kubectl-offramp.
func (s *stage) ask(args ...string) (stdout string, code int) {
	s.Helper()
	argv := append([]string{programs.Kubectl(), "--aggregator", address, "--ca-file", s.certificates.CA, "--timeout", "5s"}, args...)
	stdout, code, err := run(argv...)
	if err != nil {
		s.Fatalf("running kubectl-offramp: %v", err)
	}
	return stdout, code
}

// view is what `kubectl-offramp nodes` shows, by node; the error says that there was no answer.
func (s *stage) view() (map[string]*offrampv1.NodeSummary, error) {
	s.Helper()
	out, code := s.ask("nodes", "--target", "none", "-o", "json")
	if code != 0 {
		return nil, fmt.Errorf("kubectl-offramp nodes ended with exit code %d", code)
	}
	answer := &offrampv1.ListNodesResponse{}
	if err := protojson.Unmarshal([]byte(out), answer); err != nil {
		s.Fatalf("what kubectl-offramp prints is not the JSON that it says: %v", err)
	}
	byName := map[string]*offrampv1.NodeSummary{}
	for _, node := range answer.GetNodes() {
		byName[node.GetNode()] = node
	}
	return byName, nil
}

// ready is the exit code of `kubectl-offramp ready`.
func (s *stage) ready() int {
	s.Helper()
	_, code := s.ask("ready", "--target", "none", "--min-listening", "1ms")
	return code
}

// young reports whether the aggregator says that nodes may be missing, and nothing else that would end with 4.
func (s *stage) young() bool {
	s.Helper()
	out, _ := s.ask("ready", "--target", "none", "--min-listening", "1ms")
	return strings.Contains(out, "could not tell: nodes may be missing") && strings.Contains(out, "(3 ready, 0 blocked, 0 unknown)")
}

// sets is how many sets there are in truth.
func (s *stage) sets() uint64 {
	s.Helper()
	return uint64(len(strings.Fields(s.native("ipset", "list", "-n"))))
}

// wrongWith says what is wrong with the answers about some nodes; "" when nothing is.
func (s *stage) wrongWith(names ...string) string {
	s.Helper()
	sets := s.sets()
	shown, err := s.view()
	if err != nil {
		return err.Error()
	}
	return wrongAmong(shown, sets, names)
}

func wrongAmong(shown map[string]*offrampv1.NodeSummary, sets uint64, names []string) string {
	for _, name := range names {
		if wrong := wrongWithNode(shown[name], sets); wrong != "" {
			return name + " " + wrong
		}
	}
	return ""
}

func wrongWithNode(node *offrampv1.NodeSummary, sets uint64) string {
	judged := node.GetAssessment()
	switch {
	case node == nil:
		return "is not listed"
	case !node.GetConnected():
		return "is not connected"
	case node.GetAgentVersion() == liar:
		return "is somebody else"
	case judged.GetReady() != offrampv1.Verdict_VERDICT_READY:
		return fmt.Sprintf("is %s, not ready", judged.GetReady())
	case judged.GetRunningMode() != offrampv1.ProxyMode_PROXY_MODE_NONE:
		return fmt.Sprintf("runs %s, not none", judged.GetRunningMode())
	case node.GetInventory().GetIpsets() != sets, judged.GetLeftovers().GetIpsets() != sets:
		return fmt.Sprintf("has %d sets, %d of them left over, and %d in truth",
			node.GetInventory().GetIpsets(), judged.GetLeftovers().GetIpsets(), sets)
	}
	return ""
}

// wrong says what is wrong with the whole view: a node that is not right, one too many, a wrong exit code.
func (s *stage) wrong() string {
	s.Helper()
	sets := s.sets()
	shown, err := s.view()
	if err != nil {
		return err.Error()
	}
	if wrong := wrongAmong(shown, sets, nodes()); wrong != "" {
		return wrong
	}
	if len(shown) != len(nodes()) {
		return fmt.Sprintf("%d nodes are listed, there are %d", len(shown), len(nodes()))
	}
	// An aggregator without a Kubernetes API says for three heartbeats after its start that nodes may be missing.
	if code := s.ready(); code != 3 && (code != 4 || !s.young()) {
		return fmt.Sprintf("`ready` ends with %d, where all are ready and some have leftovers (3)", code)
	}
	return ""
}

// untilRight waits until the whole view is right. took is how long that was, wrong what it still is at the end.
func (s *stage) untilRight(limit time.Duration) (took time.Duration, wrong string) {
	s.Helper()
	return s.until(limit, s.wrong)
}

// until waits until nothing is wrong. What counts is when the question was asked that was answered rightly.
func (s *stage) until(limit time.Duration, look func() string) (took time.Duration, wrong string) {
	s.Helper()
	began := time.Now()
	for {
		asked := time.Since(began)
		if wrong = look(); wrong == "" || asked > limit {
			return asked, wrong
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// rightAgain holds that the whole view is right within two heartbeats.
func (s *stage) rightAgain(after string) {
	s.Helper()
	took, wrong := s.untilRight(twoHeartbeats)
	if wrong != "" {
		s.Errorf("two heartbeats after %s the view is wrong: %s", after, wrong)
		return
	}
	s.Logf("the view was right %s after %s", took.Round(time.Millisecond), after)
}
