package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/leaktest"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

// lines counts the lines of the log with a text.
func lines(w *world, text string) int { return strings.Count(w.log.String(), text) }

func (w *world) events() (all []eventsv1.Event) {
	w.t.Helper()
	list, err := w.client.EventsV1().Events("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func onlyEvents(c *Config) { c.FleetObject, c.NodeLabels = false, false }

func switched(at time.Time) fleet.Look {
	return look("a", at, judged(v1.Phase_PHASE_ON_IPVS, nil), entry(at, "mode", "ipvs to nftables", 0))
}

// Two replicas see the same switch. Both tell it: the second has taken over since, and does not know what the first has told.
func TestNewsIsToldOnce(t *testing.T) {
	w := newWorld(t)
	one, two := w.leading("one", onlyEvents), w.leading("two", onlyEvents)
	one.round()
	two.round()
	if got := w.events(); len(got) != 0 {
		t.Fatalf("news from the start: %v", got)
	}
	w.see(switched(noon().Add(time.Second)))
	w.advance(5 * time.Second)
	one.round()
	w.advance(2 * time.Second)
	two.round()
	got := w.events()
	if len(got) != 1 || w.writes()["create events"] != 2 {
		t.Fatalf("%d events by %v", len(got), w.writes())
	}
	event := got[0]
	if event.Reason != "ProxyModeSwitched" || event.Type != "Normal" || event.Note != "kube-proxy's mode: ipvs to nftables" || event.Action == "" ||
		event.Regarding.Kind != "Node" || event.Regarding.Name != "a" || event.Regarding.UID != "uid-of-a" || event.Regarding.APIVersion != "v1" ||
		event.ReportingController != "offramp.dev/aggregator" || event.ReportingInstance != "one" || !event.EventTime.Time.Equal(noon().Add(5*time.Second)) {
		t.Errorf("event: %+v", event)
	}
	if lines(w, "does not work") != 0 {
		t.Errorf("log: %s", w.log)
	}
}

// A replica that may not write keeps what it saw for a while, in case the one that may is gone.
func TestNewsOfAFollower(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		want  int
	}{
		"it takes over at once":    {20 * time.Second, 1},
		"it takes over much later": {2 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.publisher("one", onlyEvents)
			p.round()
			w.see(switched(noon().Add(time.Second)))
			p.round()
			w.advance(tt.after)
			p.round()
			if len(w.writes()) != 0 {
				t.Fatalf("it writes without the Lease: %v", w.writes())
			}
			p.lease.lock.set(w.clock())
			p.lease.begin(t.Context())
			p.round()
			if got := len(w.events()); got != tt.want {
				t.Errorf("%d events, want %d", got, tt.want)
			}
		})
	}
}

func TestAnEventThatIsNotTaken(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "a", nil)
	for name, tt := range map[string]struct {
		err  error
		left int
	}{
		"forbidden":      {apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil), 0},
		"invalid":        {invalid, 0},
		"a policy":       {apierrors.NewBadRequest("denied by a policy"), 0},
		"no token":       {apierrors.NewUnauthorized("expired"), 1},
		"no API server":  {errors.New("connection refused"), 1},
		"too many there": {apierrors.NewTooManyRequests("later", 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.leading("one", onlyEvents)
			w.client.PrependReactor("create", "events", func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
			p.round()
			w.see(switched(noon().Add(time.Second)))
			p.round()
			p.round()
			if len(p.news.items) != tt.left || lines(w, "does not work") != 1 {
				t.Errorf("%d are left, want %d; log: %s", len(p.news.items), tt.left, w.log)
			}
		})
	}
}

// What does not work is told when it begins and ends, whatever else its text names: a port of this host, a node.
func TestComplaints(t *testing.T) {
	w := newWorld(t)
	c := w.publisher("one", nil).complaints
	for port := range 3 {
		c.about("events", "write", fmt.Errorf("read tcp 10.0.0.5:%d: connection reset", port))
	}
	if lines(w, "does not work") != 1 {
		t.Errorf("not told once: %s", w.log)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil)
	c.about("events", "write", forbidden)
	c.about("events", "read", forbidden)
	c.about("labels", "write", errors.New("connection refused"))
	c.about("events", "write", nil)
	c.about("events", "read", nil)
	if lines(w, "does not work") != 4 || lines(w, "works again") != 1 {
		t.Errorf("log: %s", w.log)
	}
}

