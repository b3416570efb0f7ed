package publish

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"offramp.dev/offramp/internal/readiness"
	"offramp.dev/offramp/internal/render"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// The conditions of a Fleet.
const (
	conditionReady    = "Ready"
	conditionClean    = "Clean"
	conditionComplete = "Complete"
)

// arrived counts the nodes by whether they are at the target, and nothing else is left: the verdict of verify.
type arrived struct{ there, elsewhere, unknown uint64 }

func (a *arrived) add(verdict offrampv1.Verdict) {
	switch verdict {
	case offrampv1.Verdict_VERDICT_READY:
		a.there++
	case offrampv1.Verdict_VERDICT_BLOCKED:
		a.elsewhere++
	default:
		a.unknown++
	}
}

// conditions are those of a fleet, without their times. generation is that of the spec they are about.
func conditions(sum *offrampv1.GetReadinessResponse, at arrived, nodesRead bool, generation int64) []metav1.Condition {
	all := []metav1.Condition{ready(sum, nodesRead), clean(sum, at, nodesRead), complete(sum, nodesRead)}
	for i := range all {
		all[i].ObservedGeneration = generation
	}
	return all
}

func condition(name string, status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: fmt.Sprintf(message, args...)}
}

// whole says why nodes may be missing from the sum; "" where none can be.
func whole(sum *offrampv1.GetReadinessResponse, nodesRead bool) string {
	switch {
	case sum.GetIncomplete() != "":
		return sum.GetIncomplete()
	case !nodesRead:
		return "the Node objects cannot be read"
	case sum.GetNodes() == 0:
		return "there is no node with a kube-proxy of Linux"
	default:
		return ""
	}
}

// ready is whether every node could go to the target, or is there.
func ready(sum *offrampv1.GetReadinessResponse, nodesRead bool) metav1.Condition {
	target, missing := render.Word(sum.GetTarget()), whole(sum, nodesRead)
	switch {
	case sum.GetVerdict() == offrampv1.Verdict_VERDICT_BLOCKED:
		return condition(conditionReady, metav1.ConditionFalse, "Blocked", "%d of %d nodes cannot go to %s%s", sum.GetBlocked(), sum.GetNodes(), target, blockers(sum))
	case missing != "":
		return condition(conditionReady, metav1.ConditionUnknown, "Incomplete", "%s", missing)
	case sum.GetVerdict() == offrampv1.Verdict_VERDICT_READY:
		return condition(conditionReady, metav1.ConditionTrue, "EveryNodeReady", "all %d nodes could go to %s, or are there", sum.GetNodes(), target)
	default:
		return condition(conditionReady, metav1.ConditionUnknown, "CouldNotTell", "of %d of %d nodes it could not be told", sum.GetUnknown(), sum.GetNodes())
	}
}

// blockers names what stands in the way, the first few.
func blockers(sum *offrampv1.GetReadinessResponse) string {
	var ids []string
	for _, finding := range sum.GetClusterFindings() {
		if finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER && !finding.GetUndecided() && finding.GetAccepted() == nil {
			ids = append(ids, finding.GetId()+" (cluster)")
		}
	}
	for _, finding := range sum.GetFindings() {
		if finding.GetSeverity() == offrampv1.Severity_SEVERITY_BLOCKER && finding.GetNodes() > finding.GetUndecided()+finding.GetAccepted() {
			ids = append(ids, fmt.Sprintf("%s (%d)", finding.GetId(), finding.GetNodes()))
		}
	}
	if len(ids) == 0 {
		return ""
	}
	const most = 5
	more := ""
	if len(ids) > most {
		ids, more = ids[:most], ", …"
	}
	return ": " + strings.Join(ids, ", ") + more
}

// clean is whether every node is at the target and nothing of another mode is left anywhere.
func clean(sum *offrampv1.GetReadinessResponse, at arrived, nodesRead bool) metav1.Condition {
	target, missing := render.Word(sum.GetTarget()), whole(sum, nodesRead)
	switch {
	case sum.GetWithLeftovers() > 0:
		return condition(conditionClean, metav1.ConditionFalse, "Leftovers", "%d of %d nodes have something left: %s",
			sum.GetWithLeftovers(), sum.GetNodes(), render.LeftoverWords(sum.GetLeftovers()))
	case at.elsewhere > 0:
		return condition(conditionClean, metav1.ConditionFalse, "NotAtTarget", "%d of %d nodes are not at %s", at.elsewhere, sum.GetNodes(), target)
	case missing != "":
		return condition(conditionClean, metav1.ConditionUnknown, "Incomplete", "%s", missing)
	case at.unknown > 0 || readiness.AnyLeft(sum.GetLeftovers()) || sum.GetLeftovers().GetUndecided():
		return condition(conditionClean, metav1.ConditionUnknown, "CouldNotTell", "of %d of %d nodes it could not be told", max(at.unknown, 1), sum.GetNodes())
	default:
		return condition(conditionClean, metav1.ConditionTrue, "Clean", "all %d nodes are at %s, and nothing of another mode is left", sum.GetNodes(), target)
	}
}

// complete is whether every node of the cluster is heard of.
func complete(sum *offrampv1.GetReadinessResponse, nodesRead bool) metav1.Condition {
	var missing []string
	if never := sum.GetNeverSeen(); never > 0 {
		missing = append(missing, fmt.Sprintf("%d of %d nodes never reported: %s", never, sum.GetNodes(), names(sum.GetNeverSeenSamples())))
	}
	if silent := sum.GetSilent(); silent > 0 {
		missing = append(missing, fmt.Sprintf("%d of %d nodes are silent: %s", silent, sum.GetNodes(), names(sum.GetSilentSamples())))
	}
	switch {
	case len(missing) > 0:
		return condition(conditionComplete, metav1.ConditionFalse, "NodesMissing", "%s", strings.Join(missing, "; "))
	case whole(sum, nodesRead) != "":
		return condition(conditionComplete, metav1.ConditionUnknown, "Incomplete", "%s", whole(sum, nodesRead))
	default:
		return condition(conditionComplete, metav1.ConditionTrue, "EveryNodeHeard", "all %d nodes report", sum.GetNodes())
	}
}

// names are the first few.
func names(samples []string) string {
	const most = 5
	if len(samples) > most {
		return strings.Join(samples[:most], ", ") + ", …"
	}
	return strings.Join(samples, ", ")
}
