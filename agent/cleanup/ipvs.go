package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Of linux/ip_vs.h.
const (
	ipvsNewService = 1
	ipvsDelService = 3
	ipvsGetService = 4
	ipvsNewDest    = 5
	ipvsGetDest    = 8

	ipvsCmdService = 1
	ipvsCmdDest    = 2

	ipvsServiceFamily    = 1
	ipvsServiceProtocol  = 2
	ipvsServiceAddress   = 3
	ipvsServicePort      = 4
	ipvsServiceMark      = 5
	ipvsServiceScheduler = 6
	ipvsServiceFlags     = 7
	ipvsServiceTimeout   = 8
	ipvsServiceNetmask   = 9

	ipvsDestAddress = 1
	ipvsDestPort    = 2
	ipvsDestForward = 3
	ipvsDestWeight  = 4
	ipvsDestUpper   = 5
	ipvsDestLower   = 6
	ipvsDestFamily  = 11
)

// errNoIPVS says that ip_vs is not in the kernel: there is nothing to delete.
var errNoIPVS = errors.New("the kernel has no ip_vs")

// ipvsWait bounds how long the kernel may take for one request.
const ipvsWait = 10 * time.Second

// ipvsHandle changes the IPVS table. Not for concurrent use.
//
// The requests are put together here and not by moby/ipvs: that runs modprobe, looks the family's number up once for the
// life of the process (after ip_vs was loaded again it would talk to nobody), takes "there is no ip_vs" for success, and
// waits without end for an answer that was lost.
type ipvsHandle struct {
	family  int
	sockets map[int]*nl.SocketHandle
}

// openIPVS looks for ip_vs without loading it: the file under /proc is there if and only if it is.
func openIPVS(proc string) (*ipvsHandle, error) {
	if _, err := os.Stat(proc + "/net/ip_vs"); errors.Is(err, fs.ErrNotExist) {
		return nil, errNoIPVS
	} else if err != nil {
		return nil, fmt.Errorf("look for ip_vs: %w", err)
	}
	family, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return nil, fmt.Errorf("ask for the number of ip_vs: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	wait := unix.NsecToTimeval(int64(ipvsWait))
	if err := errors.Join(socket.SetReceiveTimeout(&wait), socket.SetSendTimeout(&wait)); err != nil {
		socket.Close()
		return nil, fmt.Errorf("limit the wait of a netlink socket: %w", err)
	}
	return &ipvsHandle{int(family.ID), map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: socket}}}, nil
}

func (h *ipvsHandle) close() { h.sockets[unix.NETLINK_GENERIC].Close() }

// ipvsKey is what the kernel knows a virtual server by. Firewall marks are none of kube-proxy's.
type ipvsKey struct {
	Protocol uint16
	Address  netip.AddrPort
}

func (k ipvsKey) String() string {
	return ipvsProtocolName(k.Protocol) + " " + k.Address.String()
}

// deleteService deletes one virtual server with its real servers; ESRCH when it is not there.
func (h *ipvsHandle) deleteService(key ipvsKey) error {
	_, err := h.ask(ipvsDelService, unix.NLM_F_ACK, ipvsServiceAttribute(key))
	return err
}

func (h *ipvsHandle) ask(command uint8, flags int, attributes ...*nl.RtAttr) ([][]byte, error) {
	request := nl.NewNetlinkRequest(h.family, flags)
	request.Sockets = h.sockets
	request.AddData(&nl.Genlmsg{Command: command, Version: 1})
	for _, attribute := range attributes {
		request.AddData(attribute)
	}
	return request.Execute(unix.NETLINK_GENERIC, 0)
}

func ipvsServiceAttribute(key ipvsKey) *nl.RtAttr {
	service := nl.NewRtAttr(ipvsCmdService|unix.NLA_F_NESTED, nil)
	service.AddRtAttr(ipvsServiceFamily, nl.Uint16Attr(ipvsFamily(key.Address.Addr())))
	service.AddRtAttr(ipvsServiceProtocol, nl.Uint16Attr(key.Protocol))
	service.AddRtAttr(ipvsServiceAddress, key.Address.Addr().AsSlice())
	service.AddRtAttr(ipvsServicePort, binary.BigEndian.AppendUint16(nil, key.Address.Port()))
	return service
}

func ipvsFamily(address netip.Addr) uint16 {
	if address.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// ipvsProtocolName is how the IPVS table calls a protocol.
func ipvsProtocolName(protocol uint16) string {
	switch protocol {
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	default:
		return fmt.Sprintf("IP_%d", protocol)
	}
}

// ipvsProtocol is the number of a protocol that kube-proxy makes virtual servers for.
func ipvsProtocol(name string) (uint16, bool) {
	for _, protocol := range []uint16{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP} {
		if ipvsProtocolName(protocol) == name {
			return protocol, true
		}
	}
	return 0, false
}
