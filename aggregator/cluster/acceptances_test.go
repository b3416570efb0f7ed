package cluster_test

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/aggregator/cluster"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func word(finding, selector, reason string) *offrampv1.Acceptance {
	return &offrampv1.Acceptance{FindingId: finding, Selector: selector, Reason: reason, Author: "jo", Until: timestamppb.New(time.Unix(2_000_000_000, 0))}
}

func TestAcceptancesOutliveTheAggregator(t *testing.T) {
	client := fake.NewClientset()
	first := cluster.NewAcceptances(client, "offramp", "accepted", slog.New(slog.DiscardHandler))
	if err := first.Refresh(t.Context()); err != nil || len(first.List()) != 0 {
		t.Errorf("before the first: %v, %v", first.List(), err)
	}
	for _, one := range []*offrampv1.Acceptance{word("kernel-too-old", "pool=b", "x"), word("kernel-too-old", "", "y"), word("kernel-too-old", "pool=b", "z")} {
		if err := first.Put(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	second := cluster.NewAcceptances(client, "offramp", "accepted", slog.New(slog.DiscardHandler))
	if err := second.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept := second.List()
	if len(kept) != 2 || kept[0].GetReason() != "y" || kept[1].GetReason() != "z" || kept[1].GetAuthor() != "jo" {
		t.Fatalf("kept %v", kept)
	}
	if found, err := second.Delete(t.Context(), kept[0].GetId()); err != nil || !found || len(second.List()) != 1 {
		t.Errorf("after taking one back: %v, %v, %v", second.List(), found, err)
	}
	if found, err := second.Delete(t.Context(), kept[0].GetId()); found || err != nil {
		t.Errorf("twice: %v, %v", found, err)
	}
}

// The object may be edited by people: what is not understood does not count, and what is next to it does.
func TestGarbledAcceptances(t *testing.T) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "offramp", Name: "accepted"}, Data: map[string]string{
		"a": "no json", "b": `{"findingId":"x"}`, "c": `{"findingId":"y","until":"2030-01-01T00:00:00Z","future":1}`,
	}}
	acceptances := cluster.NewAcceptances(fake.NewClientset(object), "offramp", "accepted", slog.New(slog.DiscardHandler))
	if err := acceptances.Refresh(t.Context()); err != nil || len(acceptances.List()) != 1 || acceptances.List()[0].GetId() != "c" {
		t.Errorf("%v, %v", acceptances.List(), err)
	}
}

func TestEndpointNames(t *testing.T) {
	node := "node-a"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{"kubernetes.io/service-name": "web"}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.244.1.7"}, NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-1"}},
			{Addresses: []string{"192.0.2.99"}},
		},
	}
	names, err := cluster.EndpointNames(t.Context(), fake.NewClientset(slice), "default", "web")
	if err != nil || names["10.244.1.7"] != "pod default/web-1 on node-a" || names["192.0.2.99"] != "endpoint of default/web" {
		t.Errorf("%v, %v", names, err)
	}
}
