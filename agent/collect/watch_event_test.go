package collect

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func linkMessage(index int32, name string) []byte {
	message := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(message[4:], uint32(index))
	return append(message, attribute(unix.IFLA_IFNAME, append([]byte(name), 0))...)
}

func addressMessage(scope uint8) []byte {
	return joined([]byte{unix.AF_INET, 32, 0, scope, 7, 0, 0, 0}, attribute(unix.IFA_LOCAL, []byte{10, 96, 0, 1}))
}

func routeMessage(table, kind, bits uint8) []byte {
	message := []byte{unix.AF_INET, bits, 0, 0, table, 0, 0, kind, 0, 0, 0, 0}
	if bits > 0 {
		message = append(message, attribute(unix.RTA_DST, []byte{10, 96, 0, 1})...)
	}
	return message
}

func TestNetworkEvents(t *testing.T) {
	none := []offrampv1.SectionKind(nil)
	addresses := []offrampv1.SectionKind{kindAddresses}
	events := networkEvents{names: map[int32]string{}}
	for _, step := range []struct {
		name    string
		kind    uint16
		message []byte
		want    []offrampv1.SectionKind
	}{
		{"an address", unix.RTM_NEWADDR, addressMessage(unix.RT_SCOPE_UNIVERSE), networkKinds()},
		{"an address goes", unix.RTM_DELADDR, addressMessage(unix.RT_SCOPE_UNIVERSE), networkKinds()},
		{"a link-local address", unix.RTM_NEWADDR, addressMessage(unix.RT_SCOPE_LINK), addresses},
		{"half an address", unix.RTM_NEWADDR, []byte{2}, networkKinds()},
		{"a local route", unix.RTM_NEWROUTE, routeMessage(unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, 32), []offrampv1.SectionKind{kindIPVSLink}},
		{"a pod's route", unix.RTM_NEWROUTE, routeMessage(unix.RT_TABLE_MAIN, unix.RTN_UNICAST, 32), none},
		{"a default route", unix.RTM_DELROUTE, routeMessage(unix.RT_TABLE_MAIN, unix.RTN_UNICAST, 0), addresses},
		{"half a route", unix.RTM_NEWROUTE, []byte{2, 32}, networkKinds()},
		{"a pod's link", unix.RTM_NEWLINK, linkMessage(9, "veth1"), none},
		{"the same again", unix.RTM_NEWLINK, linkMessage(9, "veth1"), none},
		{"another name", unix.RTM_NEWLINK, linkMessage(9, "eth1"), networkKinds()},
		{"it goes", unix.RTM_DELLINK, linkMessage(9, "eth1"), none},
		{"another with its index", unix.RTM_NEWLINK, linkMessage(9, "veth2"), none},
		{"kube-ipvs0", unix.RTM_NEWLINK, linkMessage(8, "kube-ipvs0"), networkKinds()},
		{"kube-ipvs0 goes", unix.RTM_DELLINK, linkMessage(8, "kube-ipvs0"), networkKinds()},
		{"a name that begins so", unix.RTM_NEWLINK, linkMessage(7, "kube-ipvs00"), none},
		{"half a link", unix.RTM_NEWLINK, []byte{0, 0}, networkKinds()},
		{"something else", unix.RTM_NEWNEIGH, []byte{0, 0}, none},
	} {
		if diff := cmp.Diff(step.want, events.concerns(step.kind, step.message)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	torn := make([]byte, unix.SizeofNlMsghdr)
	torn[0] = 200 // bytes that are not there
	if got := events.all(torn); len(got) != len(networkKinds()) {
		t.Errorf("what is no message concerns %v", got)
	}
}

func FuzzNetworkEvents(f *testing.F) {
	f.Add(uint16(unix.RTM_NEWLINK), linkMessage(9, "veth1"))
	f.Add(uint16(unix.RTM_NEWADDR), addressMessage(0))
	f.Add(uint16(unix.RTM_NEWROUTE), routeMessage(unix.RT_TABLE_LOCAL, unix.RTN_LOCAL, 32))
	f.Fuzz(func(_ *testing.T, kind uint16, message []byte) {
		events := networkEvents{names: map[int32]string{}}
		events.concerns(kind, message)
		_, _ = parseNeighbour(message)
		_, _, _ = parseStatistics(message)
	})
}
