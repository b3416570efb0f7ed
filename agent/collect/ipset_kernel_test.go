package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"offramp.dev/offramp/e2e/captures"
	"offramp.dev/offramp/internal/kubeproxy"
	"offramp.dev/offramp/internal/nstest"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func enterForIPSet(t *testing.T) bool {
	t.Helper()
	nstest.NeedTool(t, "ipset")
	nstest.NeedKernel(t, "ip_set")
	return nstest.Enter(t)
}

// restoreSets loads sets as `ipset save` printed them. Older kernels know neither bucketsize nor initval.
func restoreSets(t *testing.T, saved string) {
	t.Helper()
	run(t, regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(saved, ""), "ipset", "restore")
}

// readIPSets reads with a reader that has not read before.
func readIPSets(ctx context.Context, mods *modules) *offrampv1.Section {
	return (&ipsetReader{mods: mods}).read(ctx)
}

func readTheIPSets(ctx context.Context) *offrampv1.Section {
	return readIPSets(ctx, newModules(DefaultHost()))
}

// listedSets reads `ipset list -t`, which is the native tool's view of headers.
func listedSets(t *testing.T) []*offrampv1.Ipset {
	t.Helper()
	var sets []*offrampv1.Ipset
	for block := range strings.SplitSeq(strings.TrimSpace(run(t, "", "ipset", "list", "-t")), "\n\n") {
		set := &offrampv1.Ipset{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch key {
			case "Name":
				set.Name = value
			case "Type":
				set.Type = value
			case "Revision":
				scanNumber(t, value, &set.Revision)
			case "References":
				scanNumber(t, value, &set.References)
			case "Number of entries":
				scanNumber(t, value, &set.Entries)
			case "Size in memory":
				scanNumber(t, value, &set.MemoryBytes)
			case "Header":
				set.Family = familyOfHeader(value)
			}
		}
		if set.GetType() == "bitmap:ip" {
			// It has a family in the kernel, and ipset does not print it.
			set.Family = offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
		}
		sets = append(sets, set)
	}
	slices.SortFunc(sets, func(a, b *offrampv1.Ipset) int { return strings.Compare(a.GetName(), b.GetName()) })
	return sets
}

func familyOfHeader(header string) offrampv1.AddressFamily {
	switch words := strings.Fields(header); {
	case slices.Contains(words, "inet"):
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV4
	case slices.Contains(words, "inet6"):
		return offrampv1.AddressFamily_ADDRESS_FAMILY_IPV6
	default:
		return offrampv1.AddressFamily_ADDRESS_FAMILY_UNSPECIFIED
	}
}

func scanNumber(t *testing.T, text string, into any) {
	t.Helper()
	if _, err := fmt.Sscan(text, into); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
}

func TestIPSetsOfCapturesReadBackAsIPSetLists(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	wantState(t, readTheIPSets(t.Context()), sectionEmpty)
	tested := 0
	for _, name := range captures.Names() {
		saved := readCapture(t, name, "ipset-save.txt")
		if saved == "" {
			continue
		}
		tested++
		restoreSets(t, saved)
		section := readTheIPSets(t.Context())
		wantState(t, section, sectionPresent)
		content := section.GetStable().GetIpsets()
		want := listedSets(t)
		ignored := protocmp.IgnoreFields(&offrampv1.Ipset{}, "owner")
		if diff := cmp.Diff(want, content.GetSamples(), protocmp.Transform(), ignored); diff != "" {
			t.Errorf("%s (-ipset +ours):\n%s", name, diff)
		}
		entries := strings.Count(saved, "add ")
		if int(content.GetSets()) != len(want) || int(content.GetEntries()) != entries {
			t.Errorf("%s: %d sets, %d entries; want %d, %d", name, content.GetSets(), content.GetEntries(), len(want), entries)
		}
		run(t, "", "ipset", "destroy")
	}
	if tested != 5 {
		t.Errorf("%d captures have sets, want 5", tested)
	}
}

// Whose each virtual server of a capture is: its sets in the kernel, its addresses by hand, its table as a file, and the
// answers as they were written by hand into owners.txt.
func TestVirtualServersOfCapturesHaveTheirOwners(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	for _, name := range captures.Names() {
		want := map[string]string{}
		for line := range strings.Lines(readCapture(t, name, "owners.txt")) {
			if words := strings.Split(strings.TrimSpace(line), "\t"); words[0] == "server" {
				want[words[1]+" "+words[2]] = words[3]
			}
		}
		restoreSets(t, readCapture(t, name, "ipset-save.txt"))
		ports, err := readServicePorts(t.Context(), newModules(DefaultHost()))
		if err != nil {
			t.Fatal(err)
		}
		by := claims{ports: ports, local: localOfCapture(t, name)}
		got := map[string]string{}
		for _, server := range parseText(t, readCapture(t, name, "proc-net-ip_vs.txt")).servers {
			owner, _ := by.owner(server)
			got[server.item()] = string(owner)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-by hand +ours):\n%s", name, diff)
		}
		run(t, "", "ipset", "destroy")
	}
}

