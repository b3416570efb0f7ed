package orders

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/programs"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// id is an order's, different for each.
func id(n int) string { return fmt.Sprintf("order-e2e-%012d", n) }

// The whole way without harm: a plan, the plan applied, nothing left, nothing to do, the way back; and the audit on both ends.
func TestCleanUpFromADesk(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	p := s.people("cleanup", "plan", node)
	if code := p.code(); code != 3 || !strings.Contains(p.said(), "kubectl-offramp cleanup apply "+node+" --target nftables --plan ") {
		t.Errorf("the plan ends with %d:\n%s", code, p.said())
	}
	if p := s.people("cleanup", node); p.code() != 1 || !strings.Contains(p.said(), "nobody is there to ask") {
		t.Errorf("without a terminal: %s", p.said())
	}
	before := len(s.leftovers())
	if p := s.people("cleanup", node, "--dry-run"); p.code() != 3 || len(s.leftovers()) != before {
		t.Errorf("a dry run: %s", p.said())
	}
	if p := s.people("cleanup", "apply", node, "--plan", strings.Repeat("ab", 32)); p.code() != 2 || !strings.Contains(p.said(), "plan-changed") {
		t.Errorf("another plan: %s", p.said())
	}
	p = s.people("cleanup", node, "--yes")
	if code := p.code(); code != 0 || len(s.leftovers()) != 0 {
		t.Errorf("cleanup --yes ends with %d, %d sets are left:\n%s", code, len(s.leftovers()), p.said())
	}
	if p := s.people("cleanup", node, "--yes"); p.code() != 0 || !strings.Contains(p.said(), "nothing to do") {
		t.Errorf("the second time: %s", p.said())
	}
	if p := s.people("restore", node); p.code() != 0 || len(s.leftovers()) != before {
		t.Errorf("restore: %d of %d sets:\n%s", len(s.leftovers()), before, p.said())
	}
	audit, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"outcome":"done"`, `"outcome":"refused"`, "CleanupService/Apply", "CleanupService/Restore", `"caller":"unauthenticated"`, `"plan_digest":"abab`} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the aggregator's audit log does not have %s:\n%s", want, audit)
		}
	}
	onNode, err := os.ReadFile(s.state + "/audit.log")
	if err != nil || !strings.Contains(string(onNode), "unauthenticated") {
		t.Errorf("the node's audit log says %s (%v)", onNode, err)
	}
}

// The aggregator is killed at every phase of an order. The person's program and the agent find the next one; the node has done
// it once and says so.
func TestKilledAggregator(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	for n, phase := range []struct {
		name string
		// reach has the order come to the phase, with nobody able to go beyond it; on lets it go on.
		hold  func() (on func())
		reach func(id string, p *process)
	}{
		{"sent, and the agent has not looked", func() func() {
			s.agent.signal(syscall.SIGSTOP)
			return func() { s.agent.signal(syscall.SIGCONT) }
		}, func(string, *process) { time.Sleep(500 * time.Millisecond) }},
		{"accepted", s.holdProxy, func(id string, _ *process) { until(t, "it is accepted", s.recorded(id, ".json")) }},
		{"progress", s.holdProxy, func(_ string, p *process) { until(t, "progress is shown", p.says("reading the node")) }},
		{"the result is there and not acknowledged", func() func() { return func() {} }, func(id string, _ *process) {
			until(t, "it begins", s.recorded(id, ".json"))
			s.aggregator.signal(syscall.SIGSTOP)
			until(t, "it ends", s.recorded(id, ".result"))
			if s.recorded(id, ".acknowledged")() {
				t.Log("it was acknowledged before the aggregator could be stopped")
			}
		}},
	} {
		t.Run(phase.name, func(t *testing.T) {
			s.dirty()
			digest := s.digest()
			on := phase.hold()
			p := s.apply(id(n), digest)
			phase.reach(id(n), p)
			s.aggregator.kill()
			on()
			time.Sleep(time.Duration(n) * 700 * time.Millisecond)
			t.Log("the next aggregator starts")
			s.startAggregator()
			s.done(id(n), p)
		})
	}
}

