package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// errNotConnected says that a node has no stream to this aggregator.
var errNotConnected = errors.New("the node is not connected")

// GetDetail asks a node for more than its report carries and passes the answer on as it comes.
func (q *questions) GetDetail(request *offrampv1.GetDetailRequest, stream grpc.ServerStreamingServer[offrampv1.GetDetailResponse]) error {
	if err := checkDetail(request); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	ender := enderOf(stream.Context())
	defer q.streams.add(ender)()
	return ender.reason(q.detail(ender, request, stream))
}

func (q *questions) detail(ender *ender, request *offrampv1.GetDetailRequest, stream grpc.ServerStreamingServer[offrampv1.GetDetailResponse]) error {
	if q.store.Summary(offrampv1.Target_TARGET_NFTABLES, request.GetNode()) == nil {
		return status.Errorf(codes.NotFound, "node %q never reported to this aggregator", request.GetNode())
	}
	if _, isList := request.GetDetail().(*offrampv1.GetDetailRequest_List); isList {
		_, node := q.store.Node(offrampv1.Target_TARGET_NFTABLES, request.GetNode())
		return q.sendList(stream, node, request.GetList())
	}
	l, _ := q.store.Link(request.GetNode()).(*link)
	if l == nil {
		return status.Error(codes.Unavailable, errNotConnected.Error())
	}
	ctx, cancel := context.WithTimeout(stream.Context(), q.timeouts.detail)
	defer cancel()
	defer context.AfterFunc(ctx, func() { ender.end(status.FromContextError(ctx.Err()).Err()) })()
	waiting := newRelay(q.timeouts.slowReader, ender.end)
	return l.relay(ctx, detailRequest(request), waiting, q.timeouts.list, func(part *offrampv1.DetailPart) error {
		return stream.Send(&offrampv1.GetDetailResponse{Items: part.GetItems(), Error: nodeSays(part.GetError())})
	})
}

// sendList sends a list, which may be kept here, in pieces.
func (q *questions) sendList(stream grpc.ServerStreamingServer[offrampv1.GetDetailResponse], node *offrampv1.NodeFacts, name offrampv1.ListName) error {
	if reported(node, name) == nil {
		return status.Errorf(codes.NotFound, "node %q reported no such list", node.GetNode())
	}
	list := q.list(stream.Context(), node, name)
	if list.GetError() == errNotConnected.Error() {
		return status.Error(codes.Unavailable, list.GetError())
	}
	items := list.GetItems()
	for len(items) > listPiece {
		if err := stream.Send(&offrampv1.GetDetailResponse{Items: items[:listPiece]}); err != nil {
			return err
		}
		items = items[listPiece:]
	}
	return stream.Send(&offrampv1.GetDetailResponse{Items: items, Error: list.GetError()})
}

func detailRequest(request *offrampv1.GetDetailRequest) *offrampv1.DetailRequest {
	switch detail := request.GetDetail().(type) {
	case *offrampv1.GetDetailRequest_Service:
		return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Service{Service: detail.Service}}
	case *offrampv1.GetDetailRequest_Ipset:
		return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Ipset{Ipset: detail.Ipset}}
	case *offrampv1.GetDetailRequest_Chain:
		return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Chain{Chain: detail.Chain}}
	default:
		return nil
	}
}

// relay asks the agent and hands each part of its answer to take, in order, until the last one. It returns a status: of
// an answer that broke off here, and the error of take. What the node says went wrong is in the last part.
func (l *link) relay(ctx context.Context, request *offrampv1.DetailRequest, waiting *relay, limit time.Duration, take func(*offrampv1.DetailPart) error) error {
	id, err := l.details.expect(waiting)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	defer l.callOff(id, limit)
	defer close(waiting.gone)
	request.Id = id
	if err := l.send(&offrampv1.ConnectResponse{Message: &offrampv1.ConnectResponse_DetailRequest{DetailRequest: request}}, limit); err != nil {
		return status.Errorf(codes.Unavailable, "ask the node: %v", err)
	}
	for {
		select {
		case part, more := <-waiting.parts:
			if !more {
				if waiting.failed == nil {
					l.details.forget(id)
				}
				return broken(waiting.failed)
			}
			if err := take(part); err != nil {
				return err
			}
		case <-l.stream.Context().Done():
			return status.Error(codes.Unavailable, "the node's stream ended before it answered")
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// broken is the status of an answer that was given up here; nil for one that is complete.
func broken(failed error) error {
	switch {
	case failed == nil:
		return nil
	case errors.Is(failed, errSlowReader), errors.Is(failed, errLargeAnswer):
		return status.Error(codes.ResourceExhausted, failed.Error())
	default:
		return status.Error(codes.Unavailable, "the node's stream ended before it answered")
	}
}

// checkDetail says what is wrong with a request, before a node is bothered with it.
func checkDetail(request *offrampv1.GetDetailRequest) error {
	if err := facts.CheckNodeName(request.GetNode()); err != nil {
		return err
	}
	switch detail := request.GetDetail().(type) {
	case *offrampv1.GetDetailRequest_List:
		return checkLists([]offrampv1.ListName{detail.List})
	case *offrampv1.GetDetailRequest_Ipset:
		return checkNames(detail.Ipset)
	case *offrampv1.GetDetailRequest_Chain:
		return checkChain(detail.Chain)
	case *offrampv1.GetDetailRequest_Service:
		return checkService(detail.Service)
	default:
		return errors.New("a detail is a list, a Service, an ipset or a chain")
	}
}

// checkNames bounds names as reports write them: a byte takes up to four.
func checkNames(names ...string) error {
	for _, name := range names {
		if name == "" || len(name) > maxName {
			return fmt.Errorf("a name has 1 to %d bytes, not %d", maxName, len(name))
		}
	}
	return nil
}

func checkChain(chain *offrampv1.ChainQuery) error {
	switch chain.GetSection() {
	case offrampv1.SectionKind_SECTION_KIND_NFTABLES:
		return checkNames(chain.GetFamily(), chain.GetTable(), chain.GetChain())
	case offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6,
		offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6:
		return checkNames(chain.GetTable(), chain.GetChain())
	default:
		return fmt.Errorf("section %v has no chains", chain.GetSection())
	}
}

func checkService(service *offrampv1.ServiceQuery) error {
	switch service.GetProtocol() {
	case "TCP", "UDP", "SCTP":
	default:
		return fmt.Errorf("protocol %.20q is not TCP, UDP or SCTP", service.GetProtocol())
	}
	return checkServiceAddresses(service)
}

func checkServiceAddresses(service *offrampv1.ServiceQuery) error {
	addresses := service.GetAddresses()
	switch {
	case len(addresses) > maxAddresses:
		return fmt.Errorf("%d addresses, more than %d", len(addresses), maxAddresses)
	case max(service.GetPort(), service.GetNodePort()) > math.MaxUint16:
		return errors.New("a port is at most 65535")
	case len(addresses) > 0 && service.GetPort() == 0:
		return errors.New("addresses without a port")
	case len(addresses) == 0 && service.GetNodePort() == 0:
		return errors.New("a Service is asked for by addresses with a port, or by a node port")
	}
	for _, address := range addresses {
		if _, err := netip.ParseAddr(address); err != nil {
			return fmt.Errorf("%.64q is no IP address", address)
		}
	}
	return nil
}

// nodeSays marks what comes from a node; it is bounded.
func nodeSays(failed string) string {
	if failed == "" {
		return ""
	}
	return fmt.Sprintf("the node says: %.1024s", failed)
}