// localOfCapture reads `ip addr`.
func localOfCapture(t *testing.T, name string) *localAddresses {
	t.Helper()
	local := &localAddresses{ipvs: map[netip.Addr]struct{}{}, node: map[netip.Addr]struct{}{}}
	on := local.node
	for line := range strings.Lines(readCapture(t, name, "ip-addr.txt")) {
		words := strings.Fields(line)
		switch {
		case line[0] != ' ' && strings.Contains(line, "kube-ipvs0"):
			on = local.ipvs
		case line[0] != ' ':
			on = local.node
		case words[0] == "inet" || words[0] == "inet6":
			on[netip.MustParsePrefix(words[1]).Addr()] = struct{}{}
		}
	}
	return local
}

func TestServicePortsOfEveryKind(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	if ports, err := readServicePorts(t.Context(), newModules(DefaultHost())); err != nil || len(ports.services) != 0 {
		t.Fatalf("without sets: %v, %v", ports, err)
	}
	restoreSets(t, `create KUBE-CLUSTER-IP hash:ip,port family inet
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
add KUBE-CLUSTER-IP 10.96.0.10,udp:53
create KUBE-6-LOAD-BALANCER hash:ip,port family inet6
add KUBE-6-LOAD-BALANCER 2001:db8::1,sctp:7
create KUBE-EXTERNAL-IP hash:ip,port family inet6
add KUBE-EXTERNAL-IP 2001:db8::2,tcp:7
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 30080
create KUBE-6-NODE-PORT-UDP bitmap:port range 0-65535
add KUBE-6-NODE-PORT-UDP 30053
create KUBE-6-NODE-PORT-LOCAL-SCTP-HAS hash:ip,port family inet6
add KUBE-6-NODE-PORT-LOCAL-SCTP-HAS fd00::2,sctp:30009
create KUBE-LOOP-BACK hash:ip,port,ip family inet
add KUBE-LOOP-BACK 10.244.0.5,tcp:80,10.244.0.5
create KUBE-HEALTH-CHECK-NODE-PORT bitmap:port range 0-65535
add KUBE-HEALTH-CHECK-NODE-PORT 31000
create MINE hash:ip,port family inet
add MINE 10.96.0.66,tcp:443
`)
	ports, err := readServicePorts(t.Context(), newModules(DefaultHost()))
	if err != nil {
		t.Fatal(err)
	}
	wantServices := map[servicePort]struct{}{
		{"TCP", netip.MustParseAddrPort("10.96.0.1:443")}:    {},
		{"UDP", netip.MustParseAddrPort("10.96.0.10:53")}:    {},
		{"SCTP", netip.MustParseAddrPort("[2001:db8::1]:7")}: {},
	}
	if diff := cmp.Diff(wantServices, ports.services, cmp.AllowUnexported(servicePort{}), compareUnexported()); diff != "" {
		t.Errorf("services; one is in a set of the wrong family, one in a stranger's (-want +got):\n%s", diff)
	}
	wantNodes := map[nodePort]struct{}{{"TCP", 30080, 4}: {}, {"UDP", 30053, 6}: {}, {"SCTP", 30009, 6}: {}}
	if diff := cmp.Diff(wantNodes, ports.nodes, cmp.AllowUnexported(nodePort{})); diff != "" {
		t.Errorf("node ports (-want +got):\n%s", diff)
	}
	if !ports.HasNodePort("TCP", 30080, 4) || ports.HasNodePort("TCP", 30080, 6) || ports.HasNodePort("UDP", 30080, 4) ||
		!ports.HasService("TCP", netip.MustParseAddrPort("10.96.0.1:443")) ||
		ports.HasService("UDP", netip.MustParseAddrPort("10.96.0.1:443")) {
		t.Error("the wrong answers")
	}
}

func TestIPSetNamesAreBytes(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	for _, name := range []string{"$(reboot)", "\xff\xfe", `back\slash`, "two words", "--help"} {
		run(t, "", "ipset", "create", name, "hash:net")
	}
	var names []string
	for _, sample := range readTheIPSets(t.Context()).GetStable().GetIpsets().GetSamples() {
		names = append(names, sample.GetName())
	}
	if diff := cmp.Diff([]string{"$(reboot)", "--help", `back\\slash`, "two words", `\xff\xfe`}, names); diff != "" {
		t.Error(diff)
	}
}

