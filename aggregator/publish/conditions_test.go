package publish

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// Expected by hand, from what the conditions are to mean.
func TestConditions(t *testing.T) {
	const ready, blocked, unknown = v1.Verdict_VERDICT_READY, v1.Verdict_VERDICT_BLOCKED, v1.Verdict_VERDICT_UNKNOWN
	left := &v1.Leftovers{Ipsets: 17}
	for name, tt := range map[string]struct {
		sum    *v1.GetReadinessResponse
		at     arrived
		unread bool
		want   string
	}{
		"all ready, none there yet": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready}, at: arrived{elsewhere: 3},
			want: "Ready=True EveryNodeReady|Clean=False NotAtTarget|Complete=True EveryNodeHeard",
		},
		"all there": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready}, at: arrived{there: 3},
			want: "Ready=True EveryNodeReady|Clean=True Clean|Complete=True EveryNodeHeard",
		},
		"all there, one dirty": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready, WithLeftovers: 1, Leftovers: left}, at: arrived{there: 2, elsewhere: 1},
			want: "Ready=True EveryNodeReady|Clean=False Leftovers|Complete=True EveryNodeHeard",
		},
		"one blocked": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 2, Blocked: 1, Verdict: blocked}, at: arrived{there: 2, elsewhere: 1},
			want: "Ready=False Blocked|Clean=False NotAtTarget|Complete=True EveryNodeHeard",
		},
		"one silent": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 2, Unknown: 1, Silent: 1, Verdict: unknown}, at: arrived{there: 2, unknown: 1},
			want: "Ready=Unknown CouldNotTell|Clean=Unknown CouldNotTell|Complete=False NodesMissing",
		},
		"one that never reported, one blocked": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 1, Unknown: 1, Blocked: 1, NeverSeen: 1, Verdict: blocked}, at: arrived{there: 1, elsewhere: 1, unknown: 1},
			want: "Ready=False Blocked|Clean=False NotAtTarget|Complete=False NodesMissing",
		},
		"no nodes": {
			sum:  &v1.GetReadinessResponse{Verdict: unknown},
			want: "Ready=Unknown Incomplete|Clean=Unknown Incomplete|Complete=Unknown Incomplete",
		},
		"the Node objects cannot be read": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready}, at: arrived{there: 3}, unread: true,
			want: "Ready=Unknown Incomplete|Clean=Unknown Incomplete|Complete=Unknown Incomplete",
		},
		"nodes may be missing": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready, Incomplete: "too early"}, at: arrived{there: 3},
			want: "Ready=Unknown Incomplete|Clean=Unknown Incomplete|Complete=Unknown Incomplete",
		},
		"leftovers that could not be counted": {
			sum: &v1.GetReadinessResponse{Nodes: 3, Ready: 3, Verdict: ready, Leftovers: &v1.Leftovers{Undecided: true}}, at: arrived{there: 3},
			want: "Ready=True EveryNodeReady|Clean=Unknown CouldNotTell|Complete=True EveryNodeHeard",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.sum.Target = nftables
			var got []string
			for _, one := range conditions(tt.sum, tt.at, !tt.unread, 7) {
				got = append(got, fmt.Sprintf("%s=%s %s", one.Type, one.Status, one.Reason))
				if one.ObservedGeneration != 7 || one.Message == "" || strings.Contains(one.Message, "%!") {
					t.Errorf("%+v", one)
				}
			}
			if strings.Join(got, "|") != tt.want {
				t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), tt.want)
			}
		})
	}
}

func TestMessages(t *testing.T) {
	finding := func(id string, nodes, undecided uint64) *v1.FindingCount {
		return &v1.FindingCount{Id: id, Severity: v1.Severity_SEVERITY_BLOCKER, Nodes: nodes, Undecided: undecided}
	}
	sum := &v1.GetReadinessResponse{
		Target: nftables, Nodes: 10, Blocked: 3, Verdict: v1.Verdict_VERDICT_BLOCKED, WithLeftovers: 1, Leftovers: &v1.Leftovers{Ipsets: 17}, Silent: 1,
		SilentSamples: []string{"x"}, NeverSeen: 6, NeverSeenSamples: []string{"a", "b", "c", "d", "e", "f"},
		ClusterFindings: []*v1.Finding{{Id: "mode-not-pinned", Severity: v1.Severity_SEVERITY_BLOCKER}},
		Findings:        []*v1.FindingCount{finding("kernel-too-old", 3, 0), finding("unread", 2, 2), finding("c", 1, 0), finding("d", 1, 0), finding("e", 1, 0), finding("f", 1, 0)},
	}
	want := map[string]string{
		"Ready":    "3 of 10 nodes cannot go to nftables: mode-not-pinned (cluster), kernel-too-old (3), c (1), d (1), e (1), …",
		"Clean":    "1 of 10 nodes have something left: 17 ipsets",
		"Complete": "6 of 10 nodes never reported: a, b, c, d, e, …; 1 of 10 nodes are silent: x",
	}
	for _, one := range conditions(sum, arrived{}, true, 1) {
		if one.Message != want[one.Type] || one.Status != metav1.ConditionFalse {
			t.Errorf("%s: %q, want %q", one.Type, one.Message, want[one.Type])
		}
	}
}