// That an order was refused is known to the replica alone that passed it on, so that it tells it without the Lease.
func TestResultsAreToldWithoutTheLease(t *testing.T) {
	w := newWorld(t)
	p := w.publisher("one", nil)
	p.Result("a", &v1.OrderResult{Id: "x", Kind: v1.OrderKind_ORDER_KIND_APPLY, Outcome: v1.OrderOutcome_ORDER_OUTCOME_REFUSED, Message: "kube-proxy is not in sync"})
	p.Result("gone", &v1.OrderResult{Id: "y", Kind: v1.OrderKind_ORDER_KIND_APPLY, Outcome: v1.OrderOutcome_ORDER_OUTCOME_REFUSED})
	p.round()
	got := w.events()
	if len(got) != 1 || got[0].Reason != "CleanupRefused" || got[0].Type != "Warning" || got[0].Note != "kube-proxy is not in sync" || len(w.writes()) != 1 {
		t.Errorf("events %v, writes %v", got, w.writes())
	}
}

func TestEvent(t *testing.T) {
	w := newWorld(t)
	p := w.publisher("one", nil)
	long := strings.Repeat("a", 219) + "-" + strings.Repeat("b", 33)
	event := p.event(item{node: long, reason: "R", note: strings.Repeat("é", 900) + "\x1b[31m", key: "k"}, "uid")
	if len(event.Name) > 253 || strings.Contains(event.Name, "-.") || !strings.HasPrefix(event.Name, strings.Repeat("a", 219)+".") || len(event.Note) > 1024 ||
		strings.ContainsRune(event.Note, 0x1b) || event.Namespace != "default" {
		t.Errorf("event: %q %q (%d bytes)", event.Name, event.Note, len(event.Note))
	}
	seen := map[string]bool{}
	for _, other := range []item{{node: "a", reason: "R", key: "k"}, {node: "a", reason: "R", key: "l"}, {node: "a", reason: "S", key: "k"}, {node: "b", reason: "R", key: "k"}} {
		for _, uid := range []string{"uid", "another"} {
			seen[p.event(other, types.UID(uid)).Name] = true
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d names for 8 things", len(seen))
	}
}

func (w *world) fleetObject() map[string]any {
	w.t.Helper()
	object, err := w.publisher("reader", nil).fleets().Get(w.t.Context(), "cluster", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return object.Object
}

func (w *world) conditions() map[string]string {
	w.t.Helper()
	all, _, _ := unstructured.NestedSlice(w.fleetObject(), "status", "conditions")
	told := map[string]string{}
	for _, one := range all {
		condition, _ := one.(map[string]any)
		told[fmt.Sprint(condition["type"])] = fmt.Sprint(condition["status"], " ", condition["lastTransitionTime"])
	}
	return told
}

func onlyFleet(c *Config) { c.Events, c.NodeLabels = false, false }

// The object is made once; its status is written when something is different, at most every ten seconds; a condition that stays as it
// is keeps its time.
func TestTheFleetObject(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", onlyFleet)
	for range 3 {
		p.round()
		w.advance(20 * time.Second)
	}
	if got := w.writes(); got["create fleets"] != 1 || got["update fleets"] != 1 {
		t.Fatalf("unchanged, and written: %v", got)
	}
	before := w.conditions()
	w.sum = &v1.GetReadinessResponse{Target: nftables, Nodes: 2, Ready: 1, Blocked: 1, Verdict: v1.Verdict_VERDICT_BLOCKED}
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)))
	for range 5 {
		p.round()
		w.advance(time.Second)
	}
	after := w.conditions()
	if got := w.writes(); got["update fleets"] != 2 || !strings.HasPrefix(before["Ready"], "True") || !strings.HasPrefix(after["Ready"], "False") {
		t.Errorf("writes %v, Ready %q and then %q", got, before["Ready"], after["Ready"])
	}
	if after["Complete"] != before["Complete"] || after["Ready"][len("False "):] == before["Ready"][len("True "):] {
		t.Errorf("times: %v and then %v", before, after)
	}
	w.sum = &v1.GetReadinessResponse{Target: nftables, Nodes: 3, Ready: 2, Blocked: 1, Verdict: v1.Verdict_VERDICT_BLOCKED}
	p.round()
	if got := w.writes()["update fleets"]; got != 2 {
		t.Errorf("written twice within ten seconds: %d", got)
	}
	w.advance(10 * time.Second)
	p.round()
	if total, _, _ := unstructured.NestedInt64(w.fleetObject(), "status", "nodes", "total"); total != 3 {
		t.Errorf("the total is %d", total)
	}
}

