package collect

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conntrackInfo builds the data of a conntrack match, as iptables sends it: 8-byte aligned.
func conntrackInfo(revision int, matchFlags, invertFlags, stateMask uint16) []byte {
	info := make([]byte, map[int]int{1: 152, 2: 160, 3: 168}[revision])
	binary.NativeEndian.PutUint16(info[146:], matchFlags)
	binary.NativeEndian.PutUint16(info[148:], invertFlags)
	if revision == 1 {
		info[150] = byte(stateMask)
	} else {
		binary.NativeEndian.PutUint16(info[150:], stateMask)
	}
	return info
}

func TestIsStateNew(t *testing.T) {
	const (
		invalid, established, related, isNew = 1, 2, 4, 8 // XT_CONNTRACK_STATE_BIT
		state, proto, alias                  = 1, 2, 1 << 13
	)
	tests := map[string]struct {
		revision uint32
		info     []byte
		want     bool
	}{
		"revision 1":                {1, conntrackInfo(1, state, 0, isNew), true},
		"revision 2":                {2, conntrackInfo(2, state, 0, isNew), true},
		"revision 3":                {3, conntrackInfo(3, state, 0, isNew), true},
		"not NEW":                   {3, conntrackInfo(3, state, state, isNew), false},
		"NEW or ESTABLISHED":        {3, conntrackInfo(3, state, 0, isNew|established), false},
		"INVALID":                   {3, conntrackInfo(3, state, 0, invalid), false},
		"RELATED":                   {1, conntrackInfo(1, state, 0, related), false},
		"NEW and a protocol":        {3, conntrackInfo(3, state|proto, 0, isNew), false},
		"-m state --state NEW":      {3, conntrackInfo(3, state|alias, 0, isNew), false},
		"no match flag":             {3, conntrackInfo(3, 0, 0, isNew), false},
		"NEW and a bit of the mask": {2, conntrackInfo(2, state, 0, isNew|1<<8), false},
		"revision 0":                {0, conntrackInfo(3, state, 0, isNew), false},
		"revision 4":                {4, conntrackInfo(3, state, 0, isNew), false},
		"too short":                 {3, conntrackInfo(3, state, 0, isNew)[:151], false},
		"nothing":                   {3, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isStateNew(test.revision, test.info); got != test.want {
				t.Errorf("isStateNew = %v, want %v", got, test.want)
			}
		})
	}
}

func TestAddMatch(t *testing.T) {
	type match struct {
		name     string
		revision uint32
		info     []byte
	}
	isNew := conntrackInfo(3, 1, 0, 8)
	tests := map[string]struct {
		matches []match
		want    rule
	}{
		"none":             {nil, rule{}},
		"comment":          {[]match{{"comment", 0, []byte("a b\x00garbage")}}, rule{comment: []byte("a b")}},
		"comment, no NUL":  {[]match{{"comment", 0, []byte("a b")}}, rule{comment: []byte("a b")}},
		"ctstate NEW":      {[]match{{"conntrack", 3, isNew}}, rule{ctStateNew: true}},
		"ctstate NEW, two": {[]match{{"conntrack", 3, isNew}, {"conntrack", 3, isNew}}, rule{ctStateNew: true, otherMatches: true}},
		"ctstate INVALID":  {[]match{{"conntrack", 3, conntrackInfo(3, 1, 0, 1)}}, rule{otherMatches: true}},
		"comment and ctstate NEW": {
			[]match{{"conntrack", 3, isNew}, {"comment", 0, []byte("x\x00")}},
			rule{ctStateNew: true, comment: []byte("x")},
		},
		"two comments": {
			[]match{{"comment", 0, []byte("x\x00")}, {"comment", 0, []byte("y\x00")}},
			rule{comment: []byte("y"), otherMatches: true},
		},
		"set":                 {[]match{{"set", 4, []byte{1, 2, 2, 1}}}, rule{setMatch: true, sets: []uint16{0x201}, otherMatches: true}},
		"set, oldest":         {[]match{{"set", 0, append([]byte{3, 0}, make([]byte, 30)...)}}, rule{setMatch: true, sets: []uint16{3}, otherMatches: true}},
		"set, yet to come":    {[]match{{"set", 5, []byte{1, 0, 0, 0}}}, rule{setMatch: true, otherMatches: true}},
		"mark":                {[]match{{"mark", 1, []byte{0, 0x40, 0, 0, 0, 0x40, 0, 0, 0}}}, rule{marks: []markUse{{0x4000, 0x4000}}, otherMatches: true}},
		"mark, too short":     {[]match{{"mark", 1, []byte{0, 0x40, 0, 0}}}, rule{otherMatches: true}},
		"addrtype":            {[]match{{"addrtype", 1, nil}}, rule{otherMatches: true}},
		"no name":             {[]match{{"", 0, nil}}, rule{otherMatches: true}},
		"a name like another": {[]match{{"comments", 0, []byte("x")}}, rule{otherMatches: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got rule
			for _, match := range test.matches {
				got.addMatch([]byte(match.name), match.revision, match.info)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(rule{}, markUse{})); diff != "" {
				t.Errorf("by hand (-), parsed (+):\n%s", diff)
			}
		})
	}
}

func FuzzIsStateNew(f *testing.F) {
	for revision := 1; revision <= 3; revision++ {
		f.Add(uint32(revision), conntrackInfo(revision, 1, 0, 8))
	}
	f.Fuzz(func(t *testing.T, revision uint32, info []byte) {
		// Whatever says NEW has to be byte for byte what iptables sends, but for addresses and ports, which the flags turn off.
		if isStateNew(revision, info) && (info[146] != 1 || info[147] != 0 || info[150] != 8) {
			t.Errorf("revision %d, % x", revision, info)
		}
	})
}
