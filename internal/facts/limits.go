package facts

import "fmt"

// Limits of what a section may claim. They are far above any real node and below what would be absurd: a claim beyond them
// is a broken or a lying agent.
const (
	// MaxSectionBytes bounds an encoded section, so that a message of 1 MiB holds any one of them.
	MaxSectionBytes = 512 << 10
	// MaxErrorBytes bounds SectionStable.error (facts.proto).
	MaxErrorBytes = 1024

	// The longest text in the model: names have at most 256 bytes (NFT_NAME_MAXLEN), four times that when each is \xNN.
	maxText = 1024

	// Bounds of lists that facts.proto names.
	maxProcesses         = 20
	maxArgs              = 32
	maxArgBytes          = 256
	maxSamplesPerOwner   = 20
	maxKubeProxySets     = 34
	maxSamples           = 20
	maxAddressSamples    = 64
	maxModeChanges       = 20
	maxForeignReferences = 20
	maxListeners         = 64
	maxNodePorts         = 64

	// Bounds of lists that facts.proto leaves to reason: the words for owners are a few dozen, iptables has five tables,
	// kube-proxy two families, two proxiers and a handful of paths, the kernel about a dozen schedulers.
	maxOwners     = 128
	maxSchedulers = 64
	maxTables     = 16
	maxFamilies   = 8
	maxEndpoints  = 64
	maxSysctls    = 128
	maxSettings   = 64
	maxFeatures   = 128

	// An ipset's index is 16 bits wide and 65,535 means none (IPSET_INVALID_ID, include/uapi/linux/netfilter/ipset/ip_set.h).
	maxSets = 65535
	// Entries of a set are counted in 32 bits (IPSET_ATTR_ELEMENTS); at 16 bytes and more each, 2^32 of all sets fill 64 GiB.
	maxSetEntries = 1 << 32
	// Cluster IPs come from at most 20 bits (kube-apiserver --service-cluster-ip-range); 16 ports on each make 2^24, which
	// take more than 8 GiB of kernel memory as ip_vs_service.
	maxVirtualServers = 1 << 24
	// An ip_vs_dest has more than 256 bytes: 2^28 fill 64 GiB.
	maxRealServers = 1 << 28
	// Chains come with a few per virtual server; a rule takes 100 bytes and more, so that 2^28 fill 25 GiB.
	maxChains = 1 << 26
	maxRules  = 1 << 28
	// A table of nftables costs a few hundred bytes and a name; nobody has more than a few dozen.
	maxNftTables = 1 << 16
	// A socket costs more than a kilobyte: 2^26 fill 64 GiB.
	maxSockets = 1 << 26
	// Addresses of all links but kube-ipvs0.
	maxNodeAddresses = 1 << 20
)

// bounds remembers the first bound that is broken.
type bounds struct{ err error }

func (b *bounds) failf(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

func (b *bounds) list(what string, length, most int) {
	if length > most {
		b.failf("%d %s are listed, at most %d may be", length, what, most)
	}
}

func (b *bounds) count(what string, count, most uint64) {
	if count > most {
		b.failf("it claims %d %s, no kernel holds more than %d", count, what, most)
	}
}
