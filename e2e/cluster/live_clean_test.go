package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/e2e/cluster"
	"offramp.dev/offramp/e2e/cluster/traffic"
)

// cleansUnderTraffic cleans the node for its live mode while requests come in, and none fails. A connection of the node that has
// a VIP as its source makes apply wait, and refuse when the wait runs out, with everything as it was; one that was opened after
// the change of the source lives on.
func (l *live) cleansUnderTraffic(t *testing.T, target string) {
	t.Helper()
	o := l.startLoop(t)
	old := l.longs(t, "old")
	before := l.native(t)
	refused := l.mustExit(t, 2, l.applyArgs(target, "--yes", "--wait-drained", "3s")...)
	contains(t, "what refuses when the wait runs out", refusals(t, refused), cleanup.GuardNotDrained)
	l.native(t).mustEqual(t, "an apply that refused", before)

	apply := l.background(t, l.applyArgs(target, "--yes", "--wait-drained", "5m")...)
	l.sourcesChanged(t)
	after := l.longs(t, "after")
	select {
	case <-apply.Done():
		t.Error("apply did not wait for the old connections")
	default:
	}
	closed := ended(t, old)
	if code, err := apply.Wait(); err != nil || code != 0 {
		t.Fatalf("apply: %v, exit status %d: %s", err, code, apply.Output())
	}
	noFailure(t, "clean-up on live "+target, append(o.end(t, after), closed...))
}

// isDone makes sure that nothing is left to do, by the agent's own word.
func (l *live) isDone(t *testing.T, target string, more ...string) {
	t.Helper()
	plan, code := l.plan(t, target, more...)
	if code != 0 || len(plan.GetOperations()) > 0 {
		t.Errorf("the second plan for %s: exit status %d, %d operations, guards %v", target, code, len(plan.GetOperations()), plan.GetGuards())
	}
	l.mustExit(t, 0, append([]string{"verify", "--target", target}, more...)...)
}

// nothingOfIPVS makes sure by the native tools that ipvs mode's state is gone.
func (l *live) nothingOfIPVS(t *testing.T) {
	t.Helper()
	seen := l.native(t)
	check(t, "virtual servers", seen["ipvs"], "")
	check(t, "sets", seen["ipset"], "")
	for _, name := range []string{"address", "route"} {
		if strings.Contains(seen[name], "kube-ipvs0") || strings.Contains(seen[name], "proto 207") {
			t.Errorf("%s of kube-ipvs0 are left:\n%s", name, seen[name])
		}
	}
	for _, name := range []string{"nft4", "nft6"} {
		if found := ofIPVSAlone.FindAllString(seen[name], -1); len(found) > 0 {
			t.Errorf("%s has %q", name, found)
		}
	}
}

// goesOn lets kube-proxy work after the clean-up: a Service that changes is served as it is then, and a restart, which writes
// all rules anew, brings nothing back and finds nothing missing.
func (l *live) goesOn(t *testing.T, p *cluster.Proxy) *cluster.Proxy {
	t.Helper()
	const changed = `30123`
	ports := []any{map[string]any{"port": 8081, "targetPort": 8080, "nodePort": 30123}}
	path := "/api/v1/namespaces/default/services/load-balancer"
	if err := l.cluster.API.Do(t.Context(), "PATCH", path, map[string]any{"spec": map[string]any{"ports": ports}}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the changed Service is served", func() bool {
		return l.answers(t, l.other.StartLoad, l.node.V4.String()+":"+changed) && l.answers(t, l.pods[0].StartLoad, "10.96.0.30:8081") &&
			l.answers(t, l.node.StartLoad, "[fd00:10:96::30]:8081")
	})
	before := l.native(t)
	end(t, p)
	p = l.start(t, p.Config.Mode)
	l.native(t).loose().mustEqual(t, "a restart of kube-proxy after the clean-up", before.loose())
	return p
}

// startLoad is StartLoad of a node or a pod.
type startLoad = func(ctx context.Context, targets ...string) (*cluster.Load, error)

// answers reports whether requests from one place are answered.
func (l *live) answers(t *testing.T, start startLoad, address string) bool {
	t.Helper()
	load, err := start(t.Context(), "once="+address)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	reports := ended(t, load)
	return len(reports) == 1 && reports[0].Requests > 0 && traffic.Failures(reports) == 0
}

// closesSockets has connections of the node closed that have a VIP as their source, as a person asks for, so that their owners
// hear of it at once and connect anew. kube-ipvs0 comes back by hand for it.
func (l *live) closesSockets(t *testing.T, target, linkAgain string) {
	t.Helper()
	l.feed(t, linkAgain, "ip", "-batch", "-")
	old := l.longs(t, "closed")
	refused := l.mustExit(t, 2, l.applyArgs(target, "--yes")...)
	contains(t, "what refuses where nobody waits", refusals(t, refused), cleanup.GuardSockets)
	l.mustExit(t, 0, l.applyArgs(target, "--yes", "--close-sockets")...)
	again := l.longs(t, "again")
	time.Sleep(time.Second)
	reports := ended(t, old)
	allBroke(t, "--close-sockets", reports)
	for _, r := range reports {
		t.Logf("--close-sockets: %s: %v after %d requests", r.Target, r.Reasons, r.Requests)
		if r.Reasons["timeout"] > 0 {
			t.Errorf("--close-sockets: %s hung instead of being closed", r.Target)
		}
	}
	noFailureAtAll(t, "connections after --close-sockets", ended(t, again))
	l.isDone(t, target)
}

func noFailureAtAll(t *testing.T, when string, reports []traffic.Report) {
	t.Helper()
	for _, r := range reports {
		if r.Failures > 0 || r.Requests == 0 {
			t.Errorf("%s: %s: %d of %d requests failed: %v", when, r.Target, r.Failures, r.Requests, r.Reasons)
		}
	}
}