// holdProxy keeps every reading of the node from coming to its end: kube-proxy does not answer.
func (s *stage) holdProxy() func() {
	s.Helper()
	s.proxy.signal(syscall.SIGSTOP)
	return func() { s.proxy.signal(syscall.SIGCONT) }
}

// The agent is killed at every phase of an order, as far as they can be seen on its disk. It does not do the order again; what
// it says is what is true; and a new order does the rest.
func TestKilledAgent(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	for n, phase := range []struct {
		name  string
		hold  bool
		reach func(id string) func() bool
	}{
		{"accepted", true, func(id string) func() bool { return s.recorded(id, ".json") }},
		{"begun", false, func(id string) func() bool { return s.journal(id, `"kind":"began"`) }},
		{"backed up", false, func(id string) func() bool { return s.journal(id, `"kind":"backup"`) }},
		{"about to change", false, func(id string) func() bool { return s.journal(id, `"kind":"intent"`) }},
		{"changed", false, func(id string) func() bool { return s.journal(id, `"kind":"outcome"`) }},
		{"ended", false, func(id string) func() bool { return s.journal(id, `"kind":"ended"`) }},
		{"the result is there", false, func(id string) func() bool { return s.recorded(id, ".result") }},
	} {
		t.Run(phase.name, func(t *testing.T) {
			id := id(100 + n)
			s.dirty()
			digest := s.digest()
			on := func() {}
			if phase.hold {
				on = s.holdProxy()
			}
			p := s.apply(id, digest)
			until(t, phase.name, phase.reach(id))
			s.agent.kill()
			left := len(s.leftovers())
			on()
			s.startAgent()
			result := s.holdsTrue(id, p)
			t.Logf("%d sets were left; it says %s: %s", left, result.GetOutcome(), result.GetMessage())
			if result.GetOutcome() == offrampv1.OrderOutcome_ORDER_OUTCOME_INTERRUPTED && len(s.leftovers()) != left {
				t.Errorf("%d sets were left when it was killed, now %d", left, len(s.leftovers()))
			}
			// Asked again, it says the same and does nothing.
			again := s.apply(id, digest)
			if said := s.holdsTrue(id, again); said.GetOutcome() != result.GetOutcome() || said.GetMessage() != result.GetMessage() {
				t.Errorf("asked again it says %s: %s", said.GetOutcome(), said.GetMessage())
			}
			if p := s.people("cleanup", node, "--yes"); p.code() != 0 || len(s.leftovers()) > 0 {
				t.Errorf("a new order leaves %d sets:\n%s", len(s.leftovers()), p.said())
			}
		})
	}
}

// The person's program is killed, or stopped by Ctrl-C: the node goes on, and the same order asked again tells how it ended.
func TestKilledCaller(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	for n, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		s.dirty()
		digest := s.digest()
		on := s.holdProxy()
		p := s.apply(id(200+n), digest)
		until(t, "progress is shown", p.says("reading the node"))
		p.signal(signal)
		code := p.code()
		if signal == syscall.SIGINT && (code != 4 || !strings.Contains(p.said(), "--order "+id(200+n))) {
			t.Errorf("after Ctrl-C it ends with %d:\n%s", code, p.said())
		}
		on()
		s.done(id(200+n), s.apply(id(200+n), digest))
	}
}

// An order for one node does not reach another: the other's agent has taken nothing.
func TestAnotherNode(t *testing.T) {
	s := setUp(t)
	if s == nil {
		return
	}
	other := s.TempDir() + "/state"
	start(t, "another node's agent", nil, programs.Agent(), "run", "--node", "node-b", "--aggregator", s.at, "--insecure-plaintext",
		"--cleanup", "apply", "--state-dir", other, "--host-root", s.root)
	s.done(id(300), s.apply(id(300), s.digest()))
	for _, folder := range []string{"orders", "journal", "backups"} {
		entries, _ := os.ReadDir(other + "/" + folder)
		for _, entry := range entries {
			if entry.Name() != "lock" {
				t.Errorf("the other node has %s/%s", folder, entry.Name())
			}
		}
	}
}
