package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"offramp.dev/offramp/agent/audit"
	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/agent/collect"
	"offramp.dev/offramp/agent/inventory"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// fakeAudit keeps entries in memory.
type fakeAudit struct {
	entries []*audit.Entry
	err     error
}

func (f *fakeAudit) Write(entry *audit.Entry) (json.RawMessage, error) {
	f.entries = append(f.entries, entry)
	line, err := json.Marshal(entry)
	return line, errors.Join(err, f.err)
}

func (f *fakeAudit) Entries() ([]*audit.Entry, error) { return f.entries, nil }

// last is the entry that was written last.
func (f *fakeAudit) last(t *testing.T) *audit.Entry {
	t.Helper()
	if len(f.entries) == 0 {
		t.Fatal("nothing was noted")
	}
	return f.entries[len(f.entries)-1]
}

// listener is an address at which connections are taken until stop is called.
func listener(t *testing.T) (netip.AddrPort, func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := func() { _ = l.Close() }
	t.Cleanup(stop)
	return netip.MustParseAddrPort(l.Addr().String()), stop
}

func serving(service netip.AddrPort, endpoints ...netip.AddrPort) []inventory.Service {
	return []inventory.Service{{Name: "default/kubernetes:https", Protocol: "TCP", Address: service, Endpoints: endpoints}}
}

