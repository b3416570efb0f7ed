package cleanup

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// routeWait bounds how long the kernel may take for one request about links and routes. Ten thousand addresses go with
// their link.
const routeWait = 60 * time.Second

// openRoute opens what links, addresses and routes are changed through.
func openRoute() (*netlink.Handle, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	if err := handle.SetSocketTimeout(routeWait); err != nil {
		handle.Close()
		return nil, fmt.Errorf("limit the wait of a netlink socket: %w", err)
	}
	return handle, nil
}

// errNotOurs says that something has a name of kube-proxy's but is not what kube-proxy makes.
var errNotOurs = errors.New("it is not what kube-proxy makes")

// findIPVSLink finds kube-ipvs0, which has to be a dummy link. It is nil when there is none.
func findIPVSLink(handle *netlink.Handle) (netlink.Link, error) {
	link, err := handle.LinkByName(kubeproxy.IPVSLink)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil, nil //nolint:nilnil // there is none, and that is no error
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", kubeproxy.IPVSLink, err)
	}
	return link, isIPVSLink(link)
}

func isIPVSLink(link netlink.Link) error {
	owner := kubeproxy.LinkOwner(kubeproxy.Link{Name: link.Attrs().Name, Type: link.Type()})
	if owner != kubeproxy.OwnerIPVS {
		return fmt.Errorf("link %s of type %s: %w", link.Attrs().Name, link.Type(), errNotOurs)
	}
	return nil
}

// deleteIPVSLink deletes the link with this index, after it was looked at by that index: a name can change hands between
// the look and the deletion, an index is not used again until all the others were.
func deleteIPVSLink(handle *netlink.Handle, index int) (existed bool, err error) {
	link, err := handle.LinkByIndex(index)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at link %d: %w", index, err)
	}
	if err := isIPVSLink(link); err != nil {
		return true, err
	}
	err = handle.LinkDel(link)
	if errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("delete link %s: %w", link.Attrs().Name, err)
	}
	return true, nil
}
