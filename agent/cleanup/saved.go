package cleanup

import (
	"net/netip"

	"offramp.dev/offramp/agent/inventory"
)

// saved is everything that a plan removes, as a restore needs it: the file "objects.json" of a backup. The other files say
// the same in the formats of the native tools, for people.
type saved struct {
	// Rulesets have only the chains that go and, of other chains, only the rules that go. Rules of iptables-legacy have the
	// text that its own program printed.
	Rulesets   []inventory.Ruleset `json:"rulesets,omitempty"`
	Tables     []savedTable        `json:"tables,omitempty"`
	Sets       []savedSet          `json:"sets,omitempty"`
	Servers    []savedServer       `json:"servers,omitempty"`
	Link       *inventory.Link     `json:"link,omitempty"`
	Accounting []string            `json:"accounting,omitempty"`
	Sysctls    []savedSysctl       `json:"sysctls,omitempty"`
}

// savedSet is an ipset as the kernel listed it.
type savedSet struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Create are the attributes that an IPSET_CMD_CREATE needs beside the name.
	Create []byte `json:"create"`
	// Members are IPSET_ATTR_DATA attributes, one for each member.
	Members [][]byte `json:"members,omitempty"`
}

// savedServer is a virtual server with its real servers.
type savedServer struct {
	Protocol  uint16         `json:"protocol"`
	Address   netip.AddrPort `json:"address"`
	Scheduler string         `json:"scheduler"`
	Flags     uint32         `json:"flags"`   // IP_VS_SVC_F_*
	Timeout   uint32         `json:"timeout"` // of persistence, in seconds
	Netmask   uint32         `json:"netmask"` // as the kernel has it: of IPv4 in network order, of IPv6 a length
	Reals     []savedReal    `json:"reals,omitempty"`
}

type savedReal struct {
	Address netip.AddrPort `json:"address"`
	Forward string         `json:"forward"`
	Weight  uint32         `json:"weight"`
}

// savedTable is a native table of nf_tables as the kernel listed it: the attributes of the messages that make it, in the
// order in which they have to be sent.
type savedTable struct {
	Family   uint8             `json:"family"`
	Name     string            `json:"name"`
	Messages []savedNFTMessage `json:"messages"`
}

type savedNFTMessage struct {
	Kind       uint16 `json:"kind"` // NFT_MSG_NEW…
	Attributes []byte `json:"attributes"`
}

type savedSysctl struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
}
