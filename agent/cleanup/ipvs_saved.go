package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
)

// services lists the virtual servers with what /proc does not tell in a usable unit: flags, and timeouts in seconds. Real
// servers are left out. The list is not of one moment.
func (h *ipvsHandle) services() (map[ipvsKey]savedServer, error) {
	answers, err := h.ask(ipvsGetService, unix.NLM_F_DUMP)
	if err != nil {
		return nil, fmt.Errorf("list the virtual servers: %w", err)
	}
	all := make(map[ipvsKey]savedServer, len(answers))
	for _, answer := range answers {
		server, err := parseService(answer)
		if err != nil {
			return nil, err
		}
		if server.Address.IsValid() {
			all[ipvsKey{server.Protocol, server.Address}] = server
		}
	}
	return all, nil
}

var errService = errors.New("a virtual server is not understood")

func parseService(answer []byte) (savedServer, error) {
	var server savedServer
	values, err := ipvsAttributes(answer, ipvsCmdService)
	if err != nil {
		return server, fmt.Errorf("%w: %w", errService, err)
	}
	if len(values[ipvsServiceMark]) > 0 {
		return server, nil // a firewall mark
	}
	return server, server.fill(values)
}

func (s *savedServer) fill(values map[uint16][]byte) error {
	address, port := values[ipvsServiceAddress], values[ipvsServicePort]
	for kind, size := range map[uint16]int{
		ipvsServiceFamily: 2, ipvsServiceProtocol: 2, ipvsServicePort: 2, ipvsServiceFlags: 8, ipvsServiceTimeout: 4, ipvsServiceNetmask: 4,
	} {
		if len(values[kind]) < size {
			return errService
		}
	}
	if len(address) < 16 {
		return errService
	}
	if binary.NativeEndian.Uint16(values[ipvsServiceFamily]) == unix.AF_INET {
		address = address[:4]
	}
	host, _ := netip.AddrFromSlice(address)
	s.Protocol = binary.NativeEndian.Uint16(values[ipvsServiceProtocol])
	s.Address = netip.AddrPortFrom(host, binary.BigEndian.Uint16(port))
	s.Scheduler = nl.BytesToString(values[ipvsServiceScheduler])
	s.Flags = binary.NativeEndian.Uint32(values[ipvsServiceFlags])
	s.Timeout = binary.NativeEndian.Uint32(values[ipvsServiceTimeout])
	s.Netmask = binary.NativeEndian.Uint32(values[ipvsServiceNetmask])
	return nil
}

// newService makes a virtual server; EEXIST where there is one already, which stays as it is.
func (h *ipvsHandle) newService(server *savedServer) error {
	attribute := ipvsServiceAttribute(ipvsKey{server.Protocol, server.Address})
	attribute.AddRtAttr(ipvsServiceScheduler, nl.ZeroTerminated(server.Scheduler))
	flags := binary.NativeEndian.AppendUint32(nil, server.Flags)
	attribute.AddRtAttr(ipvsServiceFlags, binary.NativeEndian.AppendUint32(flags, ^uint32(0)))
	attribute.AddRtAttr(ipvsServiceTimeout, nl.Uint32Attr(server.Timeout))
	attribute.AddRtAttr(ipvsServiceNetmask, nl.Uint32Attr(server.Netmask))
	_, err := h.ask(ipvsNewService, unix.NLM_F_ACK, attribute)
	return err
}

// newReal gives a virtual server a real server; EEXIST where it has it.
func (h *ipvsHandle) newReal(key ipvsKey, real *savedReal) error {
	attribute := nl.NewRtAttr(ipvsCmdDest|unix.NLA_F_NESTED, nil)
	attribute.AddRtAttr(ipvsDestAddress, real.Address.Addr().AsSlice())
	attribute.AddRtAttr(ipvsDestPort, binary.BigEndian.AppendUint16(nil, real.Address.Port()))
	attribute.AddRtAttr(ipvsDestForward, nl.Uint32Attr(forwardMethod(real.Forward)))
	attribute.AddRtAttr(ipvsDestWeight, nl.Uint32Attr(real.Weight))
	attribute.AddRtAttr(ipvsDestUpper, nl.Uint32Attr(0))
	attribute.AddRtAttr(ipvsDestLower, nl.Uint32Attr(0))
	attribute.AddRtAttr(ipvsDestFamily, nl.Uint16Attr(ipvsFamily(real.Address.Addr())))
	_, err := h.ask(ipvsNewDest, unix.NLM_F_ACK, ipvsServiceAttribute(key), attribute)
	return err
}

