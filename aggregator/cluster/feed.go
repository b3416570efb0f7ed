package cluster

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// feed follows one kind of object in one namespace.
type feed struct {
	kind     string
	informer cache.SharedIndexInformer

	mu       sync.Mutex
	synced   bool
	syncedAt time.Time
	failure  string
	missing  bool
	// denied: the API server said, last, that it may not be read. told: answered was true once.
	denied, told bool
	// away: the namespace does not exist, so that there is nothing to read, whatever the rights. Then nobody asks before restUntil.
	away      bool
	restUntil time.Time

	gone func() bool
	note func()
	same func(before, now any) bool
}

// source says what a feed lists.
type source struct {
	kind, resource, namespace string
	client                    rest.Interface
	object                    runtime.Object
	fields                    string
	// gone reports whether the namespace is known not to exist. Asked where reading it is forbidden. May be nil.
	gone func() bool
	// trim drops from an object, before it is kept, what nobody here reads.
	trim func(any) (any, error)
	// same reports whether nobody here can tell two versions of an object apart. May be nil: every version is news.
	same func(before, now any) bool
}

func newFeed(s source) *feed {
	tweak := func(options *metav1.ListOptions) { options.FieldSelector = s.fields }
	list := cache.NewFilteredListWatchFromClient(s.client, s.resource, s.namespace, tweak)
	if s.fields == "" {
		list = cache.NewListWatchFromClient(s.client, s.resource, s.namespace, fields.Everything())
	}
	f := &feed{kind: s.kind, gone: s.gone, same: s.same, note: func() {}}
	f.listen(list)
	informer := cache.NewSharedIndexInformer(list, s.object, 0, cache.Indexers{})
	f.informer = informer
	// Both fail only on an informer that runs already.
	_ = informer.SetTransform(s.trim)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.fail(err) })
	return f
}

// listen notes when a watch begins: only then it is sure that what was denied may be read again, for the informer tells of objects
// that changed alone. A list is no proof: it may be allowed without the watch, and what it brought gets old.
func (f *feed) listen(list *cache.ListWatch) {
	read, begin := list.ListWithContextFunc, list.WatchFuncWithContext
	list.ListWithContextFunc = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		f.rest(ctx)
		return read(ctx, options)
	}
	list.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		f.rest(ctx)
		begun, err := begin(ctx, options)
		if err == nil {
			f.allow()
		}
		return begun, err
	}
}

// awayPause is how long a namespace that does not exist is left alone: each look for it is a refused request in somebody's audit
// log, and an informer by itself looks every half minute.
const awayPause = 5 * time.Minute

// rest waits until it is time to ask again, or ctx ends.
func (f *feed) rest(ctx context.Context) {
	f.mu.Lock()
	until := f.restUntil
	f.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	<-ctx.Done()
}

func (f *feed) allow() {
	f.mu.Lock()
	was := f.denied
	if was {
		f.denied, f.failure = false, ""
	}
	f.mu.Unlock()
	if was {
		f.note()
	}
}

// prepare asks to be told of every change.
func (f *feed) prepare(note func()) error {
	f.note = note
	_, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.heal(); note() },
		UpdateFunc: func(before, now any) {
			if f.heal() || f.same == nil || !f.same(before, now) {
				note()
			}
		},
		DeleteFunc: func(any) { f.heal(); note() },
	})
	return err //nolint:wrapcheck // the caller says of which kind
}

func (f *feed) markSynced() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced, f.syncedAt, f.missing, f.away = true, time.Now(), false, false
	if !f.denied {
		f.failure = ""
	}
}

// heal forgets a failure, and reports whether there was one to forget: something came through again.
func (f *feed) heal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := f.missing || f.away || (f.failure != "" && !f.denied)
	f.missing, f.away = false, false
	if !f.denied {
		f.failure = ""
	}
	return failed
}

func (f *feed) fail(err error) {
	// A role in a namespace cannot be given before the namespace is there.
	away := apierrors.IsForbidden(err) && f.gone != nil && f.gone()
	if f.takeFailure(err, away) {
		f.note()
	}
}

// takeFailure reports whether the failure is news. Where a kind does not exist, an informer fails twice a minute for ever, and all
// facts of the cluster would be made anew each time.
func (f *feed) takeFailure(err error, away bool) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A watch that ended because it was old is no failure.
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return false
	}
	failure, missing := err.Error(), apierrors.IsNotFound(err)
	denied := !away && (f.denied || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err))
	news = failure != f.failure || missing != f.missing || away != f.away || denied != f.denied
	f.failure, f.missing, f.away, f.denied = failure, missing, away, denied
	if away {
		f.restUntil = time.Now().Add(awayPause)
	}
	return news
}

// answered reports whether it was ever read, or known not to be readable.
func (f *feed) answered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = f.told || f.synced || f.missing || f.away || f.denied
	return f.told
}

// items are the objects at hand, sorted by namespace and name.
func (f *feed) items() []metav1.Object {
	var all []metav1.Object
	for _, item := range f.informer.GetStore().List() {
		if object, err := meta.Accessor(item); err == nil {
			all = append(all, object)
		}
	}
	slices.SortFunc(all, func(a, b metav1.Object) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return all
}

// state is how reading this kind went; nil where there is nothing to read.
func (f *feed) state() *offrampv1.ClusterSource {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil
	}
	source := &offrampv1.ClusterSource{Kind: f.kind}
	switch {
	case f.missing:
		source.State = offrampv1.SectionState_SECTION_STATE_ABSENT
	case f.synced && !f.denied:
		source.State, source.SyncedAt = offrampv1.SectionState_SECTION_STATE_PRESENT, timestamppb.New(f.syncedAt)
	default:
		source.State = offrampv1.SectionState_SECTION_STATE_UNREADABLE
		source.Error = f.failure
		if source.GetError() == "" {
			source.Error = "not answered yet"
		}
	}
	return source
}
