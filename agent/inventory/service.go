package inventory

import "net/netip"

// Service is one address and port at which a Service is served on the node, whatever mode serves it.
type Service struct {
	// Name is what kube-proxy wrote down of it: "default/kubernetes:https", as a ServicePortName prints itself; "" where it
	// writes no names (IPVS).
	Name string
	// Protocol is "TCP", "UDP" or "SCTP".
	Protocol string
	// Address is where clients connect.
	Address netip.AddrPort
	// Endpoints are where it leads, in no order, each once.
	Endpoints []netip.AddrPort
}