// forwardMethod is the number of a forwarding method (IP_VS_CONN_F_MASQ, …).
func forwardMethod(name string) uint32 {
	switch name {
	case "Local":
		return 1
	case "Tunnel":
		return 2
	case "Route":
		return 3
	default:
		return 0
	}
}

// saveServers puts together what the two views of the kernel say of the virtual servers that go.
func saveServers(proc string, going []*inventory.VirtualServer) ([]savedServer, error) {
	handle, err := openIPVS(proc)
	if errors.Is(err, errNoIPVS) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer handle.close()
	details, err := handle.services()
	if err != nil {
		return nil, err
	}
	servers := make([]savedServer, 0, len(going))
	for _, server := range going {
		protocol, _ := ipvsProtocol(server.Protocol)
		detail, found := details[ipvsKey{protocol, server.Address}]
		if !found {
			continue // gone since
		}
		for _, real := range server.RealServers {
			detail.Reals = append(detail.Reals, savedReal(real))
		}
		servers = append(servers, detail)
	}
	return servers, nil
}

// Flags of a virtual server (IP_VS_SVC_F_*).
const (
	ipvsPersistent = 1
	ipvsOnePacket  = 4
	ipvsSchedFlag1 = 8
	ipvsSchedFlag2 = 16
	ipvsSchedFlag3 = 32
)

// ipvsadmLines are the lines of "ipvsadm -Sn" for a virtual server.
func ipvsadmLines(server *savedServer) string {
	var text strings.Builder
	name := ipvsadmName(server.Protocol, server.Address)
	fmt.Fprintf(&text, "-A %s -s %s", name, server.Scheduler)
	if server.Flags&ipvsPersistent != 0 {
		fmt.Fprintf(&text, " -p %d%s", server.Timeout, ipvsadmMask(server))
	}
	for _, flag := range []struct {
		bit  uint32
		text string
	}{{ipvsSchedFlag1, "flag-1"}, {ipvsSchedFlag2, "flag-2"}, {ipvsSchedFlag3, "flag-3"}} {
		if server.Flags&flag.bit != 0 {
			text.WriteString(" -b " + flag.text)
		}
	}
	if server.Flags&ipvsOnePacket != 0 {
		text.WriteString(" -o")
	}
	text.WriteByte('\n')
	for _, real := range server.Reals {
		fmt.Fprintf(&text, "-a %s -r %s %s -w %d\n", name, real.Address, ipvsadmForward(real.Forward), real.Weight)
	}
	return text.String()
}

func ipvsadmName(protocol uint16, address netip.AddrPort) string {
	switch protocol {
	case unix.IPPROTO_UDP:
		return "-u " + address.String()
	case unix.IPPROTO_SCTP:
		return "--sctp-service " + address.String()
	default:
		return "-t " + address.String()
	}
}

// ipvsadmMask is what is printed only where it is not the mask of a single address.
func ipvsadmMask(server *savedServer) string {
	switch {
	case server.Address.Addr().Is6() && server.Netmask != 128:
		return fmt.Sprintf(" -M %d", server.Netmask)
	case server.Address.Addr().Is4() && server.Netmask != ^uint32(0):
		var mask [4]byte
		binary.NativeEndian.PutUint32(mask[:], server.Netmask)
		return " -M " + netip.AddrFrom4(mask).String()
	default:
		return ""
	}
}

func ipvsadmForward(forward string) string {
	switch forward {
	case "Route", "Local":
		return "-g"
	case "Tunnel":
		return "-i"
	default:
		return "-m"
	}
}
