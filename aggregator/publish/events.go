package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"offramp.dev/offramp/internal/render"
)

const (
	// reporter is who Events say they are of. It is a qualified name, as the API server wants it.
	reporter = "offramp.dev/aggregator"
	// eventNamespace is where Events about what is in no namespace have to be.
	eventNamespace = metav1.NamespaceDefault
	// maxNote bounds the text of an Event, in bytes; the API server takes 1,024. maxReporter is its bound for an instance.
	maxNote     = 1000
	maxReporter = 128
	// maxNamePart keeps an Event's name, which begins with the node's, within 253 bytes.
	maxNamePart = 220
)

// event is the Event that tells an item. Its name is made of what it tells: the API server takes it once.
func (p *Publisher) event(news item, uid types.UID) *eventsv1.Event {
	kind := corev1.EventTypeNormal
	if news.warning {
		kind = corev1.EventTypeWarning
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(uid), news.reason, news.key}, "\x00")))
	name := strings.TrimRight(news.node[:min(len(news.node), maxNamePart)], "-.") + "." + hex.EncodeToString(sum[:8])
	note := render.Clean(news.note)
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: eventNamespace, Name: name},
		EventTime:  metav1.NewMicroTime(p.config.Now()), ReportingController: reporter,
		ReportingInstance: p.config.Identity[:min(len(p.config.Identity), maxReporter)],
		Action:            news.action, Reason: news.reason, Type: kind, Note: strings.ToValidUTF8(note[:min(len(note), maxNote)], ""),
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: news.node, UID: uid},
	}
}

// tell writes the oldest items of a queue, a few in one go; the rest waits for the next round. write makes a call, if this replica may.
func (p *Publisher) tell(ctx context.Context, from *queue, write func(context.Context, func(context.Context) error) error) {
	for range p.config.pace.events {
		news, any := from.take()
		if !any {
			return
		}
		uid, there := p.config.Cluster.NodeUID(news.node)
		if !there {
			p.config.Log.Debug("an event of a node without a Node object is not told", "node", news.node, "reason", news.reason)
			continue
		}
		err := write(ctx, func(ctx context.Context) error {
			_, err := p.config.Client.EventsV1().Events(eventNamespace).Create(ctx, p.event(news, uid), metav1.CreateOptions{})
			return err //nolint:wrapcheck // looked at below
		})
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			p.complaints.about("events", "write", nil)
		case refused(err):
			p.complaints.about("events", "write", fmt.Errorf("write an Event: %w", err))
		default:
			from.back(news)
			if !errors.Is(err, errNotHeld) {
				p.complaints.about("events", "write", fmt.Errorf("write an Event: %w", err))
			}
			return
		}
	}
}

// refused reports whether the API server would refuse the same again: by a missing right, by a policy, or because of what it is. Such an
// item must not keep others waiting.
func refused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// direct makes a call that needs no Lease.
func (p *Publisher) direct(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, p.config.pace.call)
	defer cancel()
	return call(limited)
}

// forgetOld drops news that was seen before a moment: of a replica that may not write it, for the one that may has told it.
func (p *Publisher) forgetOld(before time.Time) {
	if dropped := p.news.forget(before) + p.results.forget(time.Time{}); dropped > 0 {
		p.config.Log.Warn("there was more news than Events may be written: the nodes' own memories have all of it", "dropped", dropped)
	}
}
