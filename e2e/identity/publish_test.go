package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/clustertest"
	"offramp.dev/offramp/e2e/cluster/kube"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	definition = "../../deploy/base/crd.yaml"
	labelling  = "../../deploy/components/node-labels/rbac.yaml"
	fleetPath  = "/apis/offramp.dev/v1alpha1/fleets"
	writes     = "this replica writes to Kubernetes from now on"
)

// fleet is the object of the whole fleet.
type fleet struct {
	Spec   struct{ Target string }
	Status struct {
		ObservedGeneration int64
		Nodes              struct{ Total, Ready, NeverSeen, WithLeftovers int }
		Conditions         []struct{ Type, Status, Reason, Message string }
	}
	Metadata struct{ Generation int64 }
}

func (s *stage) fleet() (f fleet) {
	s.Helper()
	// It may not be there yet.
	_ = s.cluster.API.Do(s.Context(), "GET", fleetPath+"/cluster", nil, &f)
	return f
}

func (f fleet) condition(name string) (status, reason string) {
	for _, one := range f.Status.Conditions {
		if one.Type == name {
			return one.Status, one.Reason
		}
	}
	return "", ""
}

// condition waits until a condition is so.
func (s *stage) condition(limit time.Duration, name, want, why string) {
	s.Helper()
	eventually(s.T, limit, fmt.Sprintf("%s is %s (%s); it is %+v", name, want, why, s.fleet()), func() bool {
		status, reason := s.fleet().condition(name)
		return status == want && reason == why
	})
}

// news counts Events of Offramp's by reason, each with its node and text.
func (s *stage) news() map[string][]string {
	s.Helper()
	var list struct {
		Items []struct {
			Reason, Note, ReportingController string
			Regarding                         struct{ Kind, Name, UID string }
		}
	}
	if err := s.cluster.API.Do(s.Context(), "GET", "/apis/events.k8s.io/v1/namespaces/default/events", nil, &list); err != nil {
		s.Fatal(err)
	}
	told := map[string][]string{}
	for _, event := range list.Items {
		if event.ReportingController == "offramp.dev/aggregator" && event.Regarding.Kind == "Node" && event.Regarding.UID != "" {
			told[event.Reason] = append(told[event.Reason], event.Regarding.Name+": "+event.Note)
		}
	}
	return told
}

func (s *stage) labels(node string) map[string]string {
	s.Helper()
	var object struct {
		Metadata struct{ Labels map[string]string }
	}
	if err := s.cluster.API.Do(s.Context(), "GET", "/api/v1/nodes/"+node, nil, &object); err != nil {
		s.Fatal(err)
	}
	return object.Metadata.Labels
}

// published is a cluster with two aggregators that write to it, and a dirty node that reports to both.
type published struct {
	*stage
	second *process
	node   *dirty
	hers   string
}

func setUpPublished(t *testing.T) *published {
	t.Helper()
	s := &stage{T: t, dir: t.TempDir(), agents: map[string]*process{}}
	p := &published{stage: s}
	s.cluster, s.lab = clustertest.Start(t)
	for _, file := range []string{manifest, definition, labelling} {
		createFile(t, s.cluster.API, file)
	}
	s.admin = s.file("admin.conf", s.cluster.Kubeconfig(""))
	s.startAggregator("--node-labels")
	s.readAuthority()
	s.viewer, s.viewerToken = offrampv1.NewFleetServiceClient(s.dial()), s.person("offramp-viewer")
	p.second = s.newAggregator("8444", "--node-labels")
	p.node = s.addDirty("node-a", 1, buildStandIn(t))
	s.startDirtyAgent(p.node, s.address(), s.addressOf("8444"))
	s.operatorOf("node-a")
	p.hers = s.hire("olga", keeper)
	return p
}

