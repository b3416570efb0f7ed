package collect

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftReader reads the whole ruleset of nf_tables. Not for concurrent use.
type nftReader struct {
	socket *nftSocket
	seed   maphash.Seed
	// masquerade are the bits of a packet's mark that mean "masquerade" to kube-proxy.
	masquerade uint32
}

// generation asks for the generation of the ruleset: it moves with every commit in the network namespace.
func (r *nftReader) generation(ctx context.Context) (uint32, error) {
	var generation uint32
	err := r.socket.ask(ctx, nftRequest(unix.NFT_MSG_GETGEN, 0), func(message []byte) error {
		if len(message) < nfgenmsgSize {
			return errMalformed
		}
		return eachAttribute(message[nfgenmsgSize:], func(attribute uint16, value []byte) error {
			if attribute == unix.NFTA_GEN_ID {
				return bigEndian32(value, &generation)
			}
			return nil
		})
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of nf_tables: %w", err)
	}
	return generation, nil
}

// heads hands every table, chain and set to visit, in this order. It returns a fingerprint of them.
func (r *nftReader) heads(ctx context.Context, visit nftVisit) (uint64, error) {
	var seen maphash.Hash
	seen.SetSeed(r.seed)
	for _, kind := range []nftKind{nftTables(), nftChains(), nftSets()} {
		err := r.each(ctx, kind, nftRequest(kind.request, unix.NLM_F_DUMP), func(kind nftKind, object *nftObject) error {
			object.fingerprint(&seen)
			return visit(kind, object)
		})
		if err != nil {
			return 0, err
		}
	}
	return seen.Sum64(), nil
}

// nftVisit takes an object, whose bytes are only good meanwhile.
type nftVisit func(kind nftKind, object *nftObject) error

// rules hands every rule to visit, table by table.
func (r *nftReader) rules(ctx context.Context, visit nftVisit) error {
	return r.each(ctx, nftRules(), nftRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP), visit)
}

// rulesOf hands the rules of one table to visit.
func (r *nftReader) rulesOf(ctx context.Context, table nftTableKey, visit nftVisit) error {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: table.family, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table.name)))
	return r.each(ctx, nftRules(), request, visit)
}

func (r *nftReader) each(ctx context.Context, kind nftKind, request *nl.NetlinkRequest, visit nftVisit) error {
	var object nftObject
	err := r.socket.ask(ctx, request, func(message []byte) error {
		if err := object.parse(kind, message); err != nil {
			return err
		}
		return visit(kind, &object)
	})
	if err != nil {
		return fmt.Errorf("list the %s of nf_tables: %w", kind.what, err)
	}
	return nil
}

// fingerprint adds what identifies an object, and what may change while it stays, to a hash. A rule is never changed in
// place: a new one has a new handle. How many elements a set has moves by itself where packets add to it or time takes away.
// Writes to a hash never fail.
func (o *nftObject) fingerprint(seen *maphash.Hash) {
	var fixed [25]byte
	fixed[0] = o.family
	binary.NativeEndian.PutUint64(fixed[1:], o.handle)
	binary.NativeEndian.PutUint32(fixed[9:], o.use)
	binary.NativeEndian.PutUint32(fixed[13:], o.flags)
	binary.NativeEndian.PutUint32(fixed[17:], o.policy)
	if o.flags&nftSetTimesOut == 0 {
		binary.NativeEndian.PutUint32(fixed[21:], o.count)
	}
	_, _ = seen.Write(fixed[:])
	_, _ = seen.Write(o.table)
	_ = seen.WriteByte(0)
	_, _ = seen.Write(o.name)
	_ = seen.WriteByte(0)
}

func nftRequest(message, flags int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	return request
}
