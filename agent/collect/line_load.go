package collect

import (
	"fmt"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// addLoad notes what is loaded into a register, or writes what is set from one.
func (l *nftLine) addLoad(name string, data []byte) error {
	var load nftLoad
	var source, destination uint32
	var err error
	switch name {
	case "payload":
		load, destination, err = l.payload(data)
	case "meta":
		load, source, destination, err = metaLoad(data)
	default:
		var operands nftOperands
		err = operands.parse(operationCT, data)
		load, source, destination = nftLoad{what: fmt.Sprintf("ct %d", operands.key), size: 4}, operands.source, operands.destination
	}
	if source != 0 {
		l.ruleLine.add("[" + load.what + " set " + l.loaded[source].what + maskWord(l.loaded[source].mask) + "]")
		return err
	}
	l.loaded[destination] = load
	return err
}

// payload is a part of the packet: base, offset and length in bytes.
func (l *nftLine) payload(data []byte) (nftLoad, uint32, error) {
	var destination, base, offset, length uint32
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch parts.kind {
		case unix.NFTA_PAYLOAD_DREG:
			err = bigEndian32(parts.value, &destination)
		case unix.NFTA_PAYLOAD_BASE:
			err = bigEndian32(parts.value, &base)
		case unix.NFTA_PAYLOAD_OFFSET:
			err = bigEndian32(parts.value, &offset)
		case unix.NFTA_PAYLOAD_LEN:
			err = bigEndian32(parts.value, &length)
		}
		if err != nil {
			return nftLoad{}, 0, err
		}
	}
	return nftLoad{what: payloadWord(l.names.family, base, offset, length), size: int(length)}, destination, parts.err
}

// payloadWord names where addresses and ports stand in a packet (RFC 791, RFC 8200, RFC 9293).
func payloadWord(family kubeproxy.Family, base, offset, length uint32) string {
	sourceAt, destinationAt := uint32(12), uint32(16)
	if family == kubeproxy.IPv6 {
		sourceAt, destinationAt = 8, 24
	}
	switch {
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == sourceAt && family != kubeproxy.FamilyAny:
		return "-s"
	case base == unix.NFT_PAYLOAD_NETWORK_HEADER && offset == destinationAt && family != kubeproxy.FamilyAny:
		return "-d"
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && offset == 0 && length == 2:
		return "--sport"
	case base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && offset == 2 && length == 2:
		return "--dport"
	default:
		return fmt.Sprintf("payload %d,%d,%d", base, offset, length)
	}
}

// metaLoad is something about the packet that is not in it.
func metaLoad(data []byte) (load nftLoad, source, destination uint32, err error) {
	var operands nftOperands
	err = operands.parse(operationMeta, data)
	load = nftLoad{what: fmt.Sprintf("meta %d", operands.key), size: 4}
	switch operands.key {
	case unix.NFT_META_IIFNAME:
		load = nftLoad{what: "-i", size: unix.IFNAMSIZ}
	case unix.NFT_META_OIFNAME:
		load = nftLoad{what: "-o", size: unix.IFNAMSIZ}
	case unix.NFT_META_L4PROTO:
		load.what = "-p"
	case unix.NFT_META_MARK:
		load.what = "mark"
	}
	return load, operands.source, operands.destination, err
}