func TestVerifyConnect(t *testing.T) {
	alive, _ := listener(t)
	dead, stop := listener(t)
	stop()
	for _, c := range []struct {
		name     string
		services []inventory.Service
		verdict  offrampv1.Verdict
		code     int
		says     string
	}{
		{"it answers", serving(alive, alive), offrampv1.Verdict_VERDICT_READY, 0, "answers"},
		{"it fails and the endpoint answers", serving(dead, alive), offrampv1.Verdict_VERDICT_READY, 2, "FAILS"},
		{"both fail", serving(dead, dead), offrampv1.Verdict_VERDICT_READY, 4, "so do its endpoints"},
		{"nothing to compare with", serving(dead), offrampv1.Verdict_VERDICT_READY, 4, "no endpoint is known"},
		{"nothing to try", nil, offrampv1.Verdict_VERDICT_READY, 4, "none could be tried"},
		{"blocked anyway", serving(alive, alive), offrampv1.Verdict_VERDICT_BLOCKED, 2, "answers"},
	} {
		s := newStage()
		s.services, s.assessment.Verify = c.services, c.verdict
		s.call(t.Context(), nil, "verify", "--connect").want(t, c.code, c.says, "")
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	s := newStage()
	s.services, s.servicesErr = serving(dead, alive), errors.New("a map could not be read")
	got := s.call(t.Context(), nil, "verify", "--connect", "-o", "json", "--connect-to", "tcp/"+alive.String()+"="+alive.String())
	got.want(t, 2, "", "a map could not be read")
	var said offrampv1.Verification
	if err := protojson.Unmarshal([]byte(got.stdout), &said); err != nil || len(said.GetConnections()) != 2 || said.GetNode().GetNode() != "worker-1" {
		t.Errorf("%v: %s", err, got.stdout)
	}
	s.call(t.Context(), nil, "verify").want(t, 0, "", "")
	s.call(t.Context(), nil, "verify", "--connect", "--connect-to", "tcp/x").want(t, 1, "", "--connect-to")
}

// A connection that worked before and fails after the apply, while its endpoint answers: it is restored, and everybody hears.
func TestApplyThatBreaksAPathIsUndone(t *testing.T) {
	alive, _ := listener(t)
	service, stop := listener(t)
	s := cleaningStage(true)
	s.services = serving(service, alive)
	s.executor.applied = stop
	s.executor.restored = &cleanup.RestoreResult{ID: "b1", Running: offrampv1.ProxyMode_PROXY_MODE_NFTABLES, Items: []cleanup.RestoreItem{
		{What: "ipset KUBE-6-CLUSTER-IP", Outcome: cleanup.Restored},
	}}
	metrics := filepath.Join(t.TempDir(), "offramp.prom")
	got := s.call(t.Context(), nil, "cleanup", "apply", "--yes", "--metrics-file", metrics)
	got.want(t, 1, "connections that worked before the clean-up fail now", "BROKEN")
	got.want(t, 1, "restored: ipset KUBE-6-CLUSTER-IP", "the clean-up was undone")
	if s.executor.restore == nil || s.executor.restore.ID != "b1" {
		t.Errorf("asked to restore %+v", s.executor.restore)
	}
	entry := s.audit.last(t)
	if len(s.audit.entries) != 2 || s.audit.entries[0].Method != audit.MethodRestore || entry.Outcome != audit.OutcomeFailed ||
		len(entry.BrokenProbes) != 1 || entry.BrokenProbes[0] != "tcp "+service.String() {
		t.Errorf("noted %+v", entry)
	}
	written, err := os.ReadFile(metrics)
	if err != nil || !strings.Contains(string(written), `offramp_agent_cleanups_total{method="apply",outcome="failed"} 1`) ||
		!strings.Contains(string(written), "offramp_agent_cleanup_broken_probes 1") {
		t.Errorf("%v: %s", err, written)
	}
}

// What failed before, or fails with its endpoints, undoes nothing; and with --no-connect nothing is tried.
func TestApplyIsNotUndone(t *testing.T) {
	alive, _ := listener(t)
	dead, stop := listener(t)
	stop()
	service, stopService := listener(t)
	for _, c := range []struct {
		name     string
		services []inventory.Service
		args     []string
		code     int
	}{
		{"it failed before", serving(dead, alive), nil, 0},
		{"the endpoint is down too", serving(service, dead), nil, 0},
		{"nothing is tried", serving(service, alive), []string{"--no-connect"}, 0},
	} {
		s := cleaningStage(true)
		s.services, s.executor.applied = c.services, stopService
		s.call(t.Context(), nil, append([]string{"cleanup", "apply", "--yes"}, c.args...)...).want(t, c.code, "done: 1", "")
		if s.executor.restore != nil || s.audit.last(t).Outcome != audit.OutcomeDone {
			t.Errorf("%s: restored %+v, noted %+v", c.name, s.executor.restore, s.audit.last(t))
		}
	}
}

func TestEveryApplyAndRestoreIsNoted(t *testing.T) {
	s := cleaningStage(true)
	s.call(t.Context(), nil, "cleanup", "apply", "--yes", "--log-format", "json").want(t, 0, "", `"outcome":"done"`)
	if entry := s.audit.last(t); entry.Caller != "uid=0 sudo_user=alice" || entry.Node != "worker-1" || entry.Target != "nftables" ||
		len(entry.PlanDigest) != 64 || entry.BackupID != "b1" || entry.Operations["done"] != 1 {
		t.Errorf("noted %+v", entry)
	}
	s.call(t.Context(), nil, "cleanup", "apply", "--plan", strings.Repeat("ab", 8)).want(t, 2, "", "")
	if entry := s.audit.last(t); entry.Outcome != audit.OutcomeRefused || len(entry.RefusedBy) != 1 || entry.RefusedBy[0] != cleanup.GuardPlanChanged {
		t.Errorf("noted %+v", entry)
	}
	s.call(t.Context(), nil, "cleanup", "plan").want(t, 3, "", "")
	if len(s.audit.entries) != 2 {
		t.Errorf("a plan was noted: %+v", s.audit.last(t))
	}
	s.executor.restoreErr = cleanup.ErrRebooted
	s.call(t.Context(), nil, "cleanup", "restore", "b7").want(t, 2, "", "")
	if entry := s.audit.last(t); entry.Method != audit.MethodRestore || entry.Outcome != audit.OutcomeRefused || entry.BackupID != "b7" {
		t.Errorf("noted %+v", entry)
	}
	clean := cleaningStage(false)
	clean.audit.err = errors.New("no space left on device")
	clean.call(t.Context(), nil, "cleanup", "apply", "--yes").want(t, 0, "nothing to do", "no space left on device")
	if entry := clean.audit.last(t); entry.Outcome != audit.OutcomeNothing {
		t.Errorf("noted %+v", entry)
	}
}

// A connection that failed before stands between two that worked: each keeps its own verdict.
func TestEachConnectionKeepsItsVerdict(t *testing.T) {
	alive, _ := listener(t)
	dead, stop := listener(t)
	stop()
	breaks, stopService := listener(t)
	s := cleaningStage(true)
	s.executor.applied = stopService
	s.executor.restored = &cleanup.RestoreResult{ID: "b1"}
	var flags []string
	for _, service := range []netip.AddrPort{alive, dead, breaks} {
		flags = append(flags, "--connect-to", "tcp/"+service.String()+"="+alive.String())
	}
	got := s.call(t.Context(), nil, append([]string{"cleanup", "apply", "--yes", "-o", "json"}, flags...)...)
	var result offrampv1.CleanupResult
	if err := protojson.Unmarshal([]byte(got.stdout), &result); err != nil || len(result.GetProbes()) != 3 {
		t.Fatalf("%v: %s", err, got.stdout)
	}
	for i, want := range []offrampv1.ProbeVerdict{
		offrampv1.ProbeVerdict_PROBE_VERDICT_WORKS, offrampv1.ProbeVerdict_PROBE_VERDICT_FAILED_BEFORE,
		offrampv1.ProbeVerdict_PROBE_VERDICT_BROKEN,
	} {
		if got := result.GetProbes()[i].GetVerdict(); got != want {
			t.Errorf("connection %d: %s, want %s", i, got, want)
		}
	}
}

// What runs as a daemon counts each clean-up that was ordered, with the caller that the order names.
func TestOrderedCleanUpsAreCounted(t *testing.T) {
	s := cleaningStage(true)
	var told []*audit.Entry
	noted := s.parts().noted(s.executor, noting{
		config: collect.Config{Node: "worker-1", Host: collect.DefaultHost()}, log: slog.New(slog.DiscardHandler),
		told: func(entry *audit.Entry) { told = append(told, entry) },
	})
	s.executor.restored = &cleanup.RestoreResult{ID: "b1"}
	request := cleanup.RestoreRequest{Origin: cleanup.Origin{Order: "order-1", Caller: "alice", TokenID: "t1"}}
	if _, err := noted.Restore(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0].Caller != "alice" || told[0].Order != "order-1" || told[0].TokenID != "t1" || told[0].Outcome != audit.OutcomeNothing {
		t.Errorf("told of %+v", told)
	}
}
