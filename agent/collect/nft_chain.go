package collect

import (
	"cmp"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// nftHook is what a base chain hangs on.
type nftHook struct {
	number   uint32
	priority int32
}

// Verdicts that a base chain may have as its policy (linux/netfilter.h NF_DROP, NF_ACCEPT).
const (
	policyDrop   = 0
	policyAccept = 1
)

func parseHook(data []byte) (nftHook, error) {
	var hook nftHook
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch parts.kind {
		case unix.NFTA_HOOK_HOOKNUM:
			err = bigEndian32(parts.value, &hook.number)
		case unix.NFTA_HOOK_PRIORITY:
			var priority uint32
			err = bigEndian32(parts.value, &priority)
			hook.priority = int32(priority)
		}
		if err != nil {
			return hook, err
		}
	}
	return hook, parts.err
}

// hookName names a hook as nft does (linux/netfilter.h nf_inet_hooks, nf_dev_hooks; netfilter_arp.h).
func hookName(family uint8, number uint32) string {
	names := []string{"prerouting", "input", "forward", "output", "postrouting", "ingress"}
	switch family {
	case unix.NFPROTO_NETDEV:
		names = []string{"ingress", "egress"}
	case unix.NFPROTO_ARP:
		names = []string{"input", "output", "forward"}
	}
	if uint64(number) < uint64(len(names)) {
		return names[number]
	}
	return strconv.FormatUint(uint64(number), 10)
}

// addBaseChain takes a chain that a hook calls.
func (t *nftTable) addBaseChain(object *nftObject) error {
	hook, err := parseHook(object.hook)
	if err != nil {
		return err
	}
	chain := &offrampv1.NftBaseChain{
		Name: printable(object.name), Hook: hookName(object.family, hook.number), Priority: hook.priority,
		Policy: policyName(object.policy), Type: printable(object.chainType),
	}
	drops := object.policy == policyDrop && t.flags&unix.NFT_TABLE_F_DORMANT == 0
	if drops && (chain.GetHook() == "input" || chain.GetHook() == "forward") && t.family != unix.NFPROTO_ARP {
		t.dropChains = append(t.dropChains, nftFamily(t.family)+" "+printable([]byte(t.name))+" "+chain.GetName())
	}
	if t.iptables != nil {
		if object.policy == policyDrop {
			t.iptables.addDropPolicy(t.name, string(object.name))
		}
		return nil
	}
	at, _ := slices.BinarySearchFunc(t.baseChains, chain, func(a, b *offrampv1.NftBaseChain) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	t.baseChains = slices.Insert(t.baseChains, at, chain)
	t.baseChains = t.baseChains[:min(len(t.baseChains), maxSamples)]
	return nil
}

func policyName(policy uint32) string {
	switch policy {
	case policyDrop:
		return "drop"
	case policyAccept:
		return "accept"
	default:
		return strconv.FormatUint(uint64(policy), 10)
	}
}
