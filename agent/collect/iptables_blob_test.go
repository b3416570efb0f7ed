package collect

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// part builds an xt_entry_match or xt_entry_target.
func part(name string, revision uint8, data []byte) []byte {
	value := binary.NativeEndian.AppendUint16(nil, uint16(32+len(data)))
	value = append(value, name...)
	value = append(value, make([]byte, 31-len(value))...)
	value = append(value, revision)
	return append(value, data...)
}

func verdict(n int32) []byte {
	return part("", 0, binary.NativeEndian.AppendUint64(nil, uint64(uint32(n))))
}

func errorTarget(name string) []byte {
	return part("ERROR", 0, append([]byte(name), make([]byte, 32-len(name))...))
}

// entry builds an ipt_entry or ip6t_entry without conditions.
func (l *legacyLayout) build(target []byte, matches ...[]byte) []byte {
	data := make([]byte, l.header)
	data = append(data, slices.Concat(matches...)...)
	binary.NativeEndian.PutUint16(data[l.target:], uint16(len(data)))
	data = append(data, target...)
	binary.NativeEndian.PutUint16(data[l.target+2:], uint16(len(data)))
	return data
}

const (
	verdictAccept = -2 // -NF_ACCEPT - 1
	verdictReturn = -5 // -NF_REPEAT - 1
)

// legacySample is a nat table with a jump, a goto, a rule without a target, and a chain with a rule.
func legacySample(layout *legacyLayout) (*legacyInfo, []byte) {
	var blob []byte
	info := &legacyInfo{validHooks: 1<<0 | 1<<3}
	add := func(entry []byte) uint32 {
		offset := uint32(len(blob))
		blob = append(blob, entry...)
		return offset
	}
	size := uint32(layout.header + 40)
	comment := part("comment", 0, append([]byte("kubernetes service portals"), make([]byte, 230)...))
	// PREROUTING (3 rules), OUTPUT (1), KUBE-SERVICES (1): where that begins is known from the sizes.
	services := uint32(len(comment)) + 6*size + uint32(layout.header+64)
	info.hookEntry[0] = add(layout.build(verdict(int32(services)), comment))
	gotoRule := layout.build(verdict(int32(services)))
	gotoRule[layout.flags] = layout.isGoto
	add(gotoRule)
	add(layout.build(verdict(int32(uint32(len(blob)) + size)))) // no target: on to the next entry
	info.underflow[0] = add(layout.build(verdict(verdictAccept)))
	info.hookEntry[3] = add(layout.build(verdict(verdictReturn)))
	info.underflow[3] = add(layout.build(verdict(verdictAccept)))
	add(layout.build(errorTarget("KUBE-SERVICES")))
	add(layout.build(part("MARK", 2, make([]byte, 8)), part("set", 4, make([]byte, 24))))
	add(layout.build(verdict(verdictReturn)))
	add(layout.build(errorTarget("ERROR")))
	info.size = uint32(len(blob))
	return info, blob
}

func legacyLayouts() map[string]legacyLayout {
	return map[string]legacyLayout{"ipv4": legacyIPv4(), "ipv6": legacyIPv6()}
}

func TestCountLegacyTable(t *testing.T) {
	want := &offrampv1.IptablesFacts{
		Tables: []*offrampv1.IptablesTable{{Name: "nat", Chains: 3, Rules: 5}},
		Owners: []*offrampv1.ChainCount{{
			Table: "nat", Owner: "kube-proxy/shared", Chains: 1, Rules: 1, Jumps: 1, Samples: []string{"KUBE-SERVICES"},
		}},
		SharedChainsMode:      sharedIPVS,
		ForeignReferences:     []*offrampv1.ForeignReference{{Table: "nat", FromChain: "PREROUTING", ToChain: "KUBE-SERVICES"}},
		ForeignReferenceCount: 1,
	}
	for name, layout := range legacyLayouts() {
		t.Run(name, func(t *testing.T) {
			info, blob := legacySample(&layout)
			rules := newRuleset(layout.family)
			if err := countLegacyTable(&layout, "nat", info, blob, rules); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, rules.facts(), protocmp.Transform()); diff != "" {
				t.Errorf("by hand (-), parsed (+):\n%s", diff)
			}
		})
	}
}

