package identity

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/e2e/programs"
)

// people is the namespace of the test's persons: ServiceAccounts that hold a kubeconfig of their own, impersonating nobody.
const people = "people"

// hire makes a person who may ask for a token of one account of Offramp's, and returns the kubeconfig.
func (s *stage) hire(name, as string) (kubeconfig string) {
	s.Helper()
	api := s.cluster.API
	// The namespace may be there already.
	_ = api.Do(s.Context(), "POST", "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": people}}, nil)
	create(s.T, api, account(people, name))
	role := map[string]any{"name": name + "-be-" + as, "namespace": offramp}
	create(s.T, api, map[string]any{"apiVersion": rbac, "kind": "Role", "metadata": role, "rules": []any{
		map[string]any{"apiGroups": []string{""}, "resources": []string{"serviceaccounts/token"}, "resourceNames": []string{as}, "verbs": []string{"create"}},
		map[string]any{"apiGroups": []string{""}, "resources": []string{"configmaps"}, "resourceNames": []string{"offramp-authority"}, "verbs": []string{"get"}},
	}})
	create(s.T, api, map[string]any{"apiVersion": rbac, "kind": "RoleBinding", "metadata": role,
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["name"]},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": people, "name": name}}})
	return s.file(name+".conf", s.cluster.Kubeconfig(request(s.T, api, people, name, "", "", "")))
}

// orders starts kubectl-offramp with somebody's own kubeconfig.
func (s *stage) orders(kubeconfig, account, address string, args ...string) *process {
	s.Helper()
	return start(s.T, s.lab, "kubectl-offramp", append([]string{programs.Kubectl(), "--kubeconfig", kubeconfig, "--account", account, "--aggregator", address}, args...)...)
}

// code waits for the end of a program.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(90 * time.Second):
		t.Fatalf("%s does not end; it said:\n%s", p.name, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// planned is the digest of the plan that somebody is shown.
func (s *stage) planned(kubeconfig, account, node string) string {
	s.Helper()
	p := s.orders(kubeconfig, account, s.address(), "cleanup", "plan", node)
	code := p.code(s.T)
	digest := regexp.MustCompile(`digest: ([0-9a-f]{64})`).FindStringSubmatch(p.out.String())
	if code != 3 || digest == nil {
		s.Fatalf("the plan for %s ends with %d:\n%s", node, code, p.out.String())
	}
	return digest[1]
}

// refused holds that a command ends with an error that says why.
func (s *stage) refused(what string, p *process, says string) {
	s.Helper()
	if code := p.code(s.T); code != 1 || !strings.Contains(p.out.String(), says) {
		s.Errorf("%s: exit code %d, want 1 with %q:\n%s", what, code, says, p.out.String())
	}
}

// line is a line of an audit log, of the aggregator or of a node.
type line struct {
	Event, Caller, Claimed, Method, Node, Order, Outcome string
	TokenID                                              string `json:"token_id"`
	PlanDigest                                           string `json:"plan_digest"`
}

// lines are those of an audit log that some property holds for.
func lines(t *testing.T, path string, wanted func(line) bool) (found []line) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(string(text)) {
		var l line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatalf("%v: %s", err, row)
		}
		if wanted(l) {
			found = append(found, l)
		}
	}
	return found
}

const (
	keeper  = "operator-of-node-a" // an account that may order clean-ups of node-a alone
	keepers = "system:serviceaccount:offramp:" + keeper
	olga    = "system:serviceaccount:people:olga" // a person who may be it
)

