package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fakeFleet answers with what a test gives it.
type fakeFleet struct {
	offrampv1.UnimplementedFleetServiceServer
	readiness *offrampv1.GetReadinessResponse
	nodes     []*offrampv1.NodeSummary
	node      *offrampv1.GetNodeResponse
	events    []*offrampv1.WatchResponse
	details   []*offrampv1.GetDetailResponse
	asked     *offrampv1.GetDetailRequest
	changes   *offrampv1.ListChangesResponse
	accepted  []*offrampv1.Acceptance
	answers   []*offrampv1.GetServiceResponse
	// stubborn answers for the target of readiness, whatever was asked for.
	stubborn bool
	// hold keeps a watch open after its events.
	hold bool
	// err, when set, is the answer to everything.
	err error
	// sameToken makes every page name the same next page.
	sameToken bool

	mu    sync.Mutex
	calls []string
}

func (f *fakeFleet) called(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeFleet) GetReadiness(_ context.Context, request *offrampv1.GetReadinessRequest) (*offrampv1.GetReadinessResponse, error) {
	f.called("readiness %v%s", request.GetTarget(), beside(request.GetSelector(), request.GetForVersion()))
	if f.stubborn || f.readiness == nil {
		return f.readiness, f.err
	}
	answer := proto.CloneOf(f.readiness)
	answer.Target = request.GetTarget()
	return answer, f.err
}

// beside lists what else was asked for.
func beside(texts ...string) string {
	line := ""
	for _, text := range texts {
		if text != "" {
			line += " " + text
		}
	}
	return line
}

// ListNodes gives two nodes a page, whatever was asked for.
func (f *fakeFleet) ListNodes(_ context.Context, request *offrampv1.ListNodesRequest) (*offrampv1.ListNodesResponse, error) {
	also := beside(request.GetSelector(), request.GetFindingId())
	if request.GetWithLeftovers() {
		also += " leftovers"
	}
	for _, phase := range request.GetPhases() {
		also += " " + phase.String()
	}
	if mode := request.GetRunningMode(); mode != 0 {
		also += " " + mode.String()
	}
	f.called("nodes %v %q%s", request.GetTarget(), request.GetPageToken(), also)
	if f.err != nil {
		return nil, f.err
	}
	var from int
	if token := request.GetPageToken(); token != "" && !f.sameToken {
		if _, err := fmt.Sscan(token, &from); err != nil {
			return nil, status.Error(codes.InvalidArgument, "bad page token")
		}
	}
	to := min(from+2, len(f.nodes))
	page := &offrampv1.ListNodesResponse{Nodes: f.nodes[from:to]}
	if to < len(f.nodes) {
		page.NextPageToken = fmt.Sprint(to)
	}
	return page, nil
}

func (f *fakeFleet) GetNode(_ context.Context, request *offrampv1.GetNodeRequest) (*offrampv1.GetNodeResponse, error) {
	f.called("node %s %v %v", request.GetNode(), request.GetTarget(), request.GetLists())
	return f.node, f.err
}