// The target that somebody wrote into the spec is the one that is judged, by whoever may write and by whoever may later.
func TestTheTargetOfTheSpec(t *testing.T) {
	w := newWorld(t)
	p, other := w.leading("one", onlyFleet), w.publisher("two", onlyFleet)
	p.round()
	object, err := p.fleets().Get(t.Context(), "cluster", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(object.Object, "none", "spec", "target"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.fleets().Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.sum = &v1.GetReadinessResponse{Target: v1.Target_TARGET_NONE, Nodes: 2, Ready: 2, Verdict: v1.Verdict_VERDICT_READY}
	w.advance(10 * time.Second)
	p.round()
	p.round()
	other.round()
	target, _, _ := unstructured.NestedString(w.fleetObject(), "status", "target")
	if w.asked != v1.Target_TARGET_NONE || target != "none" || other.target != v1.Target_TARGET_NONE {
		t.Errorf("asked for %v, written %q, the other's %v", w.asked, target, other.target)
	}
}

// Without the definition all else goes on, and that is said once.
func TestWithoutTheDefinition(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", nil)
	w.objects.PrependReactor("*", "fleets", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	for range 3 {
		p.round()
		w.advance(time.Minute)
	}
	if lines(w, "CustomResourceDefinition") != 1 || w.writes()["patch nodes"] != 6 {
		t.Errorf("writes %v, log %s", w.writes(), w.log)
	}
}

// Each right to the Fleet that is missing is told, one after the other.
func TestEachMissingRightIsTold(t *testing.T) {
	w := newWorld(t)
	p := w.leading("one", onlyFleet)
	for _, verb := range []string{"create", "get"} {
		w.objects.PrependReactor(verb, "fleets", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "fleets"}, "cluster", nil)
		})
		for range 2 {
			p.round()
			w.advance(time.Minute)
		}
	}
	if lines(w, "make the Fleet") != 1 || lines(w, "read the Fleet") != 1 {
		t.Errorf("log %s", w.log)
	}
}

// A replica that has just started knows of some nodes only: it does not stand for the Lease, whatever it sees, until it has heard of
// every node or has listened for long enough.
func TestColdReplica(t *testing.T) {
	late := fleet.Look{Summary: &v1.NodeSummary{Node: "b", NeverSeen: true, Assessment: &v1.Assessment{Phase: v1.Phase_PHASE_UNKNOWN}}}
	windows := fleet.Look{Summary: &v1.NodeSummary{Node: "w", NeverSeen: true, Assessment: &v1.Assessment{Phase: v1.Phase_PHASE_NOT_APPLICABLE}}}
	a := look("a", noon(), judged(v1.Phase_PHASE_ON_IPVS, nil))
	unread := []*v1.ClusterSource{{Kind: "nodes", State: v1.SectionState_SECTION_STATE_UNREADABLE}}
	for name, tt := range map[string]struct {
		looks []fleet.Look
		facts func(*v1.ClusterFacts) *v1.ClusterFacts
		after time.Duration
		want  bool
	}{
		"one of two":                    {looks: []fleet.Look{a, late}, want: false},
		"one of two, after a while":     {looks: []fleet.Look{a, late}, after: 3 * time.Minute, want: true},
		"all":                           {looks: []fleet.Look{a, windows}, want: true},
		"none":                          {want: false},
		"none, after a while":           {after: 3 * time.Minute, want: true},
		"the objects cannot be read":    {looks: []fleet.Look{a}, facts: func(*v1.ClusterFacts) *v1.ClusterFacts { return &v1.ClusterFacts{Sources: unread} }, want: false},
		"the API has not answered yet ": {looks: []fleet.Look{a}, facts: func(*v1.ClusterFacts) *v1.ClusterFacts { return nil }, after: time.Hour, want: false},
	} {
		w := newWorld(t)
		w.see(tt.looks...)
		if tt.facts != nil {
			w.facts = tt.facts(w.facts)
		}
		p := w.publisher("one", nil)
		w.advance(tt.after)
		if got := p.look().warm; got != tt.want {
			t.Errorf("%s: %t, want %t", name, got, tt.want)
		}
	}
}

// fast is an election in which nobody waits for long. The record of a Lease counts in seconds.
func fast(c *Config) {
	c.Now, c.pace = time.Now, defaultPace()
	c.pace.round, c.pace.lease, c.pace.renew, c.pace.retry, c.pace.call = 20*time.Millisecond, 2*time.Second, time.Second, 100*time.Millisecond, 500*time.Millisecond
}

func (w *world) run(p *Publisher) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var stopped bool
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
	w.t.Cleanup(stop)
	return stop
}

