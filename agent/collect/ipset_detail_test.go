package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/e2e/captures"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func ipsetRequestOf(name string) *offrampv1.DetailRequest {
	return &offrampv1.DetailRequest{Detail: &offrampv1.DetailRequest_Ipset{Ipset: name}}
}

// savedMembers is what `ipset save` prints of the members of a set, sorted.
func savedMembers(t *testing.T, name string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(run(t, "", "ipset", "save", name)) {
		if line = strings.TrimRight(line, " \n"); strings.HasPrefix(line, "add ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

func wantMembers(t *testing.T, name string) int {
	t.Helper()
	items, err := detail(t, ipsetRequestOf(name))
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	slices.Sort(items)
	if diff := cmp.Diff(savedMembers(t, name), items); diff != "" {
		t.Errorf("%s (-ipset +ours):\n%s", name, diff)
	}
	return len(items)
}

// Every member of every set of every capture, as ipset prints it.
func TestMembersOfCapturesReadAsIPSetSavesThem(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	members := 0
	for _, capture := range captures.Names() {
		saved := readCapture(t, capture, "ipset-save.txt")
		if saved == "" {
			continue
		}
		restoreSets(t, saved)
		for name := range strings.FieldsSeq(run(t, "", "ipset", "list", "-n")) {
			members += wantMembers(t, name)
		}
		run(t, "", "ipset", "destroy")
	}
	if members < 500 {
		t.Errorf("%d members in all captures", members)
	}
}

func TestMembersWithOptions(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	run(t, `create o1 hash:ip,port counters comment
add o1 10.96.0.1,tcp:443 packets 7 bytes 4200000000000 comment "the API server"
add o1 10.96.0.2,udp:53
create o2 hash:ip,port,net family inet6
add o2 fd00::1,sctp:80,2001:db8::/32
add o2 fd00::1,tcp:80,2001:db8::1 nomatch
create o3 hash:ip,port,net
add o3 10.96.0.1,tcp:80,198.51.100.0/24
add o3 10.96.0.1,udplite:80,198.51.100.1
add o3 10.96.0.1,tcp:80,0.0.0.0/1
create o4 bitmap:port range 0-65535
add o4 0
add o4 65535
create o5 hash:ip family inet6
add o5 fd00::1
create o6 hash:ip,port,ip family inet6
add o6 fd00::1,tcp:80,fd00::2
create $(reboot) hash:ip
add $(reboot) 10.0.0.1
`, "ipset", "restore")
	for _, name := range []string{"o1", "o2", "o3", "o4", "o5", "o6", "$(reboot)"} {
		if wantMembers(t, name) == 0 {
			t.Errorf("%s has no members", name)
		}
	}
}

func TestMembersThatCannotBeTold(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	if items, err := detail(t, ipsetRequestOf("KUBE-CLUSTER-IP")); !errors.Is(err, ErrNotThere) || len(items) > 0 {
		t.Errorf("no such set: %v, %v", items, err)
	}
	run(t, "create net1 hash:net\nadd net1 10.0.0.0/8\ncreate empty hash:ip\n", "ipset", "restore")
	if items, err := detail(t, ipsetRequestOf("net1")); err == nil || !strings.Contains(err.Error(), "hash:net") || len(items) > 0 {
		t.Errorf("a type nobody knows: %v, %v", items, err)
	}
	if items, err := detail(t, ipsetRequestOf("empty")); err != nil || len(items) > 0 {
		t.Errorf("an empty set: %v, %v", items, err)
	}
	none := newModules(hostOf(t, map[string]string{"proc/net/netlink": "sk Eth Pid\n"}))
	if err := membersOf(context.Background(), none, "x", &detailItems{}); !errors.Is(err, ErrNotThere) {
		t.Errorf("no ipsets at all: %v", err)
	}
}

func TestMembersAreBounded(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	var batch strings.Builder
	batch.WriteString("create many hash:ip,port maxelem 200000\n")
	for i := range 100_500 {
		fmt.Fprintf(&batch, "add many 10.%d.%d.%d,tcp:80\n", i>>16, i>>8&255, i&255)
	}
	run(t, batch.String(), "ipset", "restore")
	items, err := detail(t, ipsetRequestOf("many"))
	if !errors.Is(err, ErrTooMany) || len(items) != 100_000 {
		t.Errorf("%d members, %v", len(items), err)
	}
}
