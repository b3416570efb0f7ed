package fleet

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const day = 24 * time.Hour

// A node whose clock is a day off, in either direction: its skew is told, it is heard of and falls silent by the
// aggregator's clock, and the others stay right.
func TestClockADayOff(t *testing.T) {
	s := setUp(t, soon)
	if s == nil {
		return
	}
	for name, off := range map[string]time.Duration{"ahead": day, "behind": -day} {
		t.Run(name, func(t *testing.T) {
			stream := s.stream(t)
			send(t, stream, hello("off", time.Now().Add(off)), report())
			var last time.Time
			for range 4 {
				time.Sleep(heartbeat)
				last = time.Now()
				send(t, stream, beat(last.Add(off)))
				s.shows(t, "off", off)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			_, wrong := s.until(4*heartbeat, func() string { return s.notSilent("off") })
			if after := time.Since(last); wrong != "" || after < 3*heartbeat {
				t.Errorf("%s after its last word the node is: %s", after, wrong)
			}
			s.othersStand(t, "a clock was a day off")
		})
	}
	if took, wrong := s.untilRight(8 * time.Second); wrong != "" {
		t.Errorf("%s later: %s", took, wrong)
	}
	s.tearDown()
}

func send(t *testing.T, stream agentStream, messages ...*offrampv1.ConnectRequest) {
	t.Helper()
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			_, err = stream.Recv()
			t.Fatal(err)
		}
	}
}

// shows holds that a node is heard of and its skew is told.
func (s *stage) shows(t *testing.T, name string, off time.Duration) {
	t.Helper()
	shown, err := s.view()
	if err != nil {
		t.Fatal(err)
	}
	node := shown[name]
	if !node.GetConnected() || node.GetAssessment().GetPhase() == offrampv1.Phase_PHASE_SILENT {
		t.Errorf("the node is %s, connected: %t", node.GetAssessment().GetPhase(), node.GetConnected())
	}
	if skew := node.GetClockSkew().AsDuration(); (skew - off).Abs() > 5*time.Second {
		t.Errorf("its clock is said to be %s off, it is %s", skew, off)
	}
	if age := time.Since(node.GetLastSeen().AsTime()).Abs(); age > 3*heartbeat {
		t.Errorf("it is said to have been heard of %s ago", age)
	}
}

func (s *stage) notSilent(name string) string {
	s.Helper()
	shown, err := s.view()
	if err != nil {
		return err.Error()
	}
	if phase := shown[name].GetAssessment().GetPhase(); phase != offrampv1.Phase_PHASE_SILENT {
		return phase.String()
	}
	return ""
}

// Somebody who says another node's name takes its place, for as long as there is no identity to check: the real agent
// is told so, does not fight, and what it said stays. No other node is touched, and a restart of the agent wins.
func TestTakenName(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	thief := s.stream(t)
	send(t, thief, hello("node-a", time.Now()), report())
	took, wrong := s.until(twoHeartbeats, func() string {
		if len(s.agents["node-a"].log.lines("no stream to the aggregator", codes.Aborted.String())) == 0 {
			return "the real agent was not told that it was replaced"
		}
		return s.wrongWith("node-b", "node-c")
	})
	if wrong != "" {
		t.Errorf("%s after the theft: %s", took, wrong)
	}
	if shown, err := s.view(); err != nil || shown["node-a"].GetAgentVersion() != liar || shown["node-a"].GetInventory().GetIpsets() != s.sets() {
		t.Errorf("node-a is shown as %v (%v)", shown["node-a"], err)
	}
	s.agents["node-a"].kill(t)
	s.change()
	s.startAgent("node-a")
	s.rightAgain("the agent of the stolen name was started again")
	if _, err := receive(thief); status.Code(err) != codes.Aborted {
		t.Errorf("the thief's stream ended with %v, want Aborted", err)
	}
	s.tearDown()
}

// receive returns the end of a stream, or its last message when none comes any more.
func receive(stream agentStream) (last *offrampv1.ConnectResponse, err error) {
	for err == nil {
		var message *offrampv1.ConnectResponse
		if message, err = stream.Recv(); err == nil {
			last = message
		}
	}
	return last, err
}
