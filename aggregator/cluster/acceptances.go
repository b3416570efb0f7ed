package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxAcceptances bounds the ConfigMap, which holds 1 MiB at most.
const maxAcceptances = 500

// Acceptances are the accepted findings, kept in one ConfigMap so that they outlive every aggregator and can be read, and
// reviewed, as any other object. Replicas agree by the API server's own conflict check.
type Acceptances struct {
	client          kubernetes.Interface
	namespace, name string
	log             *slog.Logger

	mu   sync.Mutex
	kept []*offrampv1.Acceptance
}

// NewAcceptances reads nothing yet.
func NewAcceptances(client kubernetes.Interface, namespace, name string, log *slog.Logger) *Acceptances {
	return &Acceptances{client: client, namespace: namespace, name: name, log: log}
}

// Run reads them again every interval until ctx ends, for other replicas write them too.
func (a *Acceptances) Run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := a.Refresh(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("accepted findings could not be read; those known stand", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Refresh reads them once. What was known stands when it fails.
func (a *Acceptances) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	object, err := a.client.CoreV1().ConfigMaps(a.namespace).Get(ctx, a.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a.keep(nil)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", a.namespace, a.name, err)
	}
	a.keep(a.decode(object))
	return nil
}

// callLimit bounds one call of the API.
const callLimit = 10 * time.Second

func (a *Acceptances) keep(all []*offrampv1.Acceptance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept = all
}

// List returns what is known, sorted by finding, then selector. It is shared: it must not be changed.
func (a *Acceptances) List() []*offrampv1.Acceptance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.kept
}

// decode takes what it understands: people may edit the object.
func (a *Acceptances) decode(object *corev1.ConfigMap) []*offrampv1.Acceptance {
	var all []*offrampv1.Acceptance
	for key, text := range object.Data {
		acceptance := &offrampv1.Acceptance{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), acceptance); err != nil || acceptance.GetUntil() == nil {
			a.log.Warn("an accepted finding is not understood and does not count", "configmap", a.namespace+"/"+a.name, "key", key, "error", err)
			continue
		}
		acceptance.Id = key
		all = append(all, acceptance)
	}
	slices.SortFunc(all, func(a, b *offrampv1.Acceptance) int {
		return strings.Compare(a.GetFindingId()+" "+a.GetSelector(), b.GetFindingId()+" "+b.GetSelector())
	})
	return all
}

// Put notes one. One finding and selector have one acceptance: a new word takes the place of the old one.
func (a *Acceptances) Put(ctx context.Context, acceptance *offrampv1.Acceptance) error {
	acceptance.Id = acceptanceID(acceptance)
	text, err := protojson.Marshal(acceptance)
	if err != nil {
		return fmt.Errorf("encode the acceptance of %s: %w", acceptance.GetFindingId(), err)
	}
	return a.change(ctx, func(data map[string]string) error {
		if _, known := data[acceptance.GetId()]; !known && len(data) >= maxAcceptances {
			return fmt.Errorf("there are %d acceptances already; withdraw some", len(data))
		}
		data[acceptance.GetId()] = string(text)
		return nil
	})
}

// acceptanceID is made from what is accepted, and where.
func acceptanceID(acceptance *offrampv1.Acceptance) string {
	sum := sha256.Sum256([]byte(acceptance.GetFindingId() + "\n" + acceptance.GetSelector()))
	return acceptance.GetFindingId() + "." + hex.EncodeToString(sum[:4])
}

// Delete takes one back. found is false when there is none of that id.
func (a *Acceptances) Delete(ctx context.Context, id string) (found bool, err error) {
	err = a.change(ctx, func(data map[string]string) error {
		_, found = data[id]
		delete(data, id)
		return nil
	})
	return found, err
}

// change edits the ConfigMap, makes it when it is missing, and tries again when somebody else was quicker.
func (a *Acceptances) change(ctx context.Context, edit func(map[string]string) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	maps := a.client.CoreV1().ConfigMaps(a.namespace)
	return retry.OnError(retry.DefaultRetry, collided, func() error {
		object, err := maps.Get(ctx, a.name, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.name}}
		} else if err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", a.namespace, a.name, err)
		}
		if object.Data == nil {
			object.Data = map[string]string{}
		}
		if err := edit(object.Data); err != nil {
			return err
		}
		if missing {
			object, err = maps.Create(ctx, object, metav1.CreateOptions{})
		} else {
			object, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		}
		if err != nil {
			return fmt.Errorf("write ConfigMap %s/%s: %w", a.namespace, a.name, err)
		}
		a.keep(a.decode(object))
		return nil
	})
}

func collided(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