// What Kubernetes is told of a dirty node and of its clean-up, by two aggregators of which the one that writes is killed in between,
// with exactly the rights of deploy/base and of the component for labels.
func TestPublishing(t *testing.T) {
	p := setUpPublished(t)
	p.condition(60*time.Second, "Complete", "True", "EveryNodeHeard")
	p.condition(time.Second, "Clean", "False", "Leftovers")
	f := p.fleet()
	if f.Status.Nodes.Total != 1 || f.Status.Nodes.WithLeftovers != 1 || f.Status.ObservedGeneration != f.Metadata.Generation || f.Spec.Target != "nftables" {
		t.Errorf("the fleet is %+v", f)
	}
	eventually(t, 15*time.Second, "the node is labelled", func() bool {
		labels := p.labels("node-a")
		return labels["offramp.dev/proxy-mode"] == "nftables" && labels["offramp.dev/phase"] == "switched-dirty"
	})
	if told := p.news(); len(told) != 0 {
		t.Errorf("what was there from the start is told as news: %v", told)
	}
	p.refusesNonsense()
	p.takesOver()
	p.waits()
	p.needsEachRight()
}

// refusesNonsense holds that the API server takes no other target, and no second fleet.
func (p *published) refusesNonsense() {
	p.Helper()
	for what, err := range map[string]error{
		"a target that is none": p.cluster.API.Do(p.Context(), "PATCH", fleetPath+"/cluster", map[string]any{"spec": map[string]any{"target": "ipvs"}}, nil),
		"a second fleet": p.cluster.API.Do(p.Context(), "POST", fleetPath, map[string]any{
			"apiVersion": "offramp.dev/v1alpha1", "kind": "Fleet", "metadata": map[string]any{"name": "mine"}, "spec": map[string]any{},
		}, nil),
	} {
		var refusal *cluster.StatusError
		if !errors.As(err, &refusal) || refusal.Code != 422 {
			p.Errorf("%s: %v", what, err)
		}
	}
}

// takesOver kills the aggregator that writes, and has the node cleaned through the other before that one knows.
func (p *published) takesOver() {
	p.Helper()
	leader, other, to := p.aggregator, p.second, p.addressOf("8444")
	if strings.Contains(p.second.out.String(), writes) {
		leader, other, to = p.second, p.aggregator, p.address()
	}
	if !strings.Contains(leader.out.String(), writes) || strings.Contains(other.out.String(), writes) {
		p.Fatal("it is not so that one aggregator writes")
	}
	digest := p.planned(p.hers, keeper, "node-a")
	if code := p.stage.orders(p.hers, keeper, to, "cleanup", "apply", "node-a", "--plan", strings.Repeat("0", 64)).code(p.T); code != 2 {
		p.Errorf("a plan that nobody made ends with %d", code)
	}
	eventually(p.T, 15*time.Second, "a refusal is told", func() bool { return len(p.news()["CleanupRefused"]) == 1 })
	_ = syscall.Kill(leader.cmd.Process.Pid, syscall.SIGKILL)
	<-leader.ended
	killed := time.Now()
	if code := p.stage.orders(p.hers, keeper, to, "cleanup", "apply", "node-a", "--plan", digest).code(p.T); code != 0 {
		p.Errorf("the clean-up ends with %d", code)
	}
	other.says(p.T, 0, writes)
	p.Logf("the other writes %s after the first was killed", time.Since(killed).Round(time.Second))
	eventually(p.T, 30*time.Second, "the clean-up is told", func() bool { return len(p.news()["CleanupFinished"]) == 1 })
	p.condition(30*time.Second, "Clean", "True", "Clean")
	eventually(p.T, 15*time.Second, "the label follows", func() bool {
		return slices.Contains([]string{"soaking", "done", "unaffected"}, p.labels("node-a")["offramp.dev/phase"])
	})
	p.aggregator, p.second = other, p.newAggregator("8445", "--node-labels")
	for reason, told := range p.news() {
		if len(told) != 1 || (reason != "CleanupFinished" && reason != "CleanupRefused") {
			p.Errorf("%s is told %d times: %v", reason, len(told), told)
		}
	}
}