// TestIPSetsOfEveryType: a type that kube-proxy never uses is counted all the same.
func TestIPSetsOfEveryType(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	restoreSets(t, `create a hash:net,port
create b hash:net,iface family inet6 timeout 60 counters comment skbinfo
create c list:set size 8
create e bitmap:ip range 10.0.0.0/24
add c a
`)
	section := readTheIPSets(t.Context())
	ignored := protocmp.IgnoreFields(&offrampv1.Ipset{}, "owner")
	if diff := cmp.Diff(listedSets(t), section.GetStable().GetIpsets().GetSamples(), protocmp.Transform(), ignored); diff != "" {
		t.Errorf("(-ipset +ours):\n%s", diff)
	}
}

// churn keeps a process writing to the kernel until stop is called: the program reads the same lines over and over.
func churn(t *testing.T, lines, program string, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, program, args...)
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	command.Stdout, command.Stderr = &messages, &messages
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	written := make(chan int)
	go func() {
		rounds := 0
		for ; ; rounds++ {
			if _, err := io.WriteString(input, lines); err != nil {
				break
			}
		}
		written <- rounds
	}()
	return func() {
		cancel()
		rounds := <-written
		_ = command.Wait()
		if messages.Len() > 0 || rounds < 10 {
			t.Errorf("%s wrote %d rounds and says: %s", program, rounds, messages.String())
		}
	}
}

// Another process makes, fills and destroys sets without pause. Whatever is reported as read in full is right about
// what did not change.
func TestIPSetsUnderChurn(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	const permanent = 300
	var saved strings.Builder
	for i := range 40 {
		fmt.Fprintf(&saved, "create still-%02d hash:ip,port family inet\n", i)
	}
	saved.WriteString("create KUBE-CLUSTER-IP hash:ip,port family inet\n")
	for i := range permanent {
		fmt.Fprintf(&saved, "add still-00 10.0.%d.%d,tcp:80\nadd KUBE-CLUSTER-IP 10.96.%d.%d,tcp:80\n", i/250, i%250, i/250, i%250)
	}
	restoreSets(t, saved.String())
	defer churn(t, `add KUBE-CLUSTER-IP 10.97.0.1,tcp:80
add still-07 10.0.0.1,tcp:80
del KUBE-CLUSTER-IP 10.97.0.1,tcp:80
del still-07 10.0.0.1,tcp:80
`, "ipset", "restore")()
	// The kernel refuses to destroy a set in the moment that somebody lists it, which ends a whole restore.
	defer churn(t, "a\nb\n", "sh", "-c", `while read -r name; do
	ipset create $name-moving hash:ip family inet -exist
	ipset add $name-moving 10.0.0.1 -exist
	ipset destroy $name-moving 2>/dev/null
done`)()
	mods := newModules(DefaultHost())
	reader := &ipsetReader{mods: mods}
	states := map[offrampv1.SectionState]int{}
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		section := reader.read(t.Context())
		states[section.GetStable().GetState()]++
		if section.GetStable().GetState() == sectionPresent {
			checkUnderChurn(t, section.GetStable().GetIpsets(), permanent)
		}
		ports, err := readServicePorts(t.Context(), mods)
		switch {
		case errors.Is(err, errInconsistent):
		case err != nil:
			t.Fatal(err)
		case len(ports.services) < permanent || len(ports.services) > permanent+1:
			t.Fatalf("%d services read, want %d or one more", len(ports.services), permanent)
		}
	}
	t.Logf("%v", states)
	if states[sectionInconsistent]+states[sectionPresent] == 0 || len(states) > 2 {
		t.Errorf("states %v", states)
	}
}

func checkUnderChurn(t *testing.T, content *offrampv1.IpsetsFacts, permanent uint64) {
	t.Helper()
	if content.GetSets() < 41 || content.GetSets() > 43 {
		t.Fatalf("%d sets, want 41 to 43", content.GetSets())
	}
	if content.GetEntries() < 2*permanent || content.GetEntries() > 2*permanent+3 {
		t.Fatalf("%d entries, want %d to 3 more", content.GetEntries(), 2*permanent)
	}
}

