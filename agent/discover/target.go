package discover

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Target is where aggregators are: an address, or a name that has addresses, and a port. Use Parse.
type Target struct {
	host, port string
	address    netip.Addr // invalid for a name
}

// Parse reads "host:port". The host is an address, IPv6 in brackets, or a DNS name; the port a number. The error says what is wrong.
func Parse(text string) (Target, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return Target{}, fmt.Errorf("an aggregator is host:port, not %q", text)
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return Target{}, fmt.Errorf("the port of %q is no number from 1 to 65535", text)
	}
	target := Target{host: host, port: port}
	address, err := netip.ParseAddr(host)
	switch {
	case err == nil && !usable(address):
		return Target{}, fmt.Errorf("%q is no address of an aggregator", text)
	case err == nil:
		target.address = address.Unmap()
	case !isName(host):
		return Target{}, fmt.Errorf("the host of %q is neither an address nor a DNS name", text)
	}
	return target, nil
}

// usable leaves out what nobody can be reached at.
func usable(address netip.Addr) bool { return !address.IsUnspecified() && !address.IsMulticast() }

// isName reports whether a host is a DNS name. One whose last label is a number is an address with a mistake in it.
func isName(host string) bool {
	label := `[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?`
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	_, err := strconv.ParseUint(labels[len(labels)-1], 0, 64)
	return err != nil && len(host) <= 254 && regexp.MustCompile(`^`+label+`(\.`+label+`)*\.?$`).MatchString(host)
}

// String is the target as it was named, "host:port".
func (t Target) String() string { return net.JoinHostPort(t.host, t.port) }

// literal returns the address of a target that is one.
func (t Target) literal() (address string, ok bool) { return t.at(t.address), t.address.IsValid() }

// at is an address with the target's port.
func (t Target) at(address netip.Addr) string { return net.JoinHostPort(address.String(), t.port) }
