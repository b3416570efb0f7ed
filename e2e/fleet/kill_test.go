package fleet

import (
	"slices"
	"strings"
	"testing"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// An agent that is killed: its node falls silent by the aggregator's clock and is not counted ready from then on, the
// others stay right, and it is right again within two heartbeats of its return.
func TestKilledAgent(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	s.agents["node-b"].kill(t)
	killed := time.Now()
	s.leave("KUBE-6-CLUSTER-IP", "hash:ip,port", "family", "inet6")
	if took, wrong := s.until(twoHeartbeats, func() string { return s.wrongWith("node-a", "node-c") }); wrong != "" {
		t.Errorf("%s after node-b was killed another node is wrong: %s", took, wrong)
	}
	s.fallsSilent("node-b", killed)
	if code := s.ready(); code != 4 {
		t.Errorf("`ready` ends with %d while a node is silent, want 4", code)
	}
	if text, _ := s.ask("status", "--target", "none"); !strings.Contains(text, "silent") {
		t.Errorf("`status` does not speak of the silent node:\n%s", text)
	}
	s.startAgent("node-b")
	s.rightAgain("the agent was started again")
	s.tearDown()
}

// fallsSilent looks at a node that was killed until it is silent for a while.
func (s *stage) fallsSilent(name string, killed time.Time) {
	s.Helper()
	var silent time.Time
	for time.Since(killed) < 4500*time.Millisecond {
		asked := time.Now()
		shown, err := s.view()
		if err != nil {
			s.Fatal(err)
		}
		node := shown[name]
		overdue := asked.Sub(node.GetLastSeen().AsTime()) > 3*heartbeat
		isSilent := node.GetAssessment().GetPhase() == offrampv1.Phase_PHASE_SILENT
		if isSilent && silent.IsZero() {
			silent = asked
		}
		if overdue && !isSilent {
			s.Errorf("%s was heard of three heartbeats ago and is %s", name, node.GetAssessment().GetPhase())
		}
		if isSilent && node.GetAssessment().GetReady() != offrampv1.Verdict_VERDICT_UNKNOWN {
			s.Errorf("%s is silent and its verdict %s", name, node.GetAssessment().GetReady())
		}
		time.Sleep(50 * time.Millisecond)
	}
	if silent.IsZero() {
		s.Fatalf("%s did not fall silent", name)
	}
	s.Logf("%s was silent %s after it was killed", name, silent.Sub(killed).Round(time.Millisecond))
}

// An aggregator that is killed and comes back at once, or after a time in which agents have given up several times.
func TestKilledAggregator(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	sets := []string{"KUBE-LOOP-BACK hash:ip,port,ip", "KUBE-EXTERNAL-IP hash:ip,port"}
	for i, away := range []time.Duration{0, 7 * time.Second} {
		s.aggregator.kill(t)
		if _, code := s.ask("nodes"); code != 1 {
			t.Errorf("without an aggregator kubectl-offramp ends with %d, want 1", code)
		}
		s.leave(strings.Fields(sets[i])...)
		time.Sleep(away)
		s.startAggregator()
		s.rightAgain("the aggregator was started again, " + away.String() + " after it was killed")
	}
	s.tearDown()
}

// A stop by SIGTERM drains: no agent has an error to tell, and all are back within two heartbeats.
func TestStoppedAggregator(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	before := s.complaints()
	if code := s.aggregator.terminate(t); code != 0 {
		t.Errorf("the aggregator ended with exit code %d at SIGTERM", code)
	}
	time.Sleep(5 * heartbeat)
	s.startAggregator()
	s.rightAgain("the aggregator was started again after a stop")
	for i, lines := range s.complaints() {
		// One line for each attempt: in five heartbeats that is a handful.
		if grown := lines[len(before[i]):]; len(grown) == 0 || len(grown) > 15 {
			t.Errorf("%s has %d complaints about an aggregator that was away for five heartbeats:\n%s",
				nodes()[i], len(grown), strings.Join(grown, "\n"))
		}
		if errors := slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "level=ERROR") }); len(errors) > 0 {
			t.Errorf("%s logged errors:\n%s", nodes()[i], strings.Join(errors, "\n"))
		}
	}
	s.tearDown()
}

// complaints are the warnings and errors in the agents' logs, in the order of nodes().
func (s *stage) complaints() [][]string {
	all := make([][]string, 0, len(nodes()))
	for _, name := range nodes() {
		log := s.agents[name].log
		all = append(all, append(log.lines("level=WARN"), log.lines("level=ERROR")...))
	}
	return all
}
