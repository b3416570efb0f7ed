package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"offramp.dev/offramp/internal/orderform"
	"offramp.dev/offramp/internal/program"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	orderDone    = offrampv1.OrderOutcome_ORDER_OUTCOME_DONE
	orderRefused = offrampv1.OrderOutcome_ORDER_OUTCOME_REFUSED
)

// fakeDesk answers orders with what a test gives it, and breaks off as often as that says.
type fakeDesk struct {
	offrampv1.UnimplementedCleanupServiceServer
	plan, result *offrampv1.OrderResult
	// breaks is how many calls end with err before one is answered.
	breaks int
	err    error
	// silent has calls hang without a word after they were placed.
	silent bool
	// deaf has calls hang before they are placed.
	deaf bool

	mu    sync.Mutex
	calls []string
}

// take notes a call and says whether it is to be answered.
func (f *fakeDesk) take(ctx context.Context, kind, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, kind+" "+id)
	if f.breaks > 0 {
		f.breaks--
		return f.err
	}
	if f.deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := grpc.SendHeader(ctx, metadata.Pairs(orderform.PlacedKey, id)); err != nil {
		return err
	}
	if f.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// taken are the calls so far, once those that hung have ended.
func (f *fakeDesk) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// speak ends the silence, after the calls that it has hang.
func (f *fakeDesk) speak() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = false
}

func (f *fakeDesk) Plan(request *offrampv1.PlanRequest, stream grpc.ServerStreamingServer[offrampv1.PlanResponse]) error {
	if err := f.take(stream.Context(), "plan "+request.GetNode()+" "+request.GetTarget().String(), request.GetOrderId()); err != nil {
		return err
	}
	return stream.Send(&offrampv1.PlanResponse{Event: &offrampv1.PlanResponse_Result{Result: f.plan}})
}

func (f *fakeDesk) Apply(request *offrampv1.ApplyRequest, stream grpc.ServerStreamingServer[offrampv1.ApplyResponse]) error {
	if err := f.take(stream.Context(), fmt.Sprintf("apply %x", request.GetPlanDigest()), request.GetOrderId()); err != nil {
		return err
	}
	for _, done := range []uint64{0, 1} {
		progress := &offrampv1.OrderProgress{Step: "ipsets", Done: done, Total: 2}
		if err := stream.Send(&offrampv1.ApplyResponse{Event: &offrampv1.ApplyResponse_Progress{Progress: progress}}); err != nil {
			return err
		}
	}
	return stream.Send(&offrampv1.ApplyResponse{Event: &offrampv1.ApplyResponse_Result{Result: f.result}})
}

func (f *fakeDesk) Restore(request *offrampv1.RestoreRequest, stream grpc.ServerStreamingServer[offrampv1.RestoreResponse]) error {
	if err := f.take(stream.Context(), "restore "+request.GetBackupId(), request.GetOrderId()); err != nil {
		return err
	}
	return stream.Send(&offrampv1.RestoreResponse{Event: &offrampv1.RestoreResponse_Result{Result: f.result}})
}

func newDesk() *fakeDesk {
	digest := make([]byte, 32)
	digest[0] = 0xab
	plan := &offrampv1.Plan{Node: "worker-1", Target: offrampv1.Target_TARGET_NFTABLES, Digest: digest, Operations: []*offrampv1.Operation{
		{Stage: offrampv1.Stage_STAGE_IPSETS, Change: &offrampv1.Operation_DestroySet{DestroySet: &offrampv1.DestroySet{Name: "KUBE-LOOP-BACK"}}}}}
	done := []*offrampv1.OperationResult{{Outcome: offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE}}
	return &fakeDesk{
		plan: &offrampv1.OrderResult{Node: "worker-1", Outcome: orderDone, Plan: plan, ExitCode: 3},
		result: &offrampv1.OrderResult{Node: "worker-1", Outcome: orderDone, Cleanup: &offrampv1.CleanupResult{
			Node: "worker-1", PlanDigest: digest, BackupId: "b1", Operations: done}},
	}
}

func serveDesk(t *testing.T, desk *fakeDesk) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	offrampv1.RegisterCleanupServiceServer(server, desk)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	return listener.Addr().String()
}

func (f *fakeDesk) order(ctx context.Context, t *testing.T, args ...string) result {
	t.Helper()
	return call(ctx, map[string]string{"OFFRAMP_AGGREGATOR": serveDesk(t, f), "OFFRAMP_INSECURE_PLAINTEXT": "true"}, args...)
}

func digits() string { return "ab" + strings.Repeat("0", 62) }