func (f *fakeFleet) Watch(request *offrampv1.WatchRequest, stream grpc.ServerStreamingServer[offrampv1.WatchResponse]) error {
	f.called("watch %v", request.GetTarget())
	for _, event := range f.events {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	if f.hold {
		// As a server ends it: without an error the stream would now and then be over before the caller's time is.
		<-stream.Context().Done()
		return cmp.Or(f.err, status.FromContextError(stream.Context().Err()).Err())
	}
	return f.err
}

func (f *fakeFleet) GetDetail(request *offrampv1.GetDetailRequest, stream grpc.ServerStreamingServer[offrampv1.GetDetailResponse]) error {
	f.mu.Lock()
	f.asked = request
	f.mu.Unlock()
	for _, part := range f.details {
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return f.err
}

func (f *fakeFleet) GetService(request *offrampv1.GetServiceRequest, stream grpc.ServerStreamingServer[offrampv1.GetServiceResponse]) error {
	f.called("service %s/%s%s", request.GetNamespace(), request.GetName(), beside(request.GetSelector()))
	for _, event := range f.answers {
		if err := stream.Send(event); err != nil {
			return err
		}
	}
	if f.hold {
		// As a server ends it: without an error the stream would now and then be over before the caller's time is.
		<-stream.Context().Done()
		return cmp.Or(f.err, status.FromContextError(stream.Context().Err()).Err())
	}
	return f.err
}

func (f *fakeFleet) ListChanges(_ context.Context, request *offrampv1.ListChangesRequest) (*offrampv1.ListChangesResponse, error) {
	since := "ever"
	if request.GetSince() != nil {
		since = request.GetSince().AsTime().Format(time.RFC3339)
	}
	f.called("changes %q since %s, %d", request.GetNode(), since, request.GetLimit())
	return f.changes, f.err
}

func (f *fakeFleet) AcceptFinding(_ context.Context, request *offrampv1.AcceptFindingRequest) (*offrampv1.AcceptFindingResponse, error) {
	f.called("accept %s on %q until %s: %s", request.GetFindingId(), request.GetSelector(), request.GetUntil().AsTime().Format(time.RFC3339), request.GetReason())
	return &offrampv1.AcceptFindingResponse{Acceptance: &offrampv1.Acceptance{Id: "a1b2", FindingId: request.GetFindingId(), Selector: request.GetSelector(),
		Reason: request.GetReason(), Author: "ada", At: timestamppb.New(noon), Until: request.GetUntil()}}, f.err
}

func (f *fakeFleet) WithdrawAcceptance(_ context.Context, request *offrampv1.WithdrawAcceptanceRequest) (*offrampv1.WithdrawAcceptanceResponse, error) {
	f.called("withdraw %s", request.GetId())
	return &offrampv1.WithdrawAcceptanceResponse{}, f.err
}

func (f *fakeFleet) ListAcceptances(context.Context, *offrampv1.ListAcceptancesRequest) (*offrampv1.ListAcceptancesResponse, error) {
	f.called("acceptances")
	return &offrampv1.ListAcceptancesResponse{Acceptances: f.accepted}, f.err
}

// serve runs the fake on loopback until the test ends, and returns its address.
func serve(t *testing.T, fleet offrampv1.FleetServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	offrampv1.RegisterFleetServiceServer(server, fleet)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return listener.Addr().String()
}

// result is what a run of the program left.
type result struct {
	code           int
	stdout, stderr string
}

func call(ctx context.Context, environment map[string]string, args ...string) result {
	var stdout, stderr bytes.Buffer
	lookup := func(name string) (string, bool) { value, found := environment[name]; return value, found }
	code := run(ctx, args, lookup, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// ask runs the program against the fake, in plaintext.
func ask(t *testing.T, fleet *fakeFleet, args ...string) result {
	t.Helper()
	address := serve(t, fleet)
	return call(t.Context(), map[string]string{"OFFRAMP_AGGREGATOR": address, "OFFRAMP_INSECURE_PLAINTEXT": "true"}, args...)
}

func summaryOf(name string, ready offrampv1.Verdict) *offrampv1.NodeSummary {
	return &offrampv1.NodeSummary{Node: name, KernelRelease: "6.1.0-49-cloud-amd64", LastSeen: timestamppb.New(noon),
		Assessment: &offrampv1.Assessment{Ready: ready, Phase: offrampv1.Phase_PHASE_ON_IPVS,
			RunningMode: offrampv1.ProxyMode_PROXY_MODE_IPVS, Leftovers: &offrampv1.Leftovers{}}}
}

func someNodes(n int) []*offrampv1.NodeSummary {
	nodes := make([]*offrampv1.NodeSummary, n)
	for i := range nodes {
		nodes[i] = summaryOf(fmt.Sprintf("worker-%d", i+1), offrampv1.Verdict_VERDICT_READY)
	}
	return nodes
}

func fleetOf(nodes, ready, blocked, unknown uint64) *offrampv1.GetReadinessResponse {
	return &offrampv1.GetReadinessResponse{Target: offrampv1.Target_TARGET_NFTABLES, Nodes: nodes, Ready: ready, Blocked: blocked, Unknown: unknown,
		At: timestamppb.New(noon), ListeningSince: timestamppb.New(noon.Add(-time.Hour)), Leftovers: &offrampv1.Leftovers{}}
}
