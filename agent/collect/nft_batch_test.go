package collect

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// commit sends one message to nf_tables as a transaction of its own, over a socket that stays open.
func commit(t *testing.T, command uint16, family uint8, flags uint16, attributes ...[]byte) *nftSocket {
	t.Helper()
	s, err := openNFT()
	if err != nil {
		t.Fatal(err)
	}
	const subsystem = unix.NFNL_SUBSYS_NFTABLES
	edge := []byte{unix.AF_UNSPEC, 0, 0, subsystem}
	body := append([]byte{family, 0, 0, 0}, slices.Concat(attributes...)...)
	batch := slices.Concat(
		transactionPart(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, edge),
		transactionPart(subsystem<<8|command, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_ACK|flags, body),
		transactionPart(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, edge),
	)
	if err := unix.Sendto(s.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	length, _, err := unix.Recvfrom(s.fd, s.buffer, 0)
	if err != nil || length < 20 {
		t.Fatalf("no answer: %v", err)
	}
	number := int32(binary.NativeEndian.Uint32(s.buffer[16:]))
	if -number == int32(unix.EINVAL) && command == unix.NFT_MSG_NEWTABLE {
		t.Skip("this kernel knows no owners of tables: it is older than 5.12")
	}
	if number != 0 {
		t.Fatalf("refused: %v", unix.Errno(-number))
	}
	return s
}

func transactionPart(kind, flags uint16, body []byte) []byte {
	message := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, flags)
	return append(append(message, make([]byte, 8)...), body...)
}

// addSet makes a set of interface names in a table of the family inet, with notes of nft's about it.
func addSet(t *testing.T, table, name string, userdata []byte) {
	t.Helper()
	s := commit(t, unix.NFT_MSG_NEWSET, unix.NFPROTO_INET, 0,
		attribute(unix.NFTA_SET_TABLE, []byte(table+"\x00")), attribute(unix.NFTA_SET_NAME, []byte(name+"\x00")),
		attribute(unix.NFTA_SET_FLAGS, be32(0)), attribute(unix.NFTA_SET_KEY_TYPE, be32(41)), attribute(unix.NFTA_SET_KEY_LEN, be32(16)),
		attribute(unix.NFTA_SET_ID, be32(1)), attribute(unix.NFTA_SET_USERDATA, userdata))
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// ownTable makes a table that goes when the socket is closed.
func ownTable(t *testing.T, name string) *nftSocket {
	t.Helper()
	return commit(t, unix.NFT_MSG_NEWTABLE, unix.NFPROTO_IPV4, 0,
		attribute(unix.NFTA_TABLE_NAME, []byte(name+"\x00")), attribute(unix.NFTA_TABLE_FLAGS, be32(nftTableOwned)))
}
