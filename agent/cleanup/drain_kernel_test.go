package cleanup_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/agent/cleanup"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"

	"offramp.dev/offramp/internal/nstest"
)

// oldConnections are connections of the node to VIPs of both families, with the VIP as their source, as they are after the
// switch to nftables mode on a node whose kube-ipvs0 is still there.
func oldConnections(t *testing.T) []net.Conn {
	t.Helper()
	var all []net.Conn
	for family, c := range map[string]struct{ vip, own string }{"ip": {"10.96.0.1", "10.0.2.15"}, "ip6": {"fd00:10:96::1", "fec0::15"}} {
		listener, err := net.Listen("tcp", net.JoinHostPort(c.own, "0"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(connection, connection) }()
			}
		}()
		run(t, fmt.Sprintf("table %s redirected {\n chain o {\n type nat hook output priority -110;\n %s daddr %s tcp dport 80 dnat to %s\n }\n}\n",
			family, family, c.vip, listener.Addr()), "nft", "-f", "-")
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(c.vip, "80"), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		if host, _, _ := net.SplitHostPort(connection.LocalAddr().String()); host != c.vip {
			t.Fatalf("the source is %s, want the VIP", connection.LocalAddr())
		}
		all = append(all, connection)
	}
	return all
}

// vipNode has kube-ipvs0 with one address of each family, and the zoo.
func vipNode(t *testing.T) {
	t.Helper()
	ipvsNode(t)
	run(t, "link add kube-ipvs0 type dummy\naddr add 10.96.0.1/32 dev kube-ipvs0\naddr add fd00:10:96::1/128 dev kube-ipvs0\n", "ip", "-batch", "-")
}

// Connections that would hang make apply wait, and then refuse with all as it was; or they are closed, as a person wants.
func TestConnectionsAreWaitedForOrClosed(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	vipNode(t)
	connections := oldConnections(t)
	dirty := look(t)
	n := newNode(t)

	n.options.Draining = cleanup.Draining{Wait: 2 * time.Second}
	result := n.apply()
	if len(result.GetRefusedBy()) != 1 || result.GetRefusedBy()[0].GetId() != cleanup.GuardNotDrained {
		t.Fatalf("refused by %v, error %q, want %s", result.GetRefusedBy(), result.GetError(), cleanup.GuardNotDrained)
	}
	t.Log(result.GetRefusedBy()[0].GetEvidence())
	if diff := cmp.Diff(dirty, look(t)); diff != "" {
		t.Errorf("before (-), after the wait ran out (+):\n%s", diff)
	}
	for _, connection := range connections {
		echoes(t, connection)
	}

	n.options.Draining = cleanup.Draining{CloseSockets: true}
	mustClean(t, n.apply())
	for _, connection := range connections {
		if err := connection.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("%s says %v, want that it is closed", connection.LocalAddr(), err)
		}
	}
}

// A wait that is long enough goes on by itself.
func TestConnectionsThatEndAreWaitedFor(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	vipNode(t)
	connections := oldConnections(t)
	n := newNode(t)
	n.options.Draining = cleanup.Draining{Wait: time.Minute}
	time.AfterFunc(3*time.Second, func() {
		for _, connection := range connections {
			_ = connection.Close()
		}
	})
	began := time.Now()
	mustClean(t, n.apply())
	if waited := time.Since(began); waited < 3*time.Second {
		t.Errorf("it took %s, want at least the 3 s that the connections lasted", waited)
	}
}

func echoes(t *testing.T, connection net.Conn) {
	t.Helper()
	if err := connection.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Write([]byte("x")); err != nil {
		t.Errorf("%s: %v", connection.LocalAddr(), err)
	}
	if _, err := io.ReadFull(connection, make([]byte, 1)); err != nil {
		t.Errorf("%s: %v", connection.LocalAddr(), err)
	}
}

// A virtual server that has become another's since the plan stays, the link has to stay with it, and what shields the host's
// ports stays as long as the link: nothing else waits.
func TestTheOrderHolds(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	needNetfilter(t)
	before := ipvsNode(t)
	kubeProxy(t, "ipvs")
	addIPVS(t, "ipvs")
	n := newNode(t)
	plan := n.plan()
	calls := 0
	request := cleanup.Request{Digest: plan.GetDigest(), Plan: func(ctx context.Context) (*offrampv1.Plan, *cleanup.Reading, error) {
		plan, reading, err := n.planner().Plan(ctx)
		if calls++; calls == 1 {
			run(t, "-a -t 192.0.2.20:80 -r 192.0.2.99:80 -m -w 1\n", "ipvsadm", "-R") //nolint:contextcheck // the test's own
		}
		return plan, reading, err
	}}
	result, err := cleanup.NewExecutor(n.config).Apply(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	waits := 0
	for i, operation := range plan.GetOperations() {
		outcome := result.GetOperations()[i].GetOutcome()
		want := offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE
		text := operation.String()
		switch {
		case operation.GetDeleteVirtualServer().GetAddress() == "192.0.2.20":
			want = offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS
		case operation.GetDeleteLink() != nil, operation.GetDeleteRoute() != nil, cleanup.WaitsForLink(operation):
			want = offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED
			waits++
		case operation.GetDestroySet() != nil && heldByShield(operation.GetDestroySet().GetName()):
			want = offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS
		}
		if outcome != want {
			t.Errorf("%s: %v (%s), want %v", text, outcome, result.GetOperations()[i].GetError(), want)
		}
	}
	if waits < 3 {
		t.Errorf("%d operations wait, want the link, its shield and the routes", waits)
	}
	for _, backend := range backends() {
		if saved := run(t, "", backend.tool+"-save", "-t", "filter"); !strings.Contains(saved, "-j KUBE-IPVS-FILTER") {
			t.Errorf("%s: the shield is gone before the link", backend.tool)
		}
	}
	mustClean(t, n.apply())
	if diff := cmp.Diff(before, look(t)); diff != "" {
		t.Errorf("before kube-proxy (-), after both runs (+):\n%s", diff)
	}
	if backups, err := filepath.Glob(filepath.Join(n.config.StateDir, "backups", "*", "manifest.json")); err != nil || len(backups) != 2 {
		t.Errorf("backups %v, error %v, want 2", backups, err)
	}
}

// heldByShield are the sets that KUBE-IPVS-FILTER matches (facts/kube-proxy.md section 1.1), in either family.
func heldByShield(name string) bool {
	switch strings.Replace(name, "KUBE-6-", "KUBE-", 1) {
	case "KUBE-LOAD-BALANCER", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL", "KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-IPVS-IPS":
		return true
	default:
		return false
	}
}
