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
	socket *socket
	seed   maphash.Seed
}

// generation asks for the generation of the ruleset: it moves with every commit in the network namespace.
func (r *nftReader) generation(ctx context.Context) (uint32, error) {
	var generation uint32
	err := r.socket.dump(ctx, nftRequest(unix.NFT_MSG_GETGEN, 0), func(message []byte) error {
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

// walk hands every object of the ruleset to visit, kind by kind: tables, chains, sets, rules. It returns a fingerprint
// of which objects there were, in which order. A rule is never changed in place: a new one has a new handle.
func (r *nftReader) walk(ctx context.Context, visit func(kind nftKind, object *nftObject) error) (uint64, error) {
	var seen maphash.Hash
	seen.SetSeed(r.seed)
	for _, kind := range []nftKind{nftTables(), nftChains(), nftSets(), nftRules()} {
		var object nftObject
		err := r.socket.dump(ctx, nftRequest(kind.request, unix.NLM_F_DUMP), func(message []byte) error {
			var err error
			if object, err = parseNFT(kind, message); err != nil {
				return err
			}
			remember(&seen, kind, &object)
			return visit(kind, &object)
		})
		if err != nil {
			return 0, fmt.Errorf("list the %s of nf_tables: %w", kind.what, err)
		}
	}
	return seen.Sum64(), nil
}

// remember adds what identifies an object to a hash. Writes to it never fail.
func remember(seen *maphash.Hash, kind nftKind, object *nftObject) {
	var fixed [10]byte
	fixed[0], fixed[1] = byte(kind.request), object.family
	binary.NativeEndian.PutUint64(fixed[2:], object.handle)
	_, _ = seen.Write(fixed[:])
	_, _ = seen.Write(object.table)
	_ = seen.WriteByte(0)
	_, _ = seen.Write(object.name)
	_ = seen.WriteByte(0)
}

func nftRequest(message, flags int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	return request
}