// waits holds that a pipeline can wait for the fleet.
func (p *published) waits() {
	p.Helper()
	p.condition(20*time.Second, "Ready", "True", "EveryNodeReady")
	if there, err := kube.Cached(p.Context(), kube.Kubectl); err != nil || !there {
		p.Logf("kubectl is not built here: %v", err)
		return
	}
	kubectl, err := kube.Build(p.Context(), kube.Kubectl, p.Output())
	if err != nil {
		p.Fatal(err)
	}
	for _, name := range []string{"Ready", "Clean", "Complete"} {
		text, code := p.run(kubectl, "--kubeconfig", p.admin, "wait", "--for=condition="+name, "fleet.offramp.dev/cluster", "--timeout=5s")
		if code != 0 || !strings.Contains(text, "condition met") {
			p.Errorf("kubectl wait for %s: %d: %s", name, code, text)
		}
	}
	text, _ := p.run(kubectl, "--kubeconfig", p.admin, "get", "fleets")
	p.Logf("kubectl get fleets:\n%s", text)
}

// needsEachRight takes away what the aggregators may, and names what then does not work.
func (p *published) needsEachRight() {
	p.Helper()
	from := len(p.aggregator.out.String())
	p.withdraw("clusterroles/offramp-aggregator", "fleets/status")
	p.withdraw("clusterroles/offramp-aggregator-node-labels", "nodes")
	p.withdraw("namespaces/default/roles/offramp-aggregator-events", "events")
	p.merge("/api/v1/nodes/node-a", map[string]any{"metadata": map[string]any{"labels": map[string]any{"offramp.dev/phase": "mine"}}})
	p.merge(fleetPath+"/cluster", map[string]any{"spec": map[string]any{"target": "iptables"}})
	p.stage.orders(p.hers, keeper, p.addressOf(p.portOf()), "cleanup", "apply", "node-a", "--plan", strings.Repeat("1", 64)).code(p.T)
	p.aggregator.says(p.T, from, "writing to Kubernetes does not work", "write the status of the Fleet", "forbidden")
	p.aggregator.says(p.T, from, "writing to Kubernetes does not work", "label node node-a", "forbidden")
	p.aggregator.says(p.T, from, "writing to Kubernetes does not work", "write an Event", "forbidden")
	p.withdraw("clusterroles/offramp-aggregator", "fleets", "create")
	if err := p.cluster.API.Do(p.Context(), "DELETE", fleetPath+"/cluster", nil, nil); err != nil {
		p.Fatal(err)
	}
	p.aggregator.says(p.T, from, "writing to Kubernetes does not work", "make the Fleet", "forbidden")
	p.withdraw("clusterroles/offramp-aggregator", "fleets", "get")
	p.aggregator.says(p.T, from, "writing to Kubernetes does not work", "read the Fleet", "forbidden")
	p.withdraw("namespaces/offramp/roles/offramp-aggregator", "leases")
	p.aggregator.says(p.T, from, "this replica no longer writes to Kubernetes")
}

// portOf is where the aggregator that writes listens.
func (p *published) portOf() string {
	if strings.Contains(p.aggregator.name, "8444") {
		return "8444"
	}
	return port
}

func (p *published) merge(path string, patch map[string]any) {
	p.Helper()
	if err := p.cluster.API.Do(p.Context(), "PATCH", path, patch, nil); err != nil {
		p.Fatal(err)
	}
}

// withdraw takes the rules about a resource out of a role; with verbs, only those that give one of them.
func (p *published) withdraw(role, resource string, verbs ...string) {
	p.Helper()
	path := "/apis/" + rbac + "/" + role
	var object map[string]any
	if err := p.cluster.API.Do(p.Context(), "GET", path, nil, &object); err != nil {
		p.Fatal(err)
	}
	rules, _ := object["rules"].([]any)
	kept := slices.DeleteFunc(slices.Clone(rules), func(rule any) bool {
		of, _ := rule.(map[string]any)
		return fmt.Sprint(of["resources"]) == "["+resource+"]" && (len(verbs) == 0 || fmt.Sprint(of["verbs"]) == fmt.Sprint(verbs))
	})
	if len(kept) != len(rules)-1 {
		p.Fatalf("%s has not one rule about %s %v: %v", role, resource, verbs, rules)
	}
	object["rules"] = kept
	if err := p.cluster.API.Do(p.Context(), "PUT", path, object, nil); err != nil {
		p.Fatal(err)
	}
}
