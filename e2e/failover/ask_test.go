package failover

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	target = offrampv1.Target_TARGET_NONE
	// late is how old an answer about a node may be that is not silent: it may have fallen out just now, its last look at itself is
	// as old as the pause between two and what one takes on a busy machine.
	late = silence + 2*time.Second + 5*time.Second
)

// counts are what the answers were.
type counts struct{ answers, incomplete, silent, failed int }

// watch asks a replica again and again until nothing more is to happen, and holds that no answer is wrong.
func (s *stage) watch(r *replica) (c counts) {
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		asked := time.Now()
		ready, err := r.client.GetReadiness(ctx, &offrampv1.GetReadinessRequest{Target: target})
		var list *offrampv1.ListNodesResponse
		if err == nil {
			list, err = r.client.ListNodes(ctx, &offrampv1.ListNodesRequest{Target: target})
		}
		cancel()
		if err != nil {
			// No answer is no wrong one.
			c.failed++
			s.pause(100 * time.Millisecond)
			continue
		}
		c.answers++
		for _, wrong := range append(s.wrongSummary(ready, &c), s.wrongList(list, asked)...) {
			s.Errorf("replica %s is wrong: %s", r.name, wrong)
		}
		s.pause(100 * time.Millisecond)
	}
	return c
}

// wrongSummary: who says nothing of missing nodes has to have counted all of them.
func (s *stage) wrongSummary(ready *offrampv1.GetReadinessResponse, c *counts) (wrong []string) {
	all := uint64(reporters + cleanups)
	if ready.GetIncomplete() != "" {
		c.incomplete++
	}
	if ready.GetSilent() > 0 {
		c.silent++
	}
	if ready.GetNodes() != all && ready.GetIncomplete() == "" && ready.GetNodes() != 0 {
		wrong = append(wrong, fmt.Sprintf("it counts %d nodes of %d and does not say that some may be missing", ready.GetNodes(), all))
	}
	if ready.GetVerdict() == offrampv1.Verdict_VERDICT_READY && ready.GetReady() != all {
		wrong = append(wrong, fmt.Sprintf("the fleet is ready with %d ready nodes of %d", ready.GetReady(), all))
	}
	if ready.GetReady()+ready.GetBlocked()+ready.GetUnknown() != ready.GetNodes() || ready.GetBlocked() > 0 {
		wrong = append(wrong, fmt.Sprintf("%d ready, %d blocked, %d unknown of %d", ready.GetReady(), ready.GetBlocked(), ready.GetUnknown(), ready.GetNodes()))
	}
	return wrong
}

// wrongList: a node that is neither silent nor unknown has what it had a moment ago.
func (s *stage) wrongList(list *offrampv1.ListNodesResponse, asked time.Time) (wrong []string) {
	shown := map[string]*offrampv1.NodeSummary{}
	for _, node := range list.GetNodes() {
		shown[node.GetNode()] = node
	}
	if len(shown) != reporters+cleanups && list.GetIncomplete() == "" && len(shown) > 0 {
		wrong = append(wrong, fmt.Sprintf("it lists %d nodes and does not say that some may be missing", len(shown)))
	}
	now := time.Now()
	for _, n := range s.nodes() {
		node := shown[n.name]
		phase := node.GetAssessment().GetPhase()
		if node == nil || phase == offrampv1.Phase_PHASE_SILENT || phase == offrampv1.Phase_PHASE_UNKNOWN {
			continue
		}
		if !n.truth.possible(node.GetInventory().GetIpsets(), asked.Add(-late), now) {
			wrong = append(wrong, fmt.Sprintf("%s had no %d sets within %s (last seen %s ago)", n.name, node.GetInventory().GetIpsets(), late, since(node.GetLastSeen(), now)))
		}
	}
	return wrong
}

func since(seen *timestamppb.Timestamp, now time.Time) time.Duration {
	return now.Sub(seen.AsTime()).Round(time.Millisecond)
}

// differs says how a replica's list differs from what the kernels have now, by the native tool; "" when in nothing.
func (s *stage) differs() string {
	for _, r := range s.replicas {
		if wrong := s.differsAt(r); wrong != "" {
			return "replica " + r.name + ": " + wrong
		}
	}
	return ""
}

func (s *stage) differsAt(r *replica) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	list, err := r.client.ListNodes(ctx, &offrampv1.ListNodesRequest{Target: target})
	if err != nil {
		return err.Error()
	}
	if len(list.GetNodes()) != reporters+cleanups || list.GetIncomplete() != "" {
		return fmt.Sprintf("%d nodes; incomplete: %q", len(list.GetNodes()), list.GetIncomplete())
	}
	for i, n := range s.nodes() {
		node := list.GetNodes()[i]
		sets, left := uint64(len(n.sets())), uint64(n.leftovers())
		if node.GetNode() != n.name || !node.GetConnected() || node.GetInventory().GetIpsets() != sets ||
			node.GetAssessment().GetLeftovers().GetIpsets() != left || node.GetAssessment().GetReady() != offrampv1.Verdict_VERDICT_READY {
			return fmt.Sprintf("%s has %d sets, %d of them left over: %v", n.name, sets, left, node)
		}
	}
	return ""
}
