package cleanup

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// As the kernel's ip_vs_info_seq_show prints it.
const ipvsText = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr persistent 10800 FFFFFFFF
  -> C0000202:192B      Masq    1      3          0         
  -> C0000203:192B      Masq    0      0          0         
UDP  [fd00:0010:0096:0000:0000:0000:0000:000a]:0035 lc 
  -> [fd00:0010:0244:0000:0000:0000:0000:0003]:0035      Masq    1      0          0         
FWM  00000007 rr 
  -> C0000299:0050      Route   1      0          0         
TCP  0A600002:0050 rr 
`

func TestIPVSTable(t *testing.T) {
	got, err := parseIPVSTable(strings.NewReader(ipvsText))
	if err != nil {
		t.Fatal(err)
	}
	api := ipvsKey{unix.IPPROTO_TCP, netip.MustParseAddrPort("10.96.0.1:443")}
	dns := ipvsKey{unix.IPPROTO_UDP, netip.MustParseAddrPort("[fd00:10:96::a]:53")}
	bare := ipvsKey{unix.IPPROTO_TCP, netip.MustParseAddrPort("10.96.0.2:80")}
	want := ipvsTable{
		api:  {"192.0.2.2:6443 Masq", "192.0.2.3:6443 Masq"},
		dns:  {"[fd00:10:244::3]:53 Masq"},
		bare: {},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by hand (-), parsed (+):\n%s", diff)
	}
	server := &inventory.VirtualServer{RealServers: []inventory.RealServer{
		{Address: netip.MustParseAddrPort("192.0.2.3:6443"), Forward: "Masq", Weight: 1},
		{Address: netip.MustParseAddrPort("192.0.2.2:6443"), Forward: "Masq"},
	}}
	if !got.unchanged(server, api) {
		t.Error("another order and other weights count as a change")
	}
	server.RealServers[0].Forward = "Route"
	if got.unchanged(server, api) {
		t.Error("another way of forwarding counts as none")
	}
	server.RealServers = server.RealServers[1:]
	if got.unchanged(server, api) {
		t.Error("a real server more counts as none")
	}
}

func TestConnectionsThrough(t *testing.T) {
	const text = `Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP C0000202 A1B2 0A600001 01BB C0000203 192B ESTABLISHED     899
