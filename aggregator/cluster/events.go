package cluster

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// events are kube-proxy's warnings about its mode, the newest of each node and reason, sorted by node, then reason.
func events(objects []metav1.Object) []*offrampv1.KubeProxyEvent {
	type key struct{ node, reason string }
	newest := map[key]*offrampv1.KubeProxyEvent{}
	for _, object := range objects {
		event, ok := object.(*corev1.Event)
		if !ok || !slices.Contains(eventReasons(), event.Reason) {
			continue
		}
		at := eventTime(event)
		facts := &offrampv1.KubeProxyEvent{
			Node: event.InvolvedObject.Name, Reason: event.Reason, Message: event.Message[:min(len(event.Message), maxMessage)], At: timestamppb.New(at),
		}
		if before := newest[key{facts.GetNode(), facts.GetReason()}]; before == nil || before.GetAt().AsTime().Before(at) {
			newest[key{facts.GetNode(), facts.GetReason()}] = facts
		}
	}
	all := make([]*offrampv1.KubeProxyEvent, 0, len(newest))
	for _, event := range newest {
		all = append(all, event)
	}
	slices.SortFunc(all, func(a, b *offrampv1.KubeProxyEvent) int {
		return cmp.Or(cmp.Compare(a.GetNode(), b.GetNode()), cmp.Compare(a.GetReason(), b.GetReason()))
	})
	return all
}

// maxMessage bounds the text of an event, in bytes; the API server's own limit is the same.
const maxMessage = 1024

func eventTime(event *corev1.Event) time.Time {
	for _, at := range []time.Time{event.EventTime.Time, event.LastTimestamp.Time, event.FirstTimestamp.Time} {
		if !at.IsZero() {
			return at
		}
	}
	return event.CreationTimestamp.Time
}
