package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Numbers of IPVS' generic netlink family (linux/ip_vs.h).
const (
	ipvsGetService     = 4  // IPVS_CMD_GET_SERVICE
	ipvsCommandService = 1  // IPVS_CMD_ATTR_SERVICE
	ipvsFamily         = 1  // IPVS_SVC_ATTR_AF
	ipvsProtocol       = 2  // IPVS_SVC_ATTR_PROTOCOL
	ipvsAddress        = 3  // IPVS_SVC_ATTR_ADDR
	ipvsPort           = 4  // IPVS_SVC_ATTR_PORT
	ipvsStatistics64   = 12 // IPVS_SVC_ATTR_STATS64
	ipvsConnections    = 1  // IPVS_STATS_ATTR_CONNS
	ipvsInPackets      = 2  // IPVS_STATS_ATTR_INPKTS
	ipvsVersion        = 1  // IPVS_GENL_VERSION
)

// serverStatistics is what the kernel counts of a virtual server since it was made. It sums up every two seconds
// (estimation_timer in net/netfilter/ipvs/ip_vs_est.c).
type serverStatistics struct{ connections, incomingPackets uint64 }

// statisticsReader hands the statistics of every virtual server to visit.
type statisticsReader func(ctx context.Context, visit func(serverKey, serverStatistics)) error

// readStatistics asks the kernel for them. The caller has made sure that ip_vs is there: the question alone would load it.
//
// The number of the family is asked for each time: it is another one when ip_vs was unloaded and loaded again. The kernel
// does not tell when a dump was interrupted (no genl_dump_check_consistent in ip_vs_ctl.c), so that a virtual server may be
// missing while others come and go.
func readStatistics(ctx context.Context, visit func(serverKey, serverStatistics)) error {
	s, err := openSocket(unix.NETLINK_GENERIC)
	if err != nil {
		return err
	}
	defer s.close()
	family, err := findFamily(ctx, s, "IPVS")
	if err != nil {
		return err
	}
	request := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	request.AddData(&nl.Genlmsg{Command: ipvsGetService, Version: ipvsVersion})
	err = s.dump(ctx, request, func(message []byte) error {
		server, statistics, err := parseStatistics(message)
		if err == nil && server.protocol != "" {
			visit(server, statistics)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the statistics of IPVS: %w", err)
	}
	return nil
}

// findFamily returns the number of a generic netlink family.
func findFamily(ctx context.Context, s *socket, name string) (int, error) {
	request := nl.NewNetlinkRequest(nl.GENL_ID_CTRL, 0)
	request.AddData(&nl.Genlmsg{Command: nl.GENL_CTRL_CMD_GETFAMILY, Version: nl.GENL_CTRL_VERSION})
	request.AddData(nl.NewRtAttr(nl.GENL_CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	family := 0
	err := s.dump(ctx, request, func(message []byte) error {
		if len(message) < nl.SizeofGenlmsg {
			return errMalformed
		}
		return eachAttribute(message[nl.SizeofGenlmsg:], func(kind uint16, value []byte) error {
			if kind == nl.GENL_CTRL_ATTR_FAMILY_ID && len(value) == 2 {
				family = int(binary.NativeEndian.Uint16(value))
			}
			return nil
		})
	})
	if err == nil && family < unix.NLMSG_MIN_TYPE {
		// A smaller number would be taken for a control message, which the kernel acknowledges without doing anything.
		err = errMalformed
	}
	if err != nil {
		return 0, fmt.Errorf("find the netlink family %s: %w", name, err)
	}
	return family, nil
}

// parseStatistics takes a message of IPVS_CMD_GET_SERVICE. The protocol is empty for a virtual server by firewall mark.
func parseStatistics(message []byte) (server serverKey, statistics serverStatistics, err error) {
	if len(message) < nl.SizeofGenlmsg {
		return server, statistics, errMalformed
	}
	err = eachAttribute(message[nl.SizeofGenlmsg:], func(kind uint16, value []byte) (err error) {
		if kind == ipvsCommandService {
			server, statistics, err = parseStatisticsOfService(value)
		}
		return err
	})
	return server, statistics, err
}

func parseStatisticsOfService(data []byte) (server serverKey, statistics serverStatistics, err error) {
	var family, port uint16
	var raw []byte
	err = eachAttribute(data, func(kind uint16, value []byte) error {
		switch kind {
		case ipvsFamily, ipvsProtocol, ipvsPort:
			if len(value) != 2 {
				return errMalformed
			}
		}
		switch kind {
		case ipvsFamily:
			family = binary.NativeEndian.Uint16(value)
		case ipvsProtocol:
			server.protocol = protocolName(uint8(binary.NativeEndian.Uint16(value))) //nolint:gosec // IP protocols have 8 bits
		case ipvsPort:
			port = binary.BigEndian.Uint16(value)
		case ipvsAddress:
			raw = value
		case ipvsStatistics64:
			return statistics.parse(value)
		}
		return nil
	})
	if err != nil || server.protocol == "" {
		return server, statistics, err
	}
	address, err := ipvsAddressOf(family, raw)
	server.address = netip.AddrPortFrom(address, port)
	return server, statistics, err
}

// ipvsAddressOf takes union nf_inet_addr, 16 bytes of which IPv4 uses the first four.
func ipvsAddressOf(family uint16, raw []byte) (netip.Addr, error) {
	switch {
	case family == unix.AF_INET && len(raw) >= 4:
		return netip.AddrFrom4([4]byte(raw)), nil
	case family == unix.AF_INET6 && len(raw) >= 16:
		return netip.AddrFrom16([16]byte(raw)), nil
	default:
		return netip.Addr{}, errors.Join(errors.New("a virtual server without an address"), errMalformed)
	}
}

func (s *serverStatistics) parse(data []byte) error {
	return eachAttribute(data, func(kind uint16, value []byte) error {
		if kind != ipvsConnections && kind != ipvsInPackets {
			return nil
		}
		if len(value) != 8 {
			return errMalformed
		}
		if number := binary.NativeEndian.Uint64(value); kind == ipvsConnections {
			s.connections = number
		} else {
			s.incomingPackets = number
		}
		return nil
	})
}