// Another process swaps sets of three entries with empty ones without pause, in the middle of a list, too: each set's own
// header is right and so are all names, and yet what a single list adds up to is often wrong.
func TestIPSetsUnderSwaps(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	const pairs = 20
	var saved, swaps strings.Builder
	for i := range pairs {
		fmt.Fprintf(&saved, "create a%02d hash:ip\nadd a%02d 10.0.0.1\nadd a%02d 10.0.0.2\nadd a%02d 10.0.0.3\n", i, i, i, i)
	}
	for i := range pairs {
		fmt.Fprintf(&saved, "create b%02d hash:ip\n", i)
		fmt.Fprintf(&swaps, "swap a%02d b%02d\n", i, i)
	}
	restoreSets(t, saved.String())
	// The kernel refuses to swap a set in the moment that somebody lists it, which ends a whole restore.
	stop := keepBusy(func() bool { return feed(swaps.String(), "ipset", "restore") == nil })
	reader := &ipsetReader{mods: newModules(DefaultHost())}
	states := map[offrampv1.SectionState]int{}
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); {
		section := reader.read(t.Context())
		states[section.GetStable().GetState()]++
		if entries := section.GetStable().GetIpsets().GetEntries(); section.GetStable().GetState() == sectionPresent && entries != 3*pairs {
			t.Errorf("%d entries in all, want %d", entries, 3*pairs)
		}
	}
	if stop() == 0 {
		t.Error("nothing was swapped")
	}
	t.Logf("readings by state: %v", states)
}

// A reader reads twice when it does not know the sets, and when they are not what it knows; else once.
func TestIPSetsReadOnceWhereNothingChanged(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	reader := &ipsetReader{mods: newModules(DefaultHost())}
	for _, step := range []struct {
		change   string
		entries  uint64
		attempts uint32
	}{
		{"create a hash:ip\nadd a 10.0.0.1\n", 1, 2},
		{"", 1, 1},
		{"add a 10.0.0.2\n", 2, 2},
		{"", 2, 1},
		{"create b hash:ip\n", 2, 2},
		{"swap a b\n", 2, 2},
	} {
		restoreSets(t, step.change)
		section := reader.read(t.Context())
		if section.GetStable().GetIpsets().GetEntries() != step.entries || section.GetVolatile().GetAttempts() != step.attempts {
			t.Errorf("after %q: %v, want %d entries after %d readings", step.change, section, step.entries, step.attempts)
		}
	}
}

// asNobody runs f on a thread without any capability; the thread ends with it.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &make([]unix.CapUserData, 2)[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestIPSetsWithoutThePrivilege(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	asNobody(t, func() {
		section := readTheIPSets(t.Context())
		wantState(t, section, sectionUnreadable)
		if !strings.Contains(section.GetStable().GetError(), "not permitted") {
			t.Errorf("error %q", section.GetStable().GetError())
		}
	})
}

func TestIPSetsEndWithTheDeadline(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	wantState(t, readTheIPSets(ctx), sectionUnreadable)
}

func BenchmarkIPSetHeaders(b *testing.B) {
	enterNamespace(b)
	var saved strings.Builder
	saved.WriteString("create big hash:ip,port maxelem 200000\n")
	for i := range 34 {
		fmt.Fprintf(&saved, "create set-%d hash:ip,port\n", i)
	}
	for i := range 100_000 {
		fmt.Fprintf(&saved, "add big 10.%d.%d.%d,tcp:80\n", i>>16, i>>8&255, i&255)
	}
	command := exec.CommandContext(b.Context(), "ipset", "restore")
	command.Stdin = strings.NewReader(saved.String())
	if out, err := command.CombinedOutput(); err != nil {
		b.Skipf("%v: %s", err, out)
	}
	b.ReportAllocs()
	for b.Loop() {
		if section := readTheIPSets(b.Context()); section.GetStable().GetIpsets().GetEntries() != 100_000 {
			b.Fatal(section)
		}
	}
}

func TestIPSetMembersOfWhatIsNotThere(t *testing.T) {
	if !enterForIPSet(t) {
		return
	}
	restoreSets(t, "create KUBE-CLUSTER-IP hash:ip,port family inet6\nadd KUBE-CLUSTER-IP fd00::1,tcp:80\n")
	s, err := openIPSet(newModules(DefaultHost()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, set := range []kubeproxy.Set{
		{Name: "KUBE-CLUSTER-IP", Type: "hash:ip,port", Family: kubeproxy.IPv4},
		{Name: "KUBE-EXTERNAL-IP", Type: "hash:ip,port", Family: kubeproxy.IPv4},
	} {
		if err := dumpIPSetMembers(t.Context(), s, set, func(ipsetMember) {}); !errors.Is(err, errTorn) {
			t.Errorf("%v: %v, want %v", set, err, errTorn)
		}
	}
}
