package cleanup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

const (
	// ipsetPauses are how often, and how long at first, to wait for a set that is busy: somebody may be listing it. Each wait
	// is twice the one before; 1.3 s in all.
	ipsetPauses     = 7
	ipsetFirstPause = 10 * time.Millisecond
	ipsetWait       = 10 * time.Second
)

// errInUse says that a rule or another set still refers to a set.
var errInUse = errors.New("it is still in use")

// ipsets destroys ipsets one by one.
type ipsets struct{ handle *netlink.Handle }

func openIPSets() (*ipsets, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(ipsetWait); err != nil {
		handle.Close()
		return nil, fmt.Errorf("limit the wait of a netlink socket: %w", err)
	}
	return &ipsets{handle}, nil
}

func (s *ipsets) close() { s.handle.Close() }

// destroy destroys a set of kube-proxy's; existed is false when it was gone. What has its name but another type or family
// is somebody else's, whatever the plan says.
func (s *ipsets) destroy(ctx context.Context, name string) (existed bool, err error) {
	header, err := ipsetHeader(name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at ipset %s: %w", name, err)
	}
	if kubeproxy.SetOwner(header) != kubeproxy.OwnerIPVS {
		return true, fmt.Errorf("ipset %s of type %s: %w", name, header.Type, errNotOurs)
	}
	for pause := range ipsetPauses + 1 {
		err = s.destroyOnce(name)
		if !isBusy(err) {
			break
		}
		if pause == ipsetPauses {
			return true, fmt.Errorf("destroy ipset %s: %w", name, errInUse)
		}
		if err := sleep(ctx, ipsetFirstPause<<pause); err != nil {
			return true, fmt.Errorf("destroy ipset %s: %w", name, err)
		}
	}
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("destroy ipset %s: %w", name, err)
	}
	return true, nil
}

// destroyOnce keeps the library's panic over errors that it does not expect from ending the clean-up.
func (s *ipsets) destroyOnce(name string) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the library broke down: %v", broken)
		}
	}()
	return s.handle.IpsetDestroy(name)
}

func isBusy(err error) bool {
	var private nl.IPSetError
	return errors.As(err, &private) && private == nl.IPSET_ERR_BUSY || errors.Is(err, unix.EBUSY)
}

// ipsetHeader asks for a set's type and family; ENOENT when there is no such set, or no ip_set in the kernel. An empty name
// would stand for all sets, and is none.
func ipsetHeader(name string) (kubeproxy.Set, error) {
	if name == "" {
		return kubeproxy.Set{}, unix.ENOENT
	}
	request := ipsetRequest(nl.IPSET_CMD_HEADER, unix.NLM_F_ACK)
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	answers, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return kubeproxy.Set{}, unix.ENOENT
	}
	if err != nil {
		return kubeproxy.Set{}, err
	}
	header := kubeproxy.Set{Name: name}
	for _, answer := range answers {
		attributes, err := nl.ParseRouteAttr(answer[min(nl.SizeofNfgenmsg, len(answer)):])
		if err != nil {
			return kubeproxy.Set{}, err
		}
		for _, attribute := range attributes {
			switch attribute.Attr.Type & nl.NLA_TYPE_MASK {
			case nl.IPSET_ATTR_TYPENAME:
				header.Type = nl.BytesToString(attribute.Value)
			case nl.IPSET_ATTR_FAMILY:
				header.Family = ipsetFamily(attribute.Value)
			}
		}
	}
	return header, nil
}

func ipsetFamily(value []byte) kubeproxy.Family {
	switch {
	case len(value) == 1 && value[0] == unix.NFPROTO_IPV4:
		return kubeproxy.IPv4
	case len(value) == 1 && value[0] == unix.NFPROTO_IPV6:
		return kubeproxy.IPv6
	default:
		return kubeproxy.FamilyAny
	}
}

func ipsetRequest(command, flags int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|command, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, []byte{nl.IPSET_PROTOCOL}))
	return request
}

// sleep waits, or less long if the context ends.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