// From a kubeconfig to the kernel: olga may order clean-ups of node-a and nothing else. What she orders there is done, and
// both ends write down who it was; of node-b, and by a viewer, and after her right is gone, nothing is.
func TestOrders(t *testing.T) {
	audit := filepath.Join(t.TempDir(), "audit.log")
	s := withAggregator(t, "--audit-log", audit)
	standIn := buildStandIn(t)
	a, b := s.addDirty("node-a", 1, standIn), s.addDirty("node-b", 2, standIn)
	s.startDirtyAgent(a, s.address())
	s.startDirtyAgent(b, s.address())
	s.operatorOf("node-a")
	hers, his := s.hire("olga", keeper), s.hire("vincent", "offramp-viewer")
	before, untouched := len(a.leftovers()), b.kernel()
	digest := s.planned(hers, keeper, "node-a")

	to := s.address()
	s.refused("a plan of node-b", s.orders(hers, keeper, to, "cleanup", "plan", "node-b"), "may not plan nodecleanups.offramp.dev node-b")
	s.refused("node-b", s.orders(hers, keeper, to, "cleanup", "apply", "node-b", "--plan", digest), "may not apply nodecleanups.offramp.dev node-b")
	s.refused("a viewer", s.orders(his, "offramp-viewer", to, "cleanup", "apply", "node-a", "--plan", digest), "may not apply nodecleanups.offramp.dev node-a")
	s.refused("a viewer who would be more", s.orders(his, keeper, to, "cleanup", "apply", "node-a", "--plan", digest), "forbidden")
	if left := len(a.leftovers()); left != before || before == 0 {
		t.Fatalf("%d of %d sets are left before anybody was let through", left, before)
	}

	p := s.orders(hers, keeper, to, "cleanup", "apply", "node-a", "--plan", digest)
	if code := p.code(t); code != 0 || len(a.leftovers()) != 0 || !strings.Contains(a.native("", "ipset", "list", "-n"), foreign) {
		t.Errorf("apply ends with %d, %v are left:\n%s", code, a.leftovers(), p.out.String())
	}
	s.wroteDown(audit, a, digest)
	s.leftAlone(b, untouched)

	if err := s.cluster.API.Do(t.Context(), "DELETE", "/apis/"+rbac+"/clusterrolebindings/"+keeper, nil, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, 60*time.Second, "olga is refused", func() bool {
		p := s.orders(hers, keeper, to, "cleanup", "plan", "node-a")
		return p.code(t) == 1 && strings.Contains(p.out.String(), "may not plan nodecleanups.offramp.dev node-a")
	})
	t.Logf("refused %s after the binding was deleted", time.Since(began).Round(time.Second))
	s.refused("a restore", s.orders(hers, keeper, to, "restore", "node-a"), "may not restore nodecleanups.offramp.dev node-a")
	if err := s.cluster.API.Do(t.Context(), "DELETE", "/apis/"+rbac+"/namespaces/offramp/rolebindings/olga-be-"+keeper, nil, nil); err != nil {
		t.Fatal(err)
	}
	s.refused("without a token", s.orders(hers, keeper, to, "cleanup", "plan", "node-a"), "forbidden")
	if left := a.leftovers(); len(left) != 0 {
		t.Errorf("%v are back", left)
	}
	s.leftAlone(b, untouched)
}

// wroteDown holds that aggregator and node name the same caller, token and person for what was done.
func (s *stage) wroteDown(audit string, a *dirty, digest string) {
	s.Helper()
	done := lines(s.T, audit, func(l line) bool {
		return l.Event == "order" && l.Method == "/offramp.v1.CleanupService/Apply" && l.Outcome == "done"
	})
	if len(done) != 1 {
		s.Fatalf("the aggregator's audit log has %v as done", done)
	}
	l := done[0]
	if l.Caller != keepers || l.Claimed != olga || l.TokenID == "" || l.Node != "node-a" || l.PlanDigest != digest {
		s.Errorf("the aggregator wrote down %+v", l)
	}
	onNode := lines(s.T, filepath.Join(a.state, "audit.log"), func(l line) bool { return l.Method == "apply" })
	if len(onNode) != 1 || onNode[0].Outcome != "done" || onNode[0].Order != l.Order || onNode[0].TokenID != l.TokenID || onNode[0].PlanDigest != digest ||
		!strings.Contains(onNode[0].Caller, keepers) || !strings.Contains(onNode[0].Caller, "claims to be "+olga) {
		s.Errorf("the node wrote down %+v of order %s, token %s", onNode, l.Order, l.TokenID)
	}
	refused := lines(s.T, audit, func(l line) bool { return l.Event == "refused" && l.Node == "node-b" })
	if len(refused) != 2 || refused[1].Caller != keepers || refused[1].Claimed != olga || refused[1].TokenID == "" || refused[1].Outcome != "PERMISSION_DENIED" {
		s.Errorf("the aggregator wrote down of node-b %+v", refused)
	}
}

