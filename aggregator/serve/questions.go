package serve

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/fleet"
	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// questions is FleetService.
type questions struct {
	offrampv1.UnimplementedFleetServiceServer

	store    *fleet.Store
	around   fleet.Cluster
	lists    *lists
	streams  *streams
	timeouts timeouts
	audit    *auditor
	// acceptances and endpoints are nil without the Kubernetes API.
	acceptances Acceptances
	endpoints   EndpointNames
}

// EndpointNames names what stands behind the addresses of a Service's endpoints: "10.244.1.7" is "pod default/web-1 on node-a".
type EndpointNames func(ctx context.Context, namespace, service string) (map[string]string, error)

// target reads the target of a question: nftables unless another is named.
func target(asked offrampv1.Target) (offrampv1.Target, error) {
	if asked == offrampv1.Target_TARGET_UNSPECIFIED {
		return offrampv1.Target_TARGET_NFTABLES, nil
	}
	if _, known := offrampv1.Target_name[int32(asked)]; !known {
		return asked, status.Errorf(codes.InvalidArgument, "target %d is not known to this aggregator", asked)
	}
	return asked, nil
}

// GetNode tells everything about one node.
func (q *questions) GetNode(ctx context.Context, request *offrampv1.GetNodeRequest) (*offrampv1.GetNodeResponse, error) {
	target, err := target(request.GetTarget())
	if err != nil {
		return nil, err
	}
	if err := facts.CheckNodeName(request.GetNode()); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if err := checkLists(request.GetLists()); err != nil {
		return nil, err
	}
	summary, node := q.store.Node(target, request.GetNode())
	if summary == nil {
		return nil, status.Errorf(codes.NotFound, "node %q never reported to this aggregator", request.GetNode())
	}
	answer := &offrampv1.GetNodeResponse{Summary: summary, Facts: node}
	for _, name := range request.GetLists() {
		answer.Lists = append(answer.Lists, q.list(ctx, node, name))
	}
	return answer, nil
}

func checkLists(names []offrampv1.ListName) error {
	seen := map[offrampv1.ListName]bool{}
	for _, name := range names {
		if _, known := offrampv1.ListName_name[int32(name)]; !known || name == offrampv1.ListName_LIST_NAME_UNSPECIFIED {
			return status.Errorf(codes.InvalidArgument, "list %d is not known to this aggregator", name)
		}
		if seen[name] {
			return status.Errorf(codes.InvalidArgument, "list %v is asked for twice", name)
		}
		seen[name] = true
	}
	return nil
}

// list brings one list of a node, or says why it cannot.
func (q *questions) list(ctx context.Context, node *offrampv1.NodeFacts, name offrampv1.ListName) *offrampv1.NamedList {
	want := reported(node, name)
	if want == nil {
		return &offrampv1.NamedList{List: &offrampv1.ListDigest{Name: name}, Error: "the node reported no such list"}
	}
	// Only links of this package are ever given to the store.
	l, _ := q.store.Link(node.GetNode()).(*link)
	items, err := q.lists.get(ctx, l, want)
	if err != nil {
		return &offrampv1.NamedList{List: want, Error: err.Error()}
	}
	return &offrampv1.NamedList{List: want, Items: items}
}

// reported finds the digest of a list; nil when the node reported none.
func reported(node *offrampv1.NodeFacts, name offrampv1.ListName) *offrampv1.ListDigest {
	for _, section := range node.GetSections() {
		stable := section.GetStable()
		for _, list := range []*offrampv1.ListDigest{
			stable.GetIpvs().GetList(), stable.GetIpvsLink().GetList(), stable.GetNftables().GetList(),
		} {
			if list != nil && list.GetName() == name {
				return list
			}
		}
	}
	return nil
}

// Watch sends every node once, then a mark, then every change. A reader that is slow gets the latest of each node.
func (q *questions) Watch(request *offrampv1.WatchRequest, stream grpc.ServerStreamingServer[offrampv1.WatchResponse]) error {
	target, err := target(request.GetTarget())
	if err != nil {
		return err
	}
	ender := enderOf(stream.Context())
	defer q.streams.add(ender)()
	return ender.reason(q.follow(target, stream))
}

func (q *questions) follow(target offrampv1.Target, stream grpc.ServerStreamingServer[offrampv1.WatchResponse]) error {
	watcher := q.store.Watch(target)
	defer watcher.Close()
	if err := q.sendAll(target, stream); err != nil {
		return err
	}
	for {
		event, err := watcher.Next(stream.Context())
		if err != nil {
			return status.FromContextError(err).Err()
		}
		if err := stream.Send(event); err != nil {
			return err
		}
	}
}

// sendAll sends what is known now, in pages so that a large fleet is never held twice, and the mark.
func (q *questions) sendAll(target offrampv1.Target, stream grpc.ServerStreamingServer[offrampv1.WatchResponse]) error {
	var sent uint64
	for after, more := "", true; more; {
		var page []*offrampv1.NodeSummary
		page, more = q.store.Summaries(target, fleet.Filter{}, after, defaultPage)
		for _, node := range page {
			if err := stream.Send(&offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Node{Node: node}}); err != nil {
				return err
			}
			after = node.GetNode()
			sent++
		}
	}
	synced := &offrampv1.Synced{Nodes: sent, Incomplete: q.store.Incomplete()}
	return stream.Send(&offrampv1.WatchResponse{Event: &offrampv1.WatchResponse_Synced{Synced: synced}})
}
