package collect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// Numbers are those of linux/netfilter/ipset/ip_set.h: SETNAME 2, TYPENAME 3, REVISION 4, FAMILY 5, DATA 7, ADT 8.
// 0x8000 is NLA_F_NESTED, 0x4000 NLA_F_NET_BYTEORDER.
const nested, network32 = 0x8000, 0x4000

func headerMessage(name string) []byte {
	return joined(
		[]byte{2, 0, 0, 0}, // nfgenmsg
		attribute(1, []byte{7}),
		attribute(2, append([]byte(name), 0)),
		attribute(3, []byte("hash:ip,port\x00")),
		attribute(5, []byte{2}),
		attribute(4, []byte{6}),
		attribute(7|nested, joined(
			attribute(18|network32, be32(1024)),  // HASHSIZE
			attribute(19|network32, be32(65536)), // MAXELEM
			attribute(24|network32, be32(3)),     // ELEMENTS
			attribute(25|network32, be32(2)),     // REFERENCES
			attribute(26|network32, be32(4096)),  // MEMSIZE
			attribute(21, []byte{12}),            // BUCKETSIZE, of newer kernels
		)),
	)
}

func membersMessage(name string, members ...[]byte) []byte {
	var all []byte
	for _, member := range members {
		all = append(all, attribute(7|nested, member)...)
	}
	return joined(
		[]byte{2, 0, 0, 0},
		attribute(1, []byte{7}),
		attribute(2, append([]byte(name), 0)),
		attribute(8|nested, all),
	)
}

func memberOf(address string, port uint16, protocol uint8) []byte {
	ip := netip.MustParseAddr(address)
	kind := uint16(1)
	if ip.Is6() {
		kind = 2
	}
	return joined(
		attribute(1|nested, attribute(kind|network32, ip.AsSlice())),
		attribute(4|network32, binary.BigEndian.AppendUint16(nil, port)),
		attribute(7, []byte{protocol}),
	)
}

// eachParsed parses each member for visit.
func eachParsed(visit func(ipsetMember) error) func([]byte) error {
	return func(data []byte) error {
		var member ipsetMember
		if err := member.parse(data); err != nil {
			return err
		}
		var element ipsetElement
		if err := element.parse(data); err != nil {
			return err
		}
		return visit(member)
	}
}

func TestParseIPSetHeader(t *testing.T) {
	header, hasHeader, err := parseIPSetMessage(headerMessage("KUBE-CLUSTER-IP"), nil)
	want := ipsetHeader{
		name: "KUBE-CLUSTER-IP", kind: "hash:ip,port", family: kubeproxy.IPv4,
		revision: 6, references: 2, entries: 3, memory: 4096,
	}
	if err != nil || !hasHeader || header != want {
		t.Errorf("%+v, %v, %v; want %+v", header, hasHeader, err, want)
	}
}

