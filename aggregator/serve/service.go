package serve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/aggregator/fleet"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// askedAtOnce is how many nodes are asked for a Service at the same time.
const askedAtOnce = 32

// maxServiceItems bounds what one node may say of one Service.
const maxServiceItems = 2000

// GetService asks every node what it has for one Service, and passes the answers on as they come.
func (q *questions) GetService(request *offrampv1.GetServiceRequest, stream grpc.ServerStreamingServer[offrampv1.GetServiceResponse]) error {
	selector, err := q.selector(request.GetSelector())
	if err != nil {
		return err
	}
	service, err := q.service(request)
	if err != nil {
		return err
	}
	ender := enderOf(stream.Context())
	defer q.streams.add(ender)()
	if err := stream.Send(&offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Service{Service: service}}); err != nil {
		return err
	}
	fan := &fanOut{questions: q, service: service, stream: stream, names: q.names(stream.Context(), service)}
	// Before the nodes are listed: who reports for the first time in between is rather called missing than left out in silence.
	fan.summary.Incomplete = q.missing(fleet.Filter{Selector: selector})
	return ender.reason(fan.ask(stream.Context(), q.store.Names(fleet.Filter{Selector: selector})))
}

func (q *questions) service(request *offrampv1.GetServiceRequest) (*offrampv1.ClusterService, error) {
	known := q.around.Facts()
	if known == nil {
		return nil, status.Error(codes.FailedPrecondition, "this aggregator does not know the Services: the Kubernetes API is not asked, or has not answered yet")
	}
	for _, service := range known.GetServices() {
		if service.GetNamespace() == request.GetNamespace() && service.GetName() == request.GetName() {
			return service, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no Service %q in namespace %q", request.GetName(), request.GetNamespace())
}

// names are those of the Service's endpoints; without them addresses stay addresses.
func (q *questions) names(ctx context.Context, service *offrampv1.ClusterService) map[string]string {
	if q.endpoints == nil {
		return nil
	}
	names, err := q.endpoints(ctx, service.GetNamespace(), service.GetName())
	if err != nil {
		return nil
	}
	return names
}

// fanOut is one question to many nodes.
type fanOut struct {
	questions *questions
	service   *offrampv1.ClusterService
	names     map[string]string

	mu      sync.Mutex
	stream  grpc.ServerStreamingServer[offrampv1.GetServiceResponse]
	summary offrampv1.ServiceSummary
	failed  error
}

// ask asks all nodes, askedAtOnce at a time, and ends with the summary.
func (f *fanOut) ask(ctx context.Context, nodes []string) error {
	ctx, cancel := context.WithTimeout(ctx, f.questions.timeouts.detail)
	defer cancel()
	room := make(chan struct{}, askedAtOnce)
	var group sync.WaitGroup
	for _, node := range nodes {
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			f.take(f.one(ctx, node), cancel)
		})
	}
	group.Wait()
	if f.failed != nil {
		return f.failed
	}
	return f.stream.Send(&offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Summary{Summary: &f.summary}})
}

// take passes one answer on.
func (f *fanOut) take(answer *offrampv1.NodeService, cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.summary.Asked++
	if answer.GetError() == "" {
		f.summary.Answered++
	} else if len(f.summary.GetSilentSamples()) < maxNames {
		f.summary.SilentSamples = append(f.summary.GetSilentSamples(), answer.GetNode())
	}
	if f.failed != nil {
		return
	}
	if err := f.stream.Send(&offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Node{Node: answer}}); err != nil {
		f.failed = err
		cancel()
	}
}

// maxNames bounds samples of node names (fleet.proto).
const maxNames = 20

// one asks one node, port by port.
func (f *fanOut) one(ctx context.Context, node string) *offrampv1.NodeService {
	summary := f.questions.store.Summary(offrampv1.Target_TARGET_NFTABLES, node)
	answer := &offrampv1.NodeService{Node: node, RunningMode: summary.GetAssessment().GetRunningMode()}
	l, _ := f.questions.store.Link(node).(*link)
	if l == nil {
		answer.Error = errNotConnected.Error()
		return answer
	}
	for _, query := range queries(f.service) {
		if err := f.query(ctx, l, query, answer); err != nil {
			answer.Error = status.Convert(err).Message()
			return answer
		}
	}
	return answer
}