func TestCleanupPlanAndApply(t *testing.T) {
	desk := newDesk()
	got := desk.order(t.Context(), t, "cleanup", "plan", "worker-1")
	got.want(t, 3, "kubectl-offramp cleanup apply worker-1 --target nftables --plan ab0000000000", "")
	got.want(t, 3, "destroy ipset KUBE-LOOP-BACK", "")
	desk.order(t.Context(), t, "cleanup", "plan", "worker-1", "--target", "none", "-o", "json").want(t, 3, `"exitCode": 3`, "")
	got = desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", digits())
	got.want(t, 0, "done: 1", "ipsets (0 of 2 operations)\n")
	if !strings.HasPrefix(desk.calls[1], "plan worker-1 TARGET_NONE ") || !strings.HasPrefix(desk.calls[2], "apply "+digits()+" ") || len(desk.calls) != 3 {
		t.Errorf("calls: %q", desk.calls)
	}
}

// A short digest is looked up in the plan of the node now; another one is refused before anything is ordered.
func TestCleanupApplyByAShortDigest(t *testing.T) {
	desk := newDesk()
	desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", "ab0000000000").want(t, 0, "done: 1", "ipsets")
	desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", "cd0000000000").want(t, 2, "Nothing was changed", "")
	if len(desk.calls) != 3 || !strings.HasPrefix(desk.calls[2], "plan") {
		t.Errorf("calls: %q", desk.calls)
	}
}

func TestCleanupOfANode(t *testing.T) {
	desk := newDesk()
	desk.order(t.Context(), t, "cleanup", "worker-1").want(t, 1, "", "nobody is there to ask")
	if len(desk.calls) != 0 {
		t.Errorf("calls: %q", desk.calls)
	}
	desk.order(t.Context(), t, "cleanup", "worker-1", "--dry-run").want(t, 3, "destroy ipset", "")
	if len(desk.calls) != 1 {
		t.Errorf("calls: %q", desk.calls)
	}
	desk.order(t.Context(), t, "cleanup", "worker-1", "--yes").want(t, 0, "Clean-up of node worker-1 for target nftables: done", "ipsets")
	if len(desk.calls) != 3 {
		t.Errorf("calls: %q", desk.calls)
	}
	// A guard in the way, or nothing to do: nothing is ordered.
	desk.plan.ExitCode = 2
	desk.order(t.Context(), t, "cleanup", "worker-1", "--yes").want(t, 2, "", "")
	desk.plan.Plan.Operations, desk.plan.ExitCode = nil, 0
	desk.order(t.Context(), t, "cleanup", "worker-1", "--yes").want(t, 0, "nothing to do", "")
	desk.plan = &offrampv1.OrderResult{Node: "worker-1", Outcome: orderRefused, Message: "takes no orders", ExitCode: 2}
	desk.order(t.Context(), t, "cleanup", "worker-1", "--yes").want(t, 2, "takes no orders", "")
	for _, made := range desk.calls[3:] {
		if !strings.HasPrefix(made, "plan") {
			t.Errorf("calls: %q", desk.calls)
		}
	}
}

// The same order is asked for again when a connection breaks.
func TestOrderGoesOn(t *testing.T) {
	desk := newDesk()
	desk.breaks, desk.err = 2, status.Error(codes.Unavailable, "stopping")
	told := desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", digits())
	told.want(t, 0, "done: 1", "stopping; asking again")
	if n := strings.Count(told.stderr, "asking again"); n != 1 {
		t.Errorf("it says %d times why it asks again, which is the same each time: %s", n, told.stderr)
	}
	if len(desk.calls) != 3 || desk.calls[0] != desk.calls[2] {
		t.Errorf("calls: %q", desk.calls)
	}
	// Another address does as well.
	desk = newDesk()
	address := serveDesk(t, desk)
	got := call(t.Context(), nil, "cleanup", "apply", "worker-1", "--plan", digits(), "--aggregator", "127.0.0.1:1", "--also-aggregator", address, "--insecure-plaintext")
	got.want(t, 0, "done: 1", "asking again")
}

// An aggregator that falls silent, before or after it has said that it passed the order on, is not waited for where another one can
// be asked: the order goes on under the same id.
func TestOrderGoesOnPastASilentAggregator(t *testing.T) {
	for what, silent := range map[string]*fakeDesk{"after it was placed": {silent: true}, "before": {deaf: true}} {
		t.Run(what, func(t *testing.T) {
			desk := newDesk()
			g := &giving{connection: &connection{aggregator: serveDesk(t, silent), timeout: time.Second}, also: []string{serveDesk(t, desk)},
				allowed: patient, stderr: io.Discard}
			g.tls.InsecurePlaintext = true
			o := orderOf(g)
			result, err := o.deliver(t.Context())
			want := []string{"restore b1 " + o.id}
			if tried, given := silent.taken(), desk.taken(); err != nil || result.GetOutcome() != orderDone || !slices.Equal(tried, want) || !slices.Equal(given, want) {
				t.Errorf("%v, %v, calls %q and %q", result, err, tried, given)
			}
		})
	}
}