func TestParseIPSetMembers(t *testing.T) {
	message := membersMessage("s", memberOf("10.96.0.1", 443, 6), memberOf("fd00::a", 53, 17),
		attribute(4|network32, []byte{0x75, 0x30})) // a member of a bitmap:port set
	var got []ipsetMember
	header, hasHeader, err := parseIPSetMessage(message, eachParsed(func(member ipsetMember) error {
		got = append(got, member)
		return nil
	}))
	if err != nil || hasHeader || header.name != "s" {
		t.Errorf("%+v, %v, %v", header, hasHeader, err)
	}
	if diff := cmp.Diff([]ipsetMember{
		{netip.MustParseAddr("10.96.0.1"), 443, 6},
		{netip.MustParseAddr("fd00::a"), 53, 17},
		{netip.Addr{}, 30000, 0},
	}, got, compareUnexported(), cmp.AllowUnexported(ipsetMember{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseIPSetRefuses(t *testing.T) {
	short := headerMessage("x")
	for name, message := range map[string][]byte{
		"nothing":               nil,
		"half a header":         {2, 0},
		"no name":               {2, 0, 0, 0},
		"cut within":            short[:len(short)-8],
		"a length of nothing":   joined([]byte{2, 0, 0, 0, 0, 0, 2, 0}),
		"a number of two bytes": joined(headerMessage("x"), attribute(7|nested, attribute(24|network32, []byte{0, 3}))),
		"an address of three":   membersMessage("x", attribute(1|nested, attribute(1|network32, []byte{10, 96, 0}))),
		"a port of one byte":    membersMessage("x", attribute(4|network32, []byte{80})),
	} {
		_, _, err := parseIPSetMessage(message, eachParsed(func(ipsetMember) error { return nil }))
		if !errors.Is(err, errMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestSortHeadersSeesARepeatedName(t *testing.T) {
	sorted, err := sortHeaders([]ipsetHeader{{name: "b"}, {name: "a"}})
	if err != nil || sorted[0].name != "a" {
		t.Errorf("%v, %v", sorted, err)
	}
	if _, err := sortHeaders([]ipsetHeader{{name: "b"}, {name: "a"}, {name: "b"}}); !errors.Is(err, errTorn) {
		t.Errorf("error %v, want %v", err, errTorn)
	}
}

func TestIPSetsSectionBoundsSamples(t *testing.T) {
	var headers []ipsetHeader
	for _, set := range kubeproxy.Sets() {
		headers = append(headers, ipsetHeader{name: set.Name, kind: set.Type, family: set.Family, entries: 1})
	}
	for i := range 30 {
		headers = append(headers, ipsetHeader{name: "mine-" + string(rune('A'+i)), kind: "hash:net", entries: 2})
	}
	headers = append(headers, ipsetHeader{name: "\xff$(reboot)\\", kind: "hash:new"})
	headers, err := sortHeaders(headers)
	if err != nil {
		t.Fatal(err)
	}
	content := ipsetsSection(headers).GetStable().GetIpsets()
	if content.GetSets() != 65 || content.GetEntries() != 34+60 {
		t.Errorf("%d sets with %d entries, want 65 with 94", content.GetSets(), content.GetEntries())
	}
	owners := map[string]int{}
	for _, sample := range content.GetSamples() {
		owners[sample.GetOwner()]++
	}
	if owners["kube-proxy/ipvs"] != 34 || owners["foreign:unidentified"] != 20 {
		t.Errorf("samples by owner: %v", owners)
	}
	if len(content.GetOwners()) != 2 || content.GetOwners()[0].GetCount() != 31 || content.GetOwners()[1].GetCount() != 34 {
		t.Errorf("owners %v", content.GetOwners())
	}
	if got := (ipsetHeader{name: "\xff$(reboot)\\"}).sample("").GetName(); got != `\xff$(reboot)\\` {
		t.Errorf("the name is printed as %q", got)
	}
}

func FuzzParseIPSetMessage(f *testing.F) {
	f.Add(headerMessage("KUBE-CLUSTER-IP"))
	f.Add(membersMessage("s", memberOf("10.96.0.1", 443, 6), memberOf("fd00::a", 53, 17)))
	f.Fuzz(func(t *testing.T, message []byte) {
		before := slices.Clone(message)
		header, _, err := parseIPSetMessage(message, eachParsed(func(ipsetMember) error { return nil }))
		if err == nil && header.name == "" {
			t.Error("a set without a name")
		}
		if !bytes.Equal(before, message) {
			t.Error("the message was changed")
		}
		ipsetsSection([]ipsetHeader{header})
	})
}

func FuzzParseAddress(f *testing.F) {
	f.Add(joined([]byte{2, 24, 0, 0}, binary.NativeEndian.AppendUint32(nil, 2), attribute(1, []byte{10, 0, 0, 1})))
	f.Fuzz(func(t *testing.T, message []byte) {
		if address, ok, err := parseAddress(message); ok && (err != nil || !address.prefix().IsValid()) {
			t.Errorf("%v, %v", address, err)
		}
	})
}

func TestParseAddress(t *testing.T) {
	index := binary.NativeEndian.AppendUint32(nil, 7)
	local, peer := attribute(2, []byte{10, 0, 0, 1}), attribute(1, []byte{10, 0, 0, 2})
	for name, test := range map[string]struct {
		message []byte
		want    string
		fails   bool
	}{
		"this end and the other": {joined([]byte{2, 32, 0, 0}, index, peer, local), "10.0.0.1/32", false},
		"one address":            {joined([]byte{2, 24, 0, 0}, index, peer), "10.0.0.2/24", false},
		"another family":         {joined([]byte{7, 24, 0, 0}, index), "", false},
		"no address":             {joined([]byte{2, 24, 0, 0}, index), "", true},
		"too long a prefix":      {joined([]byte{2, 33, 0, 0}, index, peer), "", true},
		"cut short":              {[]byte{2, 24, 0}, "", true},
	} {
		address, ok, err := parseAddress(test.message)
		if (err != nil) != test.fails || ok != (test.want != "") {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		if ok && (address.prefix().String() != test.want || address.link() != 7) {
			t.Errorf("%s: %v on %d", name, address.prefix(), address.link())
		}
	}
}

func TestConfirmRefusesAnotherSetOrAPart(t *testing.T) {
	set := kubeproxy.Set{Name: "KUBE-CLUSTER-IP", Type: "hash:ip,port", Family: kubeproxy.IPv4}
	header := ipsetHeader{name: set.Name, kind: set.Type, family: set.Family, entries: 3}
	if err := header.confirm(set, 3); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"a member less":         header.confirm(set, 2),
		"a member more":         header.confirm(set, 4),
		"another type":          header.confirm(kubeproxy.Set{Name: set.Name, Type: "hash:ip", Family: set.Family}, 3),
		"another family":        header.confirm(kubeproxy.Set{Name: set.Name, Type: set.Type, Family: kubeproxy.IPv6}, 3),
		"no answer about a set": ipsetHeader{}.confirm(set, 0),
	} {
		if !errors.Is(err, errTorn) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// libraries.md section 0: what the kernel says when it has no nfnetlink or no ip_set. Where ip_set is in sight the same
// numbers mean something else, and "absent" would be a lie.
func TestDeniesIPSet(t *testing.T) {
	without := newModules(hostOf(t, map[string]string{"sys/module/other/x": ""}))
	with := newModules(hostOf(t, map[string]string{"sys/module/ip_set/x": ""}))
	for _, test := range []struct {
		mods *modules
		err  error
		want bool
	}{
		{without, fmt.Errorf("list the ipsets: %w", unix.EINVAL), true},
		{without, unix.EPROTONOSUPPORT, true},
		{without, unix.EPERM, false},
		{without, errInconsistent, false},
		{without, nil, false},
		{with, unix.EINVAL, false},
		{with, unix.EPROTONOSUPPORT, false},
	} {
		if got := test.mods.deniesIPSet(test.err); got != test.want {
			t.Errorf("%v: %v, want %v", test.err, got, test.want)
		}
	}
}
