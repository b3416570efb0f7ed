package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxQueryAddresses bounds ServiceQuery.addresses, as agent.proto says.
const maxQueryAddresses = 32

// serviceQuery is a ServiceQuery, checked.
type serviceQuery struct {
	protocol       uint8
	addresses      []netip.Addr
	port, nodePort uint16
}

var errServiceQuery = errors.New("a Service is asked for by protocol, at most 32 addresses with a port, and a node port")

func parseServiceQuery(query *offrampv1.ServiceQuery) (serviceQuery, error) {
	parsed := serviceQuery{port: uint16(query.GetPort()), nodePort: uint16(query.GetNodePort())} //nolint:gosec // checked below
	protocols := map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}
	parsed.protocol = protocols[query.GetProtocol()]
	if parsed.protocol == 0 || len(query.GetAddresses()) > maxQueryAddresses || max(query.GetPort(), query.GetNodePort()) > 65535 {
		return parsed, errServiceQuery
	}
	for _, text := range query.GetAddresses() {
		address, err := netip.ParseAddr(text)
		if err != nil || query.GetPort() == 0 {
			return parsed, errors.Join(errServiceQuery, err)
		}
		parsed.addresses = append(parsed.addresses, address.Unmap())
	}
	return parsed, nil
}

// serviceDetail hands out what stands for a Service in kube-proxy's nftables maps and in the iptables rules of both
// backends, and the chains that it leads to.
func (r *ruleReader) serviceDetail(ctx context.Context, query *offrampv1.ServiceQuery, out *detailItems) error {
	parsed, err := parseServiceQuery(query)
	if err != nil {
		return err
	}
	for _, family := range []uint8{unix.NFPROTO_IPV4, unix.NFPROTO_IPV6} {
		source, openErr := r.openNFTSource(ctx, family)
		if openErr == nil {
			openErr = errors.Join(source.serviceElements(ctx, &parsed, out), source.serviceRules(ctx, &parsed, out), source.close())
		}
		err = errors.Join(err, besidesAbsence(openErr))
	}
	for _, layout := range []legacyLayout{legacyIPv4(), legacyIPv6()} {
		source := r.openLegacySource(ctx, layout)
		err = errors.Join(err, besidesAbsence(source.serviceRules(ctx, &parsed, out)))
	}
	return err
}

// besidesAbsence drops an error that says no more than that there is nothing.
func besidesAbsence(err error) error {
	if errors.Is(err, ErrNotThere) && !errors.Is(err, ErrTooMany) {
		return nil
	}
	return err
}

// serviceElements looks a Service up in kube-proxy's maps, by its keys: the maps are not listed.
func (s *nftSource) serviceElements(ctx context.Context, query *serviceQuery, out *detailItems) error {
	walk := chainWalk{source: s, table: kubeproxy.Table{Family: nftFamily(s.family), Name: "kube-proxy"}, out: out, seen: map[string]bool{}}
	for _, address := range query.addresses {
		if address.Is6() != (s.family == unix.NFPROTO_IPV6) {
			continue
		}
		for _, name := range append(serviceMaps(), "firewall-ips") {
			key := append(address.AsSlice(), portKey(query.protocol, query.port)...)
			if err := s.element(ctx, &walk, name, key, netip.AddrPortFrom(address, query.port).String()); err != nil {
				return err
			}
		}
	}
	if query.nodePort == 0 {
		return nil
	}
	for _, name := range []string{"service-nodeports", "no-endpoint-nodeports"} {
		text := fmt.Sprintf("node port %d", query.nodePort)
		if err := s.element(ctx, &walk, name, portKey(query.protocol, query.nodePort), text); err != nil {
			return err
		}
	}
	return nil
}

// portKey is protocol . port, each padded to a register.
func portKey(protocol uint8, port uint16) []byte {
	return append([]byte{protocol, 0, 0, 0}, append(binary.BigEndian.AppendUint16(nil, port), 0, 0)...)
}

// element looks one key up in a map of kube-proxy's.
func (s *nftSource) element(ctx context.Context, walk *chainWalk, name string, key []byte, text string) error {
	value := nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, nil)
	element := value.AddRtAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, nil)
	element.AddRtAttr(unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, nil).AddRtAttr(unix.NFTA_DATA_VALUE, key)
	request := elementsRequest(nftTableKey{s.family, walk.table.Name}, name, 0)
	request.AddData(value)
	var verdict nftImmediate
	var chain string
	err := s.reader.socket.ask(ctx, request, func(message []byte) error {
		return eachElement(message, func(element *nftElement) error {
			verdict, chain = element.data, string(element.data.chain)
			return nil
		})
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into map %s of nf_tables: %w", name, err)
	}
	return walk.element(ctx, name, protocolName(key[len(key)-8])+" "+text, verdict.code, chain)
}
