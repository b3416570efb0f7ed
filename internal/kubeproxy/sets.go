package kubeproxy

// Types of sets.
const (
	setTypeIP         = "hash:ip"
	setTypeIPPort     = "hash:ip,port"
	setTypeIPPortIP   = "hash:ip,port,ip"
	setTypeIPPortNet  = "hash:ip,port,net"
	setTypeBitmapPort = "bitmap:port"
)

// role is what the members of a set say about Services.
type role uint8

const (
	roleNone role = iota
	// roleService: members are address, protocol and port of a Service.
	roleService
	// roleNodePort: members are node ports (bitmap:port), or node address and node port (hash:ip,port).
	roleNodePort
)

// setRow is one set of ipvs mode in both families.
type setRow struct {
	ipv4, ipv6, kind string
	role             role
	protocol         string // of a node-port set
}

// ipvsSets are the 17 sets of ipvs mode in each family (pkg/proxy/ipvs/ipset.go, proxier.go ipsetInfo), alike since 1.28.
// Two IPv6 names are cut to the 31 characters that the kernel allows.
func ipvsSets() []setRow {
	return []setRow{
		{"KUBE-LOOP-BACK", "KUBE-6-LOOP-BACK", setTypeIPPortIP, roleNone, ""},
		{"KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP", setTypeIPPort, roleService, ""},
		{"KUBE-EXTERNAL-IP", "KUBE-6-EXTERNAL-IP", setTypeIPPort, roleService, ""},
		{"KUBE-EXTERNAL-IP-LOCAL", "KUBE-6-EXTERNAL-IP-LOCAL", setTypeIPPort, roleService, ""},
		{"KUBE-LOAD-BALANCER", "KUBE-6-LOAD-BALANCER", setTypeIPPort, roleService, ""},
		{"KUBE-LOAD-BALANCER-FW", "KUBE-6-LOAD-BALANCER-FW", setTypeIPPort, roleService, ""},
		{"KUBE-LOAD-BALANCER-LOCAL", "KUBE-6-LOAD-BALANCER-LOCAL", setTypeIPPort, roleService, ""},
		{"KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-6-LOAD-BALANCER-SOURCE-IP", setTypeIPPortIP, roleNone, ""},
		{"KUBE-LOAD-BALANCER-SOURCE-CIDR", "KUBE-6-LOAD-BALANCER-SOURCE-CID", setTypeIPPortNet, roleNone, ""},
		{"KUBE-NODE-PORT-TCP", "KUBE-6-NODE-PORT-TCP", setTypeBitmapPort, roleNodePort, "TCP"},
		{"KUBE-NODE-PORT-LOCAL-TCP", "KUBE-6-NODE-PORT-LOCAL-TCP", setTypeBitmapPort, roleNodePort, "TCP"},
		{"KUBE-NODE-PORT-UDP", "KUBE-6-NODE-PORT-UDP", setTypeBitmapPort, roleNodePort, "UDP"},
		{"KUBE-NODE-PORT-LOCAL-UDP", "KUBE-6-NODE-PORT-LOCAL-UDP", setTypeBitmapPort, roleNodePort, "UDP"},
		{"KUBE-NODE-PORT-SCTP-HASH", "KUBE-6-NODE-PORT-SCTP-HASH", setTypeIPPort, roleNodePort, "SCTP"},
		{"KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS", setTypeIPPort, roleNodePort, "SCTP"},
		{"KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-6-HEALTH-CHECK-NODE-PORT", setTypeBitmapPort, roleNone, ""},
		{"KUBE-IPVS-IPS", "KUBE-6-IPVS-IPS", setTypeIP, roleNone, ""},
	}
}

// NodePortSet is a set whose members are node ports. In a bitmap:port set they are ports; in a hash:ip,port set they are
// an address of the node with protocol and port.
type NodePortSet struct {
	Set
	// Serves is the family of the Services, which a bitmap:port set itself does not have.
	Serves Family
	// Protocol is "TCP", "UDP" or "SCTP".
	Protocol string
}

// Sets returns every ipset of ipvs mode, 17 for each family.
func Sets() []Set {
	sets := make([]Set, 0, 2*len(ipvsSets()))
	for _, row := range ipvsSets() {
		sets = append(sets, row.set(IPv4), row.set(IPv6))
	}
	return sets
}

// ServiceSets returns the hash:ip,port sets whose members are address, protocol and port of Services: what
// ServicePorts.HasService looks into.
func ServiceSets() []Set {
	var sets []Set
	for _, row := range ipvsSets() {
		if row.role == roleService {
			sets = append(sets, row.set(IPv4), row.set(IPv6))
		}
	}
	return sets
}

// NodePortSets returns the sets whose members are node ports: what ServicePorts.HasNodePort looks into.
func NodePortSets() []NodePortSet {
	var sets []NodePortSet
	for _, row := range ipvsSets() {
		if row.role != roleNodePort {
			continue
		}
		for _, family := range []Family{IPv4, IPv6} {
			sets = append(sets, NodePortSet{Set: row.set(family), Serves: family, Protocol: row.protocol})
		}
	}
	return sets
}

// set is the row's set of one family as the kernel shows it: a bitmap:port set has no family.
func (r setRow) set(family Family) Set {
	set := Set{Name: r.ipv4, Type: r.kind, Family: family}
	if family == IPv6 {
		set.Name = r.ipv6
	}
	if r.kind == setTypeBitmapPort {
		set.Family = FamilyAny
	}
	return set
}
