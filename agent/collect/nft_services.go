package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// serviceMaps are the maps of kube-proxy's nftables tables whose keys are address . protocol . port of Services: those with
// and those without endpoints (pkg/proxy/nftables/proxier.go serviceIPsMap, noEndpointServicesMap). For Services that are
// served by local endpoints only, where the one ends and the other begins is a matter of the node.
func serviceMaps() []string { return []string{"service-ips", "no-endpoint-services"} }

// serviceMap is what was read of one of them.
type serviceMap struct {
	// family is that of the addresses.
	family uint8
	// keys are as the kernel has them, one after the other, in no order.
	keys []byte
	// sum adds up hashes of the keys, so that it does not depend on their order; count is how many they are.
	sum   uint64
	count int
	// jumps is how many elements lead to a chain.
	jumps uint64
}

// serviceKeyWidth is the size of a key: every part fills whole registers of four bytes.
func serviceKeyWidth(family uint8) int {
	if family == unix.NFPROTO_IPV6 {
		return 16 + 4 + 4
	}
	return 4 + 4 + 4
}

func (m serviceMap) equal(other serviceMap) bool {
	return m.family == other.family && m.sum == other.sum && m.count == other.count
}

func equalServices(a, b []serviceMap) bool {
	return slices.EqualFunc(a, b, func(x, y serviceMap) bool { return x.equal(y) })
}

// summaries drops the keys, which are dear to keep.
func summaries(maps []serviceMap) []serviceMap {
	short := slices.Clone(maps)
	for i := range short {
		short[i].keys = nil
	}
	return short
}

var errServiceKey = errors.New("a key of kube-proxy's Service map is not address, protocol and port")

// addServices reads the Service maps of kube-proxy's tables, and no other set of anybody's.
//
// A dump of elements can lose some and repeat others without a word: it goes on by position, and the hash table may grow
// meanwhile. So the number has to be the kernel's own; where the kernel does not count, a second dump has to be equal.
func (r *nftReader) addServices(ctx context.Context, snapshot *nftSnapshot) error {
	for _, table := range snapshot.kubeProxyTables() {
		for _, name := range serviceMaps() {
			head, found := table.serviceHeads[name]
			if !found {
				continue
			}
			services, err := r.serviceMap(ctx, table.nftTableKey, name)
			if err != nil {
				return err
			}
			table.jumps += services.jumps
			if err := r.proveServices(ctx, table.nftTableKey, name, head, services); err != nil {
				return err
			}
			snapshot.services = append(snapshot.services, services)
		}
	}
	return nil
}

func (r *nftReader) proveServices(
	ctx context.Context, table nftTableKey, name string, head nftSetHead, services serviceMap,
) error {
	if head.counted {
		if int(head.count) != services.count {
			return errTorn
		}
		return nil
	}
	again, err := r.serviceMap(ctx, table, name)
	if err == nil && !services.equal(again) {
		err = errTorn
	}
	return err
}

func (r *nftReader) serviceMap(ctx context.Context, table nftTableKey, name string) (serviceMap, error) {
	services := serviceMap{family: table.family}
	width := serviceKeyWidth(table.family)
	err := r.elements(ctx, table, name, func(element *nftElement) error {
		if len(element.key) != width {
			return errServiceKey
		}
		services.keys = append(services.keys, element.key...)
		services.count++
		if len(element.data.chain) > 0 {
			services.jumps++
		}
		services.sum += maphash.Bytes(r.seed, element.key)
		return nil
	})
	return services, err
}

// serviceItems lists what is in the maps as LIST_NAME_NFTABLES_SERVICES says, sorted. A key that a map has twice is errTorn.
func serviceItems(maps []serviceMap) ([]string, error) {
	var all []string
	for _, services := range maps {
		width := serviceKeyWidth(services.family)
		items := make([]string, 0, services.count)
		for key := range slices.Chunk(services.keys, width) {
			items = append(items, serviceItem(key))
		}
		slices.Sort(items)
		if len(slices.Compact(slices.Clone(items))) != len(items) {
			return nil, errTorn
		}
		all = append(all, items...)
	}
	if len(maps) > 1 {
		slices.Sort(all)
		all = slices.Compact(all)
	}
	return all, nil
}

// serviceItem writes a key: "TCP 10.96.0.1:443", "UDP [fd00::a]:53".
func serviceItem(key []byte) string {
	address, rest := key[:len(key)-8], key[len(key)-8:]
	ip, _ := netip.AddrFromSlice(address)
	text := append(make([]byte, 0, 64), protocolName(rest[0])...)
	text = append(text, ' ')
	return string(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest[4:])).AppendTo(text))
}