func eventually(t *testing.T, what string, happens func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !happens(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func (w *world) holder() string {
	w.t.Helper()
	lease, err := w.client.CoordinationV1().Leases("offramp").Get(context.Background(), "offramp-aggregator", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// One of two writes. When it stops it gives the Lease back, and the other writes at once; neither process ends for it.
func TestHandingOver(t *testing.T) {
	leaktest.Check(t)
	w := newWorld(t)
	one, two := w.publisher("one", fast), w.publisher("two", fast)
	stopOne := w.run(one)
	eventually(t, "the first holds the Lease", func() bool { return w.holder() == "one" && one.lease.held() != nil })
	stopTwo := w.run(two)
	time.Sleep(300 * time.Millisecond)
	if two.lease.held() != nil {
		t.Error("both write")
	}
	began := time.Now()
	stopOne()
	eventually(t, "the second holds the Lease", func() bool { return two.lease.held() != nil })
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("handing over took %s: the Lease was not given back", took)
	}
	if one.lease.held() != nil {
		t.Error("the first writes after its end")
	}
	stopTwo()
}

// The API server does not take renewals any more: before anybody else can hold the Lease, nothing is written. Later it goes on.
func TestALostLease(t *testing.T) {
	leaktest.Check(t)
	w := newWorld(t)
	p := w.publisher("one", fast)
	refused := false
	w.client.PrependReactor("update", "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return refused, nil, errors.New("no")
	})
	stop := w.run(p)
	eventually(t, "it holds the Lease", func() bool { return p.lease.held() != nil })
	w.mu.Lock()
	refused = true
	w.mu.Unlock()
	began := time.Now()
	eventually(t, "it writes no more", func() bool { return p.lease.held() == nil })
	if took := time.Since(began); took > 1500*time.Millisecond {
		t.Errorf("it wrote for %s more, and the Lease is good for 2s", took)
	}
	if err := p.lease.do(t.Context(), func(context.Context) error { t.Error("written"); return nil }); !errors.Is(err, errNotHeld) {
		t.Errorf("a write: %v", err)
	}
	eventually(t, "the elector has noticed", func() bool { return lines(w, "no longer writes") == 1 })
	w.mu.Lock()
	refused = false
	w.mu.Unlock()
	eventually(t, "it goes on", func() bool { return p.lease.held() != nil })
	stop()
	if w.holder() != "" {
		t.Errorf("%q holds the Lease", w.holder())
	}
}

// Without the Lease, or the right to it, nothing is ever written: that must not go unsaid. Who lost a race has nothing to complain of.
func TestAnElectionThatDoesNotWork(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, tt := range map[string]struct {
		verb string
		err  error
		want int
	}{
		"it was deleted":      {"create", apierrors.NewForbidden(leases, "", nil), 1},
		"no right to read":    {"get", apierrors.NewForbidden(leases, "offramp-aggregator", nil), 1},
		"no right to write":   {"update", apierrors.NewForbidden(leases, "offramp-aggregator", nil), 1},
		"another was quicker": {"update", apierrors.NewConflict(leases, "offramp-aggregator", nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var tries atomic.Int32
			w.client.PrependReactor(tt.verb, "leases", func(k8stesting.Action) (bool, runtime.Object, error) {
				tries.Add(1)
				return true, nil, tt.err
			})
			if tt.verb == "create" {
				if err := w.client.CoordinationV1().Leases("offramp").Delete(t.Context(), "offramp-aggregator", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			stop := w.run(w.publisher("one", fast))
			eventually(t, "three tries", func() bool { return tries.Load() >= 3 })
			stop()
			if lines(w, "does not work") != tt.want || strings.Contains(w.log.String(), "works again") {
				t.Errorf("log: %s", w.log)
			}
		})
	}
}

// It goes by its own clock, and not by the elector, which notices late where the API server hangs.
func TestARenewalThatHangs(t *testing.T) {
	w := newWorld(t)
	p := w.publisher("one", nil)
	p.lease.lock.set(w.clock())
	p.lease.begin(t.Context())
	w.advance(9 * time.Second)
	if p.lease.held() == nil {
		t.Error("it gave up early")
	}
	w.advance(time.Second)
	if p.lease.held() != nil {
		t.Error("it writes ten seconds after the last renewal")
	}
}

// A write that is under way when the term ends is cut.
func TestAWriteEndsWithTheTerm(t *testing.T) {
	w := newWorld(t)
	p := w.publisher("one", nil)
	term, end := context.WithCancel(t.Context())
	p.lease.lock.set(w.clock())
	p.lease.begin(term)
	err := p.lease.do(t.Context(), func(ctx context.Context) error {
		end()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the write ended with %v", err)
	}
}

func TestNewWantsWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	for _, change := range []func(*Config){
		func(c *Config) { c.Client = nil }, func(c *Config) { c.Objects = nil }, func(c *Config) { c.Identity = "" }, func(c *Config) { c.WarmUp = 0 },
	} {
		config := w.publisher("one", nil).config
		change(&config)
		if _, err := New(config); err == nil {
			t.Error("no error")
		}
	}
	if got := slices.Sorted(maps.Keys(w.writes())); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}
