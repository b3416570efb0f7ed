package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	fleetName = "cluster"
	// fieldManager is who wrote a field, as the API server keeps it.
	fieldManager = "offramp-aggregator"
)

func (p *Publisher) fleets() dynamic.ResourceInterface {
	return p.config.Objects.Resource(schema.GroupVersionResource{Group: "offramp.dev", Version: "v1alpha1", Resource: "fleets"})
}

// due reports whether it is time to ask for the Fleet again.
func (p *Publisher) due(now time.Time) bool {
	if !p.asked.IsZero() && now.Sub(p.asked) < p.config.pace.status {
		return false
	}
	p.asked = now
	return true
}

// follow reads the target, so that a replica that takes over has looked at the nodes for the right one.
func (p *Publisher) follow(ctx context.Context, v *view) {
	if !p.config.FleetObject || !p.due(v.now) {
		return
	}
	_ = p.direct(ctx, func(ctx context.Context) error {
		object, err := p.fleets().Get(ctx, fleetName, metav1.GetOptions{})
		if err == nil {
			p.target = targetOf(object)
		}
		return err //nolint:wrapcheck // whoever writes tells what does not work
	})
}

// object reads the Fleet, makes it where there is none, and writes its status where that is another one now.
func (p *Publisher) object(ctx context.Context, v *view) {
	if !p.due(v.now) {
		return
	}
	err := p.lease.do(ctx, func(ctx context.Context) error { return p.update(ctx, v) })
	if errors.Is(err, errNotHeld) || apierrors.IsConflict(err) {
		return
	}
	doing := ""
	if err != nil {
		doing, _, _ = strings.Cut(err.Error(), ":")
	}
	p.complaints.about("fleet object", doing, err)
}

func (p *Publisher) update(ctx context.Context, v *view) error {
	object, err := p.current(ctx)
	if err != nil {
		return err
	}
	if wanted := targetOf(object); wanted != v.target {
		// What was counted is about another target: the next round counts for this one.
		p.target, p.asked = wanted, time.Time{}
		return nil
	}
	var before struct {
		Status fleetStatus `json:"status"`
	}
	// A status that cannot be read is written anew.
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &before)
	sum := p.config.Fleet.Readiness(v.target, fleet.Filter{}, "")
	status := statusOf(sum, v.at, v.nodesRead, object.GetGeneration(), before.Status)
	if status.same(before.Status) {
		return nil
	}
	encoded, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("encode the status of the Fleet: %w", err)
	}
	object.Object["status"] = encoded
	if _, err := p.fleets().UpdateStatus(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("write the status of the Fleet: %w", err)
	}
	return nil
}

// current is the Fleet, made where there is none.
func (p *Publisher) current(ctx context.Context) (*unstructured.Unstructured, error) {
	object, err := p.fleets().Get(ctx, fleetName, metav1.GetOptions{})
	if err == nil {
		return object, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read the Fleet: %w", err)
	}
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "offramp.dev/v1alpha1", "kind": "Fleet", "metadata": map[string]any{"name": fleetName},
		"spec": map[string]any{},
	}}
	object, err = p.fleets().Create(ctx, made, metav1.CreateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("make the Fleet (is its CustomResourceDefinition there?): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the Fleet: %w", err)
	}
	return object, nil
}

// targetOf is where the fleet is going, by its spec: nftables, unless it says otherwise. The schema refuses other words.
func targetOf(object *unstructured.Unstructured) offrampv1.Target {
	word, _, _ := unstructured.NestedString(object.Object, "spec", "target")
	switch word {
	case "iptables":
		return offrampv1.Target_TARGET_IPTABLES
	case "none":
		return offrampv1.Target_TARGET_NONE
	default:
		return offrampv1.Target_TARGET_NFTABLES
	}
}