// Where the only aggregator took the order and said nothing of it, nobody knows whether the node does it: that is no error, and the
// person is told how to look.
func TestOrderThatMayHaveBeenPassedOn(t *testing.T) {
	g := &giving{connection: &connection{aggregator: serveDesk(t, &fakeDesk{deaf: true}), timeout: time.Second}, allowed: 300 * time.Millisecond}
	g.tls.InsecurePlaintext = true
	var said strings.Builder
	g.stderr = &said
	_, err := orderOf(g).deliver(t.Context())
	if !errors.Is(err, program.Code(4)) || !strings.Contains(said.String(), "To see how it ended") {
		t.Errorf("it ends with %v and says %q", err, said.String())
	}
}

const patient = 10 * time.Second

func orderOf(g *giving) *order {
	id := newID()
	o := &order{id: id, doing: "a restore", again: "again", silence: 100 * time.Millisecond, unheard: 100 * time.Millisecond,
		call: func(ctx context.Context, client offrampv1.CleanupServiceClient, timeout *durationpb.Duration) (*answers, error) {
			return opened(client.Restore(ctx, &offrampv1.RestoreRequest{Node: "worker-1", OrderId: id, BackupId: "b1", Timeout: timeout}))
		}}
	o.giving, o.progress = g, newProgress(g.stderr)
	return o
}

func TestOrdersThatFail(t *testing.T) {
	for want, err := range map[string]error{
		"refuses the caller": status.Error(codes.PermissionDenied, "a viewer"),
		"another order":      status.Error(codes.InvalidArgument, "another order has this id"),
	} {
		desk := newDesk()
		desk.breaks, desk.err = 1, err
		desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", digits()).want(t, 1, "", want)
	}
	desk := newDesk()
	desk.breaks, desk.err = 1, status.Error(codes.DeadlineExceeded, "did not answer")
	desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", digits()).want(t, 4, "", "To see how it ended:\n  kubectl-offramp cleanup apply worker-1")
}

// Ctrl-C ends the program alone, which says how to look again, under the same id.
func TestInterruptedOrder(t *testing.T) {
	desk := newDesk()
	desk.silent = true
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	got := desk.order(ctx, t, "cleanup", "apply", "worker-1", "--plan", digits())
	got.want(t, 4, "", "The node goes on")
	id := regexp.MustCompile(`--plan ` + digits() + ` --order ([a-z0-9-]+)`).FindStringSubmatch(got.stderr)
	if id == nil || orderform.CheckID(id[1]) != nil || !strings.HasSuffix(desk.calls[0], id[1]) {
		t.Fatalf("it says %s, calls %q", got.stderr, desk.calls)
	}
	desk.speak()
	desk.order(t.Context(), t, "cleanup", "apply", "worker-1", "--plan", digits(), "--order", id[1]).want(t, 0, "done: 1", "ipsets")
	if desk.calls[0] != desk.calls[1] {
		t.Errorf("calls: %q", desk.calls)
	}
}

func TestRestoreOfANode(t *testing.T) {
	desk := newDesk()
	desk.result = &offrampv1.OrderResult{Node: "worker-1", Outcome: orderDone, Message: "backup b1", Restored: []string{"ipset X: restored"}}
	desk.order(t.Context(), t, "restore", "worker-1", "--backup", "b1").want(t, 0, "  - ipset X: restored", "")
	desk.result.Outcome = orderRefused
	desk.order(t.Context(), t, "cleanup", "restore", "worker-1").want(t, 1, "", "backup b1") // refused, and yet exit code 0: an error
	desk.result.ExitCode = 2
	desk.order(t.Context(), t, "cleanup", "restore", "worker-1").want(t, 2, "", "")
}

func TestOrderMistakesExitWith1(t *testing.T) {
	for want, args := range map[string][]string{
		"hexadecimal digits":    {"apply", "worker-1", "--plan", "xyz"},
		"12 to 64":              {"apply", "worker-1"},
		"up to 1h":              {"plan", "worker-1", "--timeout", "2h"},
		"--order: the id":       {"plan", "worker-1", "--order", "short"},
		"wants one node name":   {"plan"},
		"--order goes with":     {"worker-1", "--order", "0123456789abcdef", "--yes"},
		"--aggregator wants":    {"plan", "worker-1", "--also-aggregator", "nowhere"},
		"--order wants all 64 ": {"apply", "worker-1", "--plan", "ab0000000000", "--order", "0123456789abcdef"},
	} {
		desk := newDesk()
		desk.order(t.Context(), t, append([]string{"cleanup"}, args...)...).want(t, 1, "", want)
		if len(desk.calls) != 0 {
			t.Errorf("%q: calls %q", args, desk.calls)
		}
	}
}
