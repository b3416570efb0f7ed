package collect

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// Whatever the kernel says, a line comes out of it: nothing panics, and a line stays one.
func FuzzLineOfNFT(f *testing.F) {
	f.Add(true, ctExpression(unix.NFT_CT_STATE), []byte("\x00\x02x\x00"))
	f.Add(false, matchExpression("set", 4, []byte{1, 0, 2, 6}), []byte{})
	f.Add(false, matchExpression("sctp", 0, make([]byte, sctpMatchSize)), []byte{})
	f.Add(false, matchExpression("addrtype", 1, make([]byte, 8)), []byte{})
	f.Add(true, bitwiseExpression(1, 8, 0), []byte{})
	f.Add(true, cmpExpression(1, unix.NFT_CMP_GTE, 8), []byte{})
	f.Add(true, expression("payload", attribute(unix.NFTA_PAYLOAD_DREG, be32(1)), attribute(unix.NFTA_PAYLOAD_BASE, be32(1)),
		attribute(unix.NFTA_PAYLOAD_OFFSET, be32(8)), attribute(unix.NFTA_PAYLOAD_LEN, be32(16))), []byte{})
	f.Add(true, expression("lookup", attribute(unix.NFTA_LOOKUP_SET, []byte("s\x00")), attribute(unix.NFTA_LOOKUP_SREG, be32(1))), []byte{})
	f.Fuzz(func(t *testing.T, ipv6 bool, expressions, userdata []byte) {
		names := lineNames{family: kubeproxy.IPv4, sets: setNames{1: {Name: "s"}}}
		if ipv6 {
			names.family = kubeproxy.IPv6
		}
		line, err := lineOfNFT(names, &nftObject{expressions: expressions, userdata: userdata})
		if text := line.text("c"); err == nil && !strings.HasPrefix(text, "-A c") {
			t.Errorf("%q", text)
		}
	})
}

func FuzzLegacyLine(f *testing.F) {
	for _, layout := range legacyLayouts() {
		_, blob := legacySample(&layout)
		f.Add(layout.family == kubeproxy.IPv6, blob)
	}
	f.Fuzz(func(t *testing.T, ipv6 bool, blob []byte) {
		layout := legacyIPv4()
		if ipv6 {
			layout = legacyIPv6()
		}
		names := lineNames{family: layout.family}
		_ = layout.eachEntry(blob, func(entry *legacyEntry) error {
			line, err := legacyLine(&layout, names, entry)
			if text := line.text("c"); err == nil && !strings.HasPrefix(text, "-A c") {
				t.Errorf("%q", text)
			}
			return nil
		})
	})
}

func FuzzEachElement(f *testing.F) {
	key := attribute(unix.NFTA_SET_ELEM_KEY, attribute(unix.NFTA_DATA_VALUE, make([]byte, 12)))
	data := attribute(unix.NFTA_SET_ELEM_DATA, attribute(unix.NFTA_DATA_VERDICT, attribute(unix.NFTA_VERDICT_CODE, be32(1))))
	f.Add(message(2, attribute(unix.NFTA_SET_ELEM_LIST_ELEMENTS, attribute(unix.NFTA_LIST_ELEM, key, data))))
	f.Fuzz(func(t *testing.T, data []byte) {
		elements := 0
		_ = eachElement(data, func(*nftElement) error { elements++; return nil })
		if elements > len(data)/attributeHeaderSize {
			t.Errorf("%d elements in %d bytes", elements, len(data))
		}
	})
}

func FuzzNewerFeatures(f *testing.F) {
	f.Add(uint32(0), uint32(41), []byte("\x03\x06\x00\x04\x04\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, flags, key uint32, userdata []byte) {
		set := &nftObject{name: []byte("s"), flags: flags, keyType: key, userdata: userdata}
		if found := newerFeatures(set); len(found) > 6+len(userdata)/2+1 {
			t.Errorf("%d features", len(found))
		}
	})
}