func (f *fanOut) query(ctx context.Context, l *link, query *offrampv1.ServiceQuery, answer *offrampv1.NodeService) error {
	limits := f.questions.timeouts
	waiting := newRelay(limits.slowReader, func(error) {})
	request := &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Service{Service: query}}
	return l.relay(ctx, request, waiting, limits.list, func(part *offrampv1.DetailPart) error {
		for _, item := range part.GetItems() {
			if len(answer.GetEntries()) >= maxServiceItems {
				return status.Errorf(codes.ResourceExhausted, "the node has more than %d entries for this Service", maxServiceItems)
			}
			answer.Entries = append(answer.Entries, f.entry(item))
		}
		if part.GetError() != "" {
			return status.Error(codes.Unknown, nodeSays(part.GetError()))
		}
		return nil
	})
}

// queries are one per port: all addresses of the Service together.
func queries(service *offrampv1.ClusterService) []*offrampv1.ServiceQuery {
	addresses := slices.Concat(service.GetClusterIps(), service.GetExternalIps(), service.GetLoadBalancerIps())
	addresses = addresses[:min(len(addresses), maxAddresses)]
	var all []*offrampv1.ServiceQuery
	for _, port := range service.GetPorts() {
		if len(addresses) == 0 && port.GetNodePort() == 0 {
			continue
		}
		all = append(all, &offrampv1.ServiceQuery{Protocol: port.GetProtocol(), Addresses: addresses, Port: port.GetPort(), NodePort: port.GetNodePort()})
	}
	return all
}

// entry is one line of a node's answer, with names for the addresses in it.
func (f *fanOut) entry(item string) *offrampv1.ServiceEntry {
	entry := &offrampv1.ServiceEntry{Text: item}
	entry.Kind, entry.Mode = kindOf(item)
	for _, word := range strings.FieldsFunc(item, func(r rune) bool { return r == ' ' || r == ',' }) {
		address, ok := addressIn(word)
		if name := f.names[address]; ok && name != "" && !slices.Contains(entry.GetNames(), address+" is "+name) {
			entry.Names = append(entry.Names, address+" is "+name)
		}
	}
	if entry.GetKind() == realServer {
		entry.ActiveConnections, entry.InactiveConnections = connectionsIn(item)
	}
	return entry
}

// addressIn reads an address, with or without a port.
func addressIn(word string) (string, bool) {
	if pair, err := netip.ParseAddrPort(word); err == nil {
		return pair.Addr().String(), true
	}
	address, err := netip.ParseAddr(word)
	return address.String(), err == nil
}

const realServer = "real server"

// kindOf says what a line of the agent's is, by how it begins (agent/collect, serviceServer.items and the lines of rules).
func kindOf(item string) (string, offrampv1.ProxyMode) {
	switch {
	case strings.HasPrefix(item, "ipvs "):
		return "virtual server", offrampv1.ProxyMode_PROXY_MODE_IPVS
	case strings.HasPrefix(item, "  -> "):
		return realServer, offrampv1.ProxyMode_PROXY_MODE_IPVS
	case strings.HasPrefix(item, "-A "):
		return "iptables rule", offrampv1.ProxyMode_PROXY_MODE_IPTABLES
	default:
		return "nftables entry", offrampv1.ProxyMode_PROXY_MODE_NFTABLES
	}
}

// connectionsIn reads "… weight 1, 3 active and 1 inactive connections" of a real server.
func connectionsIn(item string) (active, inactive uint64) {
	_, counts, _ := strings.Cut(item, "weight ")
	var weight uint64
	// What is not written so has no counts.
	_, _ = fmt.Sscanf(counts, "%d, %d active and %d inactive connections", &weight, &active, &inactive)
	return active, inactive
}