// Conditions of the entry itself are matches too.
func TestLegacyConditions(t *testing.T) {
	for name, layout := range legacyLayouts() {
		t.Run(name, func(t *testing.T) {
			for at := range layout.conditions {
				blob := layout.build(verdict(verdictAccept))
				blob[at] = 1
				entry, err := layout.entry(blob, 0)
				if err != nil {
					t.Fatal(err)
				}
				if rule, err := entry.rule(); err != nil || !rule.otherMatches {
					t.Errorf("byte %d set: rule %+v, %v, want other matches", at, rule, err)
				}
			}
		})
	}
}

func TestCountLegacyTableRefusesWhatIsBroken(t *testing.T) {
	layout := legacyIPv4()
	tests := map[string]func(info *legacyInfo, blob []byte) []byte{
		"cut":                           func(_ *legacyInfo, blob []byte) []byte { return blob[:len(blob)-1] },
		"without its end":               func(_ *legacyInfo, blob []byte) []byte { return blob[:len(blob)-176] },
		"nothing":                       func(*legacyInfo, []byte) []byte { return nil },
		"an entry that goes nowhere":    func(_ *legacyInfo, blob []byte) []byte { blob[90], blob[91] = 0, 0; return blob },
		"an entry beyond the end":       func(_ *legacyInfo, blob []byte) []byte { blob[91] = 0xff; return blob },
		"a target before the matches":   func(_ *legacyInfo, blob []byte) []byte { blob[88], blob[89] = 8, 0; return blob },
		"a match of no size":            func(_ *legacyInfo, blob []byte) []byte { blob[112], blob[113] = 0, 0; return blob },
		"a match too long":              func(_ *legacyInfo, blob []byte) []byte { blob[113] = 0x7f; return blob },
		"a jump into the middle":        func(_ *legacyInfo, blob []byte) []byte { blob[112+288+32]++; return blob },
		"a policy elsewhere":            func(info *legacyInfo, blob []byte) []byte { info.underflow[0] += 152; return blob },
		"a chain that nothing begins":   func(info *legacyInfo, blob []byte) []byte { info.hookEntry[3] += 8; return blob },
		"two hooks on one chain":        func(info *legacyInfo, blob []byte) []byte { info.hookEntry[3] = 0; return blob },
		"rules before the first chain":  func(info *legacyInfo, blob []byte) []byte { info.validHooks = 1 << 3; return blob },
		"a user chain without its name": func(_ *legacyInfo, blob []byte) []byte { return renameChain(blob) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			info, blob := legacySample(&layout)
			if err := countLegacyTable(&layout, "nat", info, spoil(info, blob), newRuleset(layout.family)); err == nil {
				t.Error("counted, want an error")
			}
		})
	}
}

// renameChain takes KUBE-SERVICES its name away.
func renameChain(blob []byte) []byte {
	for at := range len(blob) - 13 {
		if string(blob[at:at+13]) == "KUBE-SERVICES" {
			clear(blob[at : at+13])
		}
	}
	return blob
}

func TestParseLegacyInfo(t *testing.T) {
	answer := make([]byte, legacyInfoSize)
	for i := range 13 {
		binary.NativeEndian.PutUint32(answer[32+4*i:], uint32(100+i))
	}
	want := &legacyInfo{
		validHooks: 100, hookEntry: [5]uint32{101, 102, 103, 104, 105}, underflow: [5]uint32{106, 107, 108, 109, 110},
		entries: 111, size: 112,
	}
	if diff := cmp.Diff(want, parseLegacyInfo(answer), cmp.AllowUnexported(legacyInfo{})); diff != "" {
		t.Errorf("by hand (-), parsed (+):\n%s", diff)
	}
	if len(answer) != 84 {
		t.Errorf("struct ipt_getinfo has %d bytes, want 84", len(answer))
	}
}

func FuzzCountLegacyTable(f *testing.F) {
	for _, layout := range legacyLayouts() {
		info, blob := legacySample(&layout)
		f.Add(layout.family == 6, info.validHooks, info.hookEntry[3], info.underflow[0], info.underflow[3], blob)
	}
	f.Fuzz(func(t *testing.T, ipv6 bool, hooks, output, underflow, underflow3 uint32, blob []byte) {
		layout := legacyIPv4()
		if ipv6 {
			layout = legacyIPv6()
		}
		info := &legacyInfo{validHooks: hooks & 0x1f}
		info.hookEntry[3], info.underflow[0], info.underflow[3] = output, underflow, underflow3
		rules := newRuleset(layout.family)
		if err := countLegacyTable(&layout, "nat", info, blob, rules); err != nil {
			return
		}
		if got := rules.facts().GetTables()[0].GetRules(); got > uint64(len(blob)/layout.header) {
			t.Errorf("%d rules in %d bytes", got, len(blob))
		}
	})
}