// leftAlone holds that nothing on a node has changed, and that its agent has taken no order.
func (s *stage) leftAlone(d *dirty, before string) {
	s.Helper()
	if now := d.kernel(); now != before {
		s.Errorf("%s was\n%s\nand is\n%s", d.name, before, now)
	}
	for _, folder := range []string{"orders", "journal", "backups"} {
		entries, _ := os.ReadDir(filepath.Join(d.state, folder))
		for _, entry := range entries {
			if entry.Name() != "lock" {
				s.Errorf("%s has %s/%s", d.name, folder, entry.Name())
			}
		}
	}
}

// Two aggregators live, one agent with a stream to each: the same order by both at once is done once, and both tell its result.
func TestTwoAggregators(t *testing.T) {
	s := withAggregator(t)
	second := s.newAggregator("8444")
	a := s.addDirty("node-a", 1, buildStandIn(t))
	s.startDirtyAgent(a, s.address(), s.addressOf("8444"))
	s.operatorOf("node-a")
	hers := s.hire("olga", keeper)
	eventually(t, 60*time.Second, "the second aggregator has the node, too", func() bool {
		return s.orders(hers, keeper, s.addressOf("8444"), "cleanup", "plan", "node-a").code(t) == 3
	})
	for _, at := range []string{"one after the other", "at once"} {
		t.Run(at, func(t *testing.T) {
			s := s.in(t)
			a.native(a.captured("ipset-save.txt"), "ipset", "-exist", "restore")
			id := "order-two-" + strings.ReplaceAll(at, " ", "-") + "-0001"
			digest := s.planned(hers, keeper, "node-a")
			give := func(address string) *process {
				return s.orders(hers, keeper, address, "cleanup", "apply", "node-a", "--plan", digest, "--order", id, "-o", "json")
			}
			resume := func() {}
			if at == "at once" {
				resume = a.pauseProxy()
			}
			both := []*process{give(s.address())}
			if at != "at once" {
				both[0].code(t)
			}
			both = append(both, give(s.addressOf("8444")))
			if at == "at once" {
				for _, p := range both {
					p.says(t, 0, "reading the node")
				}
				resume()
			}
			for i, p := range both {
				if code := p.code(t); code != 0 || !strings.Contains(p.out.String(), "ORDER_OUTCOME_DONE") || !strings.Contains(p.out.String(), id) {
					t.Errorf("aggregator %d: exit code %d:\n%s", i+1, code, p.out.String())
				}
			}
			if told := results(t, both); told[0] != told[1] {
				t.Errorf("the first tells\n%s\nthe second\n%s", told[0], told[1])
			}
			if runs, left := a.runs(id), a.leftovers(); runs != 1 || len(left) != 0 {
				t.Errorf("it was done %d times, %v are left", runs, left)
			}
		})
	}
	select {
	case <-second.ended:
		t.Error("the second aggregator ended")
	default:
	}
}

// in is the same stage for a part of the test.
func (s *stage) in(t *testing.T) *stage {
	part := *s
	part.T = t
	return &part
}

// results are what the programs printed as the order's result, in one spelling.
func results(t *testing.T, of []*process) (told []string) {
	t.Helper()
	for _, p := range of {
		said := p.out.String()
		var result map[string]any
		if err := json.NewDecoder(strings.NewReader(said[max(0, strings.Index(said, "{\n")):])).Decode(&result); err != nil {
			t.Fatalf("%v:\n%s", err, said)
		}
		spelt, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, string(spelt))
	}
	return told
}