TCP C0000202 A1B3 0A600001 01BB C0000203 192B FIN_WAIT        10
TCP C0000202 A1B4 0A600009 01BB C0000203 192B ESTABLISHED     899
UDP C0000202 A1B5 0A600001 01BB C0000203 192B UDP             299
TCP fd00:0010:0096:0000:0000:0000:0000:0001 A1B2 fd00:0010:0096:0000:0000:0000:0000:000a 0050 fd00:0010:0096:0000:0000:0000:0000:000b 0050 ESTABLISHED 899
`
	servers := map[ipvsKey]bool{
		{unix.IPPROTO_TCP, netip.MustParseAddrPort("10.96.0.1:443")}:      true,
		{unix.IPPROTO_TCP, netip.MustParseAddrPort("[fd00:10:96::a]:80")}: true,
	}
	if got, err := countConnections(strings.NewReader(text), servers, &udpFlows{}); err != nil || got != 2 {
		t.Errorf("%d connections, error %v, want 2: one of each family", got, err)
	}
}

func TestSockets(t *testing.T) {
	word := func(address string) string { // as the kernel prints the words of an address on this machine
		bytes := netip.MustParseAddr(address).AsSlice()
		for i := 0; i < len(bytes); i += 4 {
			binary.BigEndian.PutUint32(bytes[i:], binary.NativeEndian.Uint32(bytes[i:]))
		}
		return strings.ToUpper(hexOf(bytes))
	}
	text := "  sl  local_address rem_address   st tx_queue rx_queue\n" +
		"   0: " + word("10.96.0.1") + ":A1B2 " + word("10.96.0.1") + ":01BB 01 00000000:00000000\n" +
		"   1: " + word("0.0.0.0") + ":0016 " + word("0.0.0.0") + ":0000 0A 00000000:00000000\n" +
		"   2: " + word("10.96.0.1") + ":A1B3 " + word("10.96.0.1") + ":01BB 06 00000000:00000000\n" +
		"   3: " + word("::ffff:10.96.0.1") + ":A1B4 " + word("::ffff:10.96.0.1") + ":01BB 08 00000000:00000000\n" +
		"   4: " + word("fd00:10:96::1") + ":A1B5 " + word("fd00:10:96::1") + ":01BB 02 00000000:00000000\n"
	var got []string
	err := parseSockets(strings.NewReader(text), false, func(s hostSocket) { got = append(got, s.local.String()) })
	if err != nil {
		t.Fatal(err)
	}
	// Neither the listener nor what waits in TIME_WAIT.
	want := []string{"10.96.0.1:41394", "10.96.0.1:41396", "[fd00:10:96::1]:41397"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by hand (-), parsed (+):\n%s", diff)
	}
	if err := parseSockets(strings.NewReader("head\n 0: 0A60:0050 00:00 01\n"), false, func(hostSocket) {}); err == nil {
		t.Error("half an address is understood")
	}
}

func hexOf(bytes []byte) string {
	const digits = "0123456789abcdef"
	var text strings.Builder
	for _, b := range bytes {
		text.WriteByte(digits[b>>4])
		text.WriteByte(digits[b&15])
	}
	return text.String()
}

func TestLegacyListing(t *testing.T) {
	const text = "-P INPUT ACCEPT\n-N KUBE-NODE-PORT\n" +
		`-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT` + "\n" +
		`-A KUBE-NODE-PORT -m comment --comment "say \"-j DROP\" here" -m set --match-set X dst -g OTHER` + "\n"
	listing, err := parseLegacyListing(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"KUBE-NODE-PORT"}, listing.chains); diff != "" {
		t.Error(diff)
	}
	for chain, want := range map[string]string{"INPUT": "KUBE-NODE-PORT", "KUBE-NODE-PORT": "OTHER"} {
		if got := leadsTo(listing.rules[chain][0]); got != want {
			t.Errorf("the rule of %s leads to %q, want %q", chain, got, want)
		}
	}
	if _, err := parseLegacyListing("Chain INPUT (policy ACCEPT)\n"); err == nil {
		t.Error("the output of -L is understood")
	}
}

func legacyPlan() (*inventory.Node, []*offrampv1.Operation) {
	const section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	jump := `-A INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`
	node := &inventory.Node{Rulesets: []inventory.Ruleset{{Section: section, Family: kubeproxy.IPv4, Tables: []inventory.RuleTable{{
		Name: "filter", Chains: []inventory.Chain{
			{Name: "INPUT", Base: true, Rules: []inventory.Rule{{Position: 1, To: "KUBE-NODE-PORT", Text: jump}, {Position: 2, To: "KUBE-NODE-PORT", Text: jump}}},
			{Name: "KUBE-NODE-PORT", Rules: []inventory.Rule{{Position: 1, Target: "ACCEPT", Text: "-A KUBE-NODE-PORT ... -j ACCEPT"}}},
		},
	}}}}}
	rule := func(position uint32) *offrampv1.Operation {
		return &offrampv1.Operation{Change: &offrampv1.Operation_DeleteRule{DeleteRule: &offrampv1.DeleteRule{
			Section: section, Table: "filter", Chain: "INPUT", Rule: jump, Position: position,
		}}}
	}
	chain := &offrampv1.Operation{Change: &offrampv1.Operation_DeleteChain{DeleteChain: &offrampv1.DeleteChain{
		Section: section, Table: "filter", Chain: "KUBE-NODE-PORT", Rules: 1,
	}}}
	return node, []*offrampv1.Operation{rule(1), rule(2), chain}
}

// Rules go by their own text, jumps first, chains last; never a flush, and never a rule that was not there.
func TestLegacyLines(t *testing.T) {
	node, operations := legacyPlan()
	edit := &legacyEdit{table: legacyTable{kubeproxy.IPv4, "filter"}, operations: operations, inventory: node}
	const jump, inside = ` INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT`, " KUBE-NODE-PORT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT"
	tests := map[string]struct {
		listing string
		want    []string
		ends    []offrampv1.OperationOutcome
		err     error
	}{
		"all of it": {
			"-P INPUT ACCEPT\n-N KUBE-NODE-PORT\n-A" + jump + "\n-A" + jump + "\n-A" + inside + "\n",
			[]string{"-D" + jump, "-D" + jump, "-D" + inside, "-X KUBE-NODE-PORT"},
			[]offrampv1.OperationOutcome{done, done, done}, nil,
		},
		"one jump is gone": {
			"-N KUBE-NODE-PORT\n-A" + jump + "\n-A" + inside + "\n",
			[]string{"-D" + jump, "-D" + inside, "-X KUBE-NODE-PORT"},
			[]offrampv1.OperationOutcome{done, gone, done}, nil,
		},
		"all is gone": {"-P INPUT ACCEPT\n", nil, []offrampv1.OperationOutcome{gone, gone, gone}, nil},
		"somebody has put a rule inside": {
			"-N KUBE-NODE-PORT\n-A" + jump + "\n-A" + inside + "\n-A KUBE-NODE-PORT -s 192.0.2.7/32 -j DROP\n", nil, nil, errChangedChain,
		},
		"somebody has put a rule in its place": {
			"-N KUBE-NODE-PORT\n-A" + jump + "\n-A KUBE-NODE-PORT -s 192.0.2.7/32 -j DROP\n", nil, nil, errChangedChain,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			listing, err := parseLegacyListing(test.listing)
			if err != nil {
				t.Fatal(err)
			}
			lines, ends, err := edit.write(listing)
			if !errors.Is(err, test.err) {
				t.Fatalf("error %v, want %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, lines, cmp.Transformer("nil", slices.Clip[[]string])); diff != "" && len(test.want)+len(lines) > 0 {
				t.Errorf("by hand (-), written (+):\n%s", diff)
			}
			if diff := cmp.Diff(test.ends, ends); diff != "" {
				t.Errorf("outcomes by hand (-), told (+):\n%s", diff)
			}
		})
	}
}

// The kernel's answer to a transaction, byte by byte.
func TestBatchVerdict(t *testing.T) {
	answer := func(sequence uint32, number int32) []byte {
		data := binary.NativeEndian.AppendUint32(nil, 36)
		data = binary.NativeEndian.AppendUint16(data, unix.NLMSG_ERROR)
		data = binary.NativeEndian.AppendUint16(data, 0)
		data = binary.NativeEndian.AppendUint32(data, sequence)
		data = binary.NativeEndian.AppendUint32(data, 1)
		return append(binary.NativeEndian.AppendUint32(data, uint32(number)), make([]byte, 16)...)
	}
	batch := newNFTBatch(7)
	for range 3 {
		batch.deleteChain(unix.NFPROTO_IPV4, "nat", "KUBE-SERVICES")
	}
	batch.close()
	tests := map[string]struct {
		answers []byte
		ended   bool
		err     error
		message int
	}{
		"done":                          {answer(3, 0), true, nil, 0},
		"nothing yet":                   {nil, false, nil, 0},
		"an answer to another message":  {answer(1, 0), false, nil, 0},
		"another generation":            {answer(0, -int32(unix.ERESTART)), true, errChanged, 0},
		"the second is refused":         {answer(2, -int32(unix.EBUSY)), true, unix.EBUSY, 1},
		"refused, and the last answers": {slices.Concat(answer(1, -int32(unix.ENOENT)), answer(3, 0)), true, unix.ENOENT, 0},
		"the commit fails":              {slices.Concat(answer(0, -int32(unix.ENOMEM)), answer(3, 0)), true, unix.ENOMEM, 0},
		"cut short":                     {answer(3, 0)[:20], false, errNoAnswer, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ended, err := batch.verdict(test.answers)
			if ended != test.ended || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
				t.Fatalf("ended %v, error %v, want %v, %v", ended, err, test.ended, test.err)
			}
			var refused *refusedError
			if errors.As(err, &refused) && refused.message != test.message {
				t.Errorf("message %d is refused, want %d", refused.message, test.message)
			}
		})
	}
}

func FuzzBatchVerdict(f *testing.F) {
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, answers []byte) { _, _ = newNFTBatch(1).verdict(answers) })
}

func FuzzIPVSTable(f *testing.F) {
	f.Add(ipvsText)
	f.Fuzz(func(_ *testing.T, text string) { _, _ = parseIPVSTable(strings.NewReader(text)) })
}

func FuzzLegacyListing(f *testing.F) {
	f.Add("-N A\n-A A -m comment --comment \"x\" -j B\n")
	f.Fuzz(func(_ *testing.T, text string) {
		if listing, err := parseLegacyListing(text); err == nil {
			for _, rules := range listing.rules {
				for _, rule := range rules {
					_ = leadsTo(rule)
				}
			}
		}
	})
}

// Parts of a plan that are done under one intent: transactions whole, all else at most 256 at a time, no two stages together.
func TestSpans(t *testing.T) {
	var operations []*offrampv1.Operation
	add := func(stage offrampv1.Stage, transaction uint32, count int) {
		for range count {
			operations = append(operations, &offrampv1.Operation{Stage: stage, Transaction: transaction})
			if stage != offrampv1.Stage_STAGE_RULES {
				transaction++
			}
		}
	}
	add(offrampv1.Stage_STAGE_SOURCE, 1, 3)
	add(offrampv1.Stage_STAGE_VIRTUAL_SERVERS, 4, 600)
	add(offrampv1.Stage_STAGE_RULES, 604, 1000)
	add(offrampv1.Stage_STAGE_RULES, 605, 2)
	add(offrampv1.Stage_STAGE_IPSETS, 606, 34)
	want := []span{{0, 3}, {3, 256}, {259, 256}, {515, 88}, {603, 1000}, {1603, 2}, {1605, 34}}
	if diff := cmp.Diff(want, spans(operations), cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("by hand (-), cut (+):\n%s", diff)
	}
}
