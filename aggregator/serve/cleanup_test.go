package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/aggregator/audit"
	"offramp.dev/offramp/aggregator/auth"
	v1 "offramp.dev/offramp/proto/offramp/v1"
)

const orderID = "order-0123456789ab"

// paper is an audit log to read.
type paper struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *paper) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(line)
}

func (p *paper) records(t *testing.T) (all []audit.Record) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		var record audit.Record
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, record)
	}
	return all
}

func audited(p *paper) func(*Config) {
	return func(c *Config) { c.Audit = audit.New(p, quiet()) }
}

func planRequest() *v1.PlanRequest {
	return &v1.PlanRequest{Node: "a", OrderId: orderID, Target: v1.Target_TARGET_NFTABLES, Timeout: durationpb.New(time.Minute)}
}

func (l *lab) plan(ctx context.Context, request *v1.PlanRequest) (v1.CleanupService_PlanClient, error) {
	return v1.NewCleanupServiceClient(l.conn).Plan(ctx, request)
}

func planResult(t *testing.T) *v1.ConnectRequest {
	t.Helper()
	encoded, err := proto.Marshal(&v1.OrderResult{
		Id: orderID, Node: "a", Kind: v1.OrderKind_ORDER_KIND_PLAN, Outcome: v1.OrderOutcome_ORDER_OUTCOME_DONE, Message: "a plan",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &v1.ConnectRequest{Message: &v1.ConnectRequest_OrderUpdate{OrderUpdate: &v1.OrderUpdate{
		Id: orderID, Update: &v1.OrderUpdate_Result{Result: &v1.OrderResultPart{Data: encoded, Last: true}},
	}}}
}

// The whole way: call, order, progress, result, acknowledgement, audit line; and the same call again.
func TestPlanThereAndBack(t *testing.T) {
	p := &paper{}
	l := startLab(t, short(), audited(p))
	node := l.report("a")
	for range 2 {
		call, err := l.plan(t.Context(), planRequest())
		if err != nil {
			t.Fatal(err)
		}
		if len(p.records(t)) == 0 {
			order := node.recv().GetOrder()
			if order.GetId() != orderID || order.GetCaller() != "unauthenticated" || order.GetKind() != v1.OrderKind_ORDER_KIND_PLAN {
				t.Errorf("the node gets %v", order)
			}
			node.send(&v1.ConnectRequest{Message: &v1.ConnectRequest_OrderUpdate{OrderUpdate: &v1.OrderUpdate{
				Id: orderID, Update: &v1.OrderUpdate_Progress{Progress: &v1.OrderProgress{Step: "reading"}}}}})
			if event, err := call.Recv(); err != nil || event.GetProgress().GetStep() != "reading" {
				t.Errorf("got %v, %v", event, err)
			}
			node.send(planResult(t))
			if got := node.recv().GetOrderAcknowledgement().GetId(); got != orderID {
				t.Errorf("acknowledged %q", got)
			}
		}
		if event, err := call.Recv(); err != nil || event.GetResult().GetMessage() != "a plan" {
			t.Errorf("got %v, %v", event, err)
		}
		if _, err := call.Recv(); err != io.EOF { //nolint:errorlint // gRPC returns it as it is
			t.Errorf("after the result: %v", err)
		}
	}
	records := p.records(t)
	if len(records) != 2 {
		t.Fatalf("%d audit lines", len(records))
	}
	for _, r := range records {
		if r.Event != "order" || r.Outcome != "done" || r.Node != "a" || r.Order != orderID || r.Caller != "unauthenticated" ||
			r.Method != v1.CleanupService_Plan_FullMethodName || r.Target != "nftables" || r.Time.IsZero() {
			t.Errorf("the audit says %+v", r)
		}
	}
}

func TestCallsThatAreNotTaken(t *testing.T) {
	p := &paper{}
	l := startLab(t, short(), audited(p))
	l.report("a")
	client := v1.NewCleanupServiceClient(l.conn)
	good := func(change func(*v1.PlanRequest)) error {
		request := planRequest()
		change(request)
		call, err := client.Plan(t.Context(), request)
		if err == nil {
			_, err = call.Recv()
		}
		return err
	}
	for name, tt := range map[string]struct {
		change func(*v1.PlanRequest)
		want   codes.Code
	}{
		"no stream":            {func(r *v1.PlanRequest) { r.Node = "b" }, codes.Unavailable},
		"no node":              {func(r *v1.PlanRequest) { r.Node = "" }, codes.InvalidArgument},
		"no id":                {func(r *v1.PlanRequest) { r.OrderId = "" }, codes.InvalidArgument},
		"an id that is a path": {func(r *v1.PlanRequest) { r.OrderId = "../../../etc/passwd" }, codes.InvalidArgument},
		"no target":            {func(r *v1.PlanRequest) { r.Target = 0 }, codes.InvalidArgument},
		"too long":             {func(r *v1.PlanRequest) { r.Timeout = durationpb.New(2 * time.Hour) }, codes.InvalidArgument},
		"less than nothing":    {func(r *v1.PlanRequest) { r.Timeout = durationpb.New(-time.Second) }, codes.InvalidArgument},
	} {
		if err := good(tt.change); status.Code(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	apply, err := client.Apply(t.Context(), &v1.ApplyRequest{Node: "a", OrderId: orderID, Target: v1.Target_TARGET_NFTABLES, PlanDigest: []byte("short")})
	if err == nil {
		_, err = apply.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a short digest: %v", err)
	}
	restore, err := client.Restore(t.Context(), &v1.RestoreRequest{Node: "a", OrderId: orderID, BackupId: strings.Repeat("x", 65)})
	if err == nil {
		_, err = restore.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a long backup id: %v", err)
	}
	for _, r := range p.records(t) {
		if r.Outcome != "UNAVAILABLE" && r.Outcome != "INVALID_ARGUMENT" {
			t.Errorf("the audit says %+v", r)
		}
	}
}

// A stop ends the calls so that people's programs come again; the node's own stream gets the order again afterwards.
func TestStopWhileAnOrderIsUnderWay(t *testing.T) {
	p := &paper{}
	l := startLab(t, short(), audited(p))
	node := l.report("a")
	call, err := l.plan(t.Context(), planRequest())
	if err != nil {
		t.Fatal(err)
	}
	node.recv()
	l.restart(l.newStore())
	if _, err := call.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the call ends with %v", err)
	}
	if records := p.records(t); len(records) != 1 || records[0].Outcome != "UNAVAILABLE" {
		t.Errorf("the audit says %+v", records)
	}
	// The new process knows nothing: the node comes back, the call is made again, and the node is asked again.
	again := l.report("a")
	call, err = l.plan(t.Context(), planRequest())
	if err != nil {
		t.Fatal(err)
	}
	if got := again.recv().GetOrder().GetId(); got != orderID {
		t.Errorf("the node gets %q", got)
	}
	again.send(planResult(t))
	if event, err := call.Recv(); err != nil || event.GetResult() == nil {
		t.Errorf("got %v, %v", event, err)
	}
}

// A person's program that reads nothing holds nobody up.
func TestSlowCaller(t *testing.T) {
	l := startLab(t, short(), nil)
	node := l.report("a")
	if _, err := l.plan(t.Context(), planRequest()); err != nil {
		t.Fatal(err)
	}
	node.recv()
	for range 2000 {
		node.send(&v1.ConnectRequest{Message: &v1.ConnectRequest_OrderUpdate{OrderUpdate: &v1.OrderUpdate{
			Id: orderID, Update: &v1.OrderUpdate_Progress{Progress: &v1.OrderProgress{Step: strings.Repeat("x", 200)}}}}})
	}
	node.send(planResult(t))
	if got := node.recv().GetOrderAcknowledgement().GetId(); got != orderID {
		t.Errorf("acknowledged %q", got)
	}
	node.send(report(setsSection(7)))
	l.waitFor("a report after it", func() bool { return l.store.Summary(1, "a").GetInventory().GetIpsets() == 7 })
}

// Results that come while nobody waits are taken, and told.
func TestUnaskedResult(t *testing.T) {
	p := &paper{}
	l := startLab(t, short(), audited(p))
	node := l.report("a")
	node.send(planResult(t))
	if got := node.recv().GetOrderAcknowledgement().GetId(); got != orderID {
		t.Errorf("acknowledged %q", got)
	}
	if records := p.records(t); len(records) != 1 || records[0].Event != "unasked" || records[0].Outcome != "done" {
		t.Errorf("the audit says %+v", records)
	}
}

func TestCallerWords(t *testing.T) {
	for want, caller := range map[string]auth.Caller{
		"unauthenticated":                     {},
		"system:serviceaccount:offramp:op":    {Name: "system:serviceaccount:offramp:op"},
		"op (claims to be jane)":              {Name: "op", Claimed: "jane"},
		"unauthenticated (claims to be jäne)": {Claimed: "jäne"},
	} {
		if got := callerWords(caller); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
