package cluster_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"offramp.dev/offramp/aggregator/cluster"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// api answers lists and watches as an API server does: it is what the informers really speak to.
type api struct {
	t *testing.T

	mu    sync.Mutex
	lists map[string][]any
	fails map[string]int
	asked map[string]int // requests, by path
	// events go to the open watch of a path.
	watches map[string][]chan any
}

func newAPI(t *testing.T) (*api, kubernetes.Interface) {
	t.Helper()
	a := &api{t: t, lists: map[string][]any{}, fails: map[string]int{}, asked: map[string]int{}, watches: map[string][]chan any{}}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return a, client
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	if selector := r.URL.Query().Get("fieldSelector"); selector != "" {
		path += "?" + selector
	}
	a.mu.Lock()
	a.asked[r.URL.Path]++
	code, items := a.fails[r.URL.Path], a.lists[path]
	a.mu.Unlock()
	switch {
	case r.URL.Path == "/version":
		_, _ = w.Write([]byte(`{"major":"1","minor":"37","gitVersion":"v1.37.2"}`))
	case code != 0:
		answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Message: "not today", Reason: reason(code)})
	case r.URL.Query().Get("sendInitialEvents") != "":
		answer(w, http.StatusUnprocessableEntity, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 422, Reason: metav1.StatusReasonInvalid, Message: "sendInitialEvents: Forbidden"})
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r, path)
	default:
		kind := listKind(r.URL.Path)
		answer(w, http.StatusOK, map[string]any{"kind": kind[0], "apiVersion": kind[1], "metadata": map[string]string{"resourceVersion": "1"}, "items": append([]any{}, items...)})
	}
}

// listKind is kind and version of the list that a path answers with.
func listKind(path string) [2]string {
	return map[string][2]string{
		"nodes": {"NodeList", "v1"}, "services": {"ServiceList", "v1"}, "pods": {"PodList", "v1"}, "configmaps": {"ConfigMapList", "v1"},
		"events": {"EventList", "v1"}, "daemonsets": {"DaemonSetList", "apps/v1"}, "servicecidrs": {"ServiceCIDRList", "networking.k8s.io/v1"},
	}[path[strings.LastIndex(path, "/")+1:]]
}

func reason(code int) metav1.StatusReason {
	switch code {
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	case http.StatusInternalServerError:
		return metav1.StatusReasonInternalError
	default:
		return metav1.StatusReasonForbidden
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, path string) {
	events := make(chan any, 8)
	a.mu.Lock()
	a.watches[path] = append(a.watches[path], events)
	a.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	flusher, _ := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-events:
			if event == nil {
				return
			}
			_ = json.NewEncoder(w).Encode(event)
			flusher.Flush()
		}
	}
}

// tell sends an event to whoever watches a path, once somebody does.
func (a *api) tell(path, kind string, object any) {
	a.t.Helper()
	for range 500 {
		a.mu.Lock()
		open := a.watches[path]
		a.mu.Unlock()
		if len(open) > 0 {
			open[len(open)-1] <- map[string]any{"type": kind, "object": object}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("nobody watches %s", path)
}

// fail has a path answered with a status; 0 is none.
func (a *api) fail(path string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails[path] = code
}

// endWatch ends the newest watch of a path, once there is one.
func (a *api) endWatch(path string) {
	a.t.Helper()
	for range 500 {
		a.mu.Lock()
		open := a.watches[path]
		a.mu.Unlock()
		if len(open) > 0 {
			open[len(open)-1] <- nil
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("nobody watches %s", path)
}

// follow runs a Watcher until the test ends.
func follow(t *testing.T, client kubernetes.Interface, namespaces ...string) *cluster.Watcher {
	if len(namespaces) == 0 {
		namespaces = []string{"kube-system"}
	}
	t.Helper()
	watcher, err := cluster.New(cluster.Config{Client: client, Settle: 10 * time.Millisecond, Namespaces: namespaces})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- watcher.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return watcher
}

// await returns the facts once they are as wanted.
func await(t *testing.T, watcher *cluster.Watcher, wanted func(*offrampv1.ClusterFacts) bool) *offrampv1.ClusterFacts {
	t.Helper()
	changes, stop := watcher.Changes()
	defer stop()
	late := time.After(20 * time.Second)
	for {
		if facts := watcher.Facts(); facts != nil && wanted(facts) {
			return facts
		}
		select {
		case <-changes:
		case <-late:
			t.Fatalf("not as wanted: %v", watcher.Facts())
		}
	}
}

func allRead(facts *offrampv1.ClusterFacts) bool {
	for _, source := range facts.GetSources() {
		if source.GetState() == offrampv1.SectionState_SECTION_STATE_UNREADABLE && strings.Contains(source.GetError(), "not answered") {
			return false
		}
	}
	return true
}

func metaOf(kind string) metav1.TypeMeta { return metav1.TypeMeta{Kind: kind, APIVersion: "v1"} }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"}
}

func configMap(name string, data map[string]string) corev1.ConfigMap {
	return corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: meta("kube-system", name), Data: data}
}
