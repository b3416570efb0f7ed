package serve

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/labels"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/readiness"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// selector reads a label selector. Without the Kubernetes API there are no labels to go by, and saying so is better than an
// empty answer.
func (q *questions) selector(text string) (labels.Selector, error) {
	if text == "" {
		return labels.Everything(), nil
	}
	if len(text) > maxName {
		return nil, status.Errorf(codes.InvalidArgument, "a selector has at most %d bytes, not %d", maxName, len(text))
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "selector %q: %v", text, err)
	}
	if q.around.Facts() == nil {
		return nil, status.Error(codes.FailedPrecondition, "this aggregator does not know the nodes' labels: the Kubernetes API is not asked, or has not answered yet")
	}
	return selector, nil
}

// GetReadiness judges the fleet, or a part of it, for one target.
func (q *questions) GetReadiness(_ context.Context, request *offrampv1.GetReadinessRequest) (*offrampv1.GetReadinessResponse, error) {
	target, err := target(request.GetTarget())
	if err != nil {
		return nil, err
	}
	selector, err := q.selector(request.GetSelector())
	if err != nil {
		return nil, err
	}
	answer := q.store.Readiness(target, fleet.Filter{Selector: selector}, request.GetForVersion())
	if request.GetForVersion() != "" && answer.GetUpgrade() == nil {
		return nil, status.Errorf(codes.InvalidArgument, "%.40q is no version of Kubernetes 1, such as 1.40", request.GetForVersion())
	}
	return answer, nil
}

// ListNodes lists the nodes by name, page by page.
func (q *questions) ListNodes(_ context.Context, request *offrampv1.ListNodesRequest) (*offrampv1.ListNodesResponse, error) {
	target, err := target(request.GetTarget())
	if err != nil {
		return nil, err
	}
	size := int(request.GetPageSize())
	if size == 0 {
		size = defaultPage
	}
	if size > maxPage {
		return nil, status.Errorf(codes.InvalidArgument, "page_size is 1 to %d, not %d", maxPage, size)
	}
	after, err := readToken(request.GetPageToken())
	if err != nil {
		return nil, err
	}
	filter, err := q.filter(request)
	if err != nil {
		return nil, err
	}
	nodes, more := q.store.Summaries(target, filter, after, size)
	answer := &offrampv1.ListNodesResponse{Nodes: nodes, At: timestamppb.Now(), Incomplete: q.store.Incomplete()}
	if more {
		answer.NextPageToken = makeToken(nodes[len(nodes)-1].GetNode())
	}
	return answer, nil
}

func (q *questions) filter(request *offrampv1.ListNodesRequest) (fleet.Filter, error) {
	selector, err := q.selector(request.GetSelector())
	if err != nil {
		return fleet.Filter{}, err
	}
	if id := request.GetFindingId(); id != "" && id != "assessment-failed" {
		if _, known := readiness.Explain(id); !known {
			return fleet.Filter{}, status.Errorf(codes.InvalidArgument, "there is no finding %.100q", id)
		}
	}
	return fleet.Filter{
		Selector: selector, Phases: request.GetPhases(), WithLeftovers: request.GetWithLeftovers(), FindingID: request.GetFindingId(),
		RunningMode: request.GetRunningMode(),
	}, nil
}

// GetCluster returns what the Kubernetes API says, without the parts that may be large.
func (q *questions) GetCluster(context.Context, *offrampv1.GetClusterRequest) (*offrampv1.GetClusterResponse, error) {
	known := q.around.Facts()
	if known == nil {
		return nil, status.Error(codes.FailedPrecondition, "this aggregator does not ask the Kubernetes API, or had no answer yet")
	}
	answer := &offrampv1.GetClusterResponse{Nodes: uint64(len(known.GetNodes())), Services: uint64(len(known.GetServices()))}
	answer.Cluster = &offrampv1.ClusterFacts{
		Sources: known.GetSources(), ServerVersion: known.GetServerVersion(), KubeProxies: known.GetKubeProxies(),
		KubeProxyConfigs: known.GetKubeProxyConfigs(), ServiceCidrs: known.GetServiceCidrs(), Networks: known.GetNetworks(), Events: known.GetEvents(),
	}
	return answer, nil
}

// defaultChanges is how many changes an answer has when nothing is said.
const defaultChanges = 200

// ListChanges tells what happened on one node or on all, newest first.
func (q *questions) ListChanges(_ context.Context, request *offrampv1.ListChangesRequest) (*offrampv1.ListChangesResponse, error) {
	if request.GetLimit() > maxPage {
		return nil, status.Errorf(codes.InvalidArgument, "limit is 1 to %d, not %d", maxPage, request.GetLimit())
	}
	if node := request.GetNode(); node != "" {
		if err := facts.CheckNodeName(node); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if q.store.Summary(offrampv1.Target_TARGET_NFTABLES, node) == nil {
			return nil, status.Errorf(codes.NotFound, "node %q never reported to this aggregator", node)
		}
	}
	limit := int(request.GetLimit())
	if limit == 0 {
		limit = defaultChanges
	}
	answer := q.store.Changes(request.GetNode(), request.GetSince().AsTime(), limit)
	if request.GetNode() == "" {
		answer.NodesMissing = q.missing(fleet.Filter{})
	}
	return answer, nil
}
