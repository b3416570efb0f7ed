package collect

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// attribute builds a netlink attribute; its values follow each other.
func attribute(kind uint16, values ...[]byte) []byte {
	value := slices.Concat(values...)
	data := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	data = binary.NativeEndian.AppendUint16(data, kind)
	data = append(data, value...)
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	return data
}

func be32(n uint32) []byte     { return binary.BigEndian.AppendUint32(nil, n) }
func be64(n uint64) []byte     { return binary.BigEndian.AppendUint64(nil, n) }
func native32(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// expression builds an element of NFTA_RULE_EXPRESSIONS.
func expression(name string, attributes ...[]byte) []byte {
	return attribute(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED,
		attribute(unix.NFTA_EXPR_NAME, []byte(name+"\x00")), attribute(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, attributes...))
}

func counterExpression() []byte {
	return expression("counter", attribute(unix.NFTA_COUNTER_BYTES, be64(1)), attribute(unix.NFTA_COUNTER_PACKETS, be64(1)))
}

func matchExpression(name string, revision uint32, info []byte) []byte {
	return expression("match", attribute(unix.NFTA_MATCH_NAME, []byte(name+"\x00")),
		attribute(unix.NFTA_MATCH_REV, be32(revision)), attribute(unix.NFTA_MATCH_INFO, info))
}

func verdictExpression(code int32, chain string) []byte {
	verdict := attribute(unix.NFTA_VERDICT_CODE, be32(uint32(code)))
	if chain != "" {
		verdict = append(verdict, attribute(unix.NFTA_VERDICT_CHAIN, []byte(chain+"\x00"))...)
	}
	return expression("immediate", attribute(unix.NFTA_IMMEDIATE_DREG, be32(unix.NFT_REG_VERDICT)),
		attribute(unix.NFTA_IMMEDIATE_DATA, attribute(unix.NFTA_DATA_VERDICT, verdict)))
}

// ctExpression loads a key into register 1.
func ctExpression(key uint32, more ...[]byte) []byte {
	return expression("ct", attribute(unix.NFTA_CT_KEY, be32(key)), attribute(unix.NFTA_CT_DREG, be32(1)), slices.Concat(more...))
}

// bitwiseExpression works on register 1.
func bitwiseExpression(destination, mask, xor uint32) []byte {
	return expression("bitwise", attribute(unix.NFTA_BITWISE_SREG, be32(1)), attribute(unix.NFTA_BITWISE_DREG, be32(destination)),
		attribute(unix.NFTA_BITWISE_LEN, be32(4)), attribute(unix.NFTA_BITWISE_MASK, attribute(unix.NFTA_DATA_VALUE, native32(mask))),
		attribute(unix.NFTA_BITWISE_XOR, attribute(unix.NFTA_DATA_VALUE, native32(xor))))
}

func cmpExpression(register, operation, value uint32) []byte {
	return expression("cmp", attribute(unix.NFTA_CMP_SREG, be32(register)), attribute(unix.NFTA_CMP_OP, be32(operation)),
		attribute(unix.NFTA_CMP_DATA, attribute(unix.NFTA_DATA_VALUE, native32(value))))
}

func TestParseNFTRule(t *testing.T) {
	comment := matchExpression("comment", 0, append([]byte("kubernetes service portals"), make([]byte, 230)...))
	jump := verdictExpression(unix.NFT_JUMP, "KUBE-SERVICES")
	jumpTo := rule{to: []byte("KUBE-SERVICES")}
	jumpNew := rule{to: []byte("KUBE-SERVICES"), ctStateNew: true}
	jumpOther := rule{to: []byte("KUBE-SERVICES"), otherMatches: true}
	load := ctExpression(unix.NFT_CT_STATE)
	tests := map[string]struct {
		expressions [][]byte
		userdata    []byte
		want        rule
	}{
		"nothing":      {nil, nil, rule{}},
		"a plain jump": {[][]byte{counterExpression(), jump}, nil, jumpTo},
		"kube-proxy's own": {
			[][]byte{comment, counterExpression(), jump}, nil,
			rule{to: []byte("KUBE-SERVICES"), comment: []byte("kubernetes service portals")},
		},
		"ctstate NEW of x_tables": {[][]byte{matchExpression("conntrack", 3, conntrackInfo(3, 1, 0, 8)), counterExpression(), jump}, nil, jumpNew},
		"ctstate not NEW":         {[][]byte{matchExpression("conntrack", 3, conntrackInfo(3, 1, 1, 8)), jump}, nil, jumpOther},
		"a goto":                  {[][]byte{verdictExpression(unix.NFT_GOTO, "KUBE-SERVICES")}, nil, jumpOther},
		"accept":                  {[][]byte{verdictExpression(1, "")}, nil, rule{}},
		"return":                  {[][]byte{verdictExpression(unix.NFT_RETURN, "")}, nil, rule{}},
		"a set match": {
			[][]byte{matchExpression("set", 4, append([]byte{7, 0, 2, 1}, make([]byte, 36)...)), jump}, nil,
			rule{to: []byte("KUBE-SERVICES"), setMatch: true, sets: []uint16{7}, otherMatches: true},
		},
		"a target of x_tables":      {[][]byte{expression("target", attribute(unix.NFTA_TARGET_NAME, []byte("MARK\x00")))}, nil, rule{otherMatches: true}},
		"an unknown expression":     {[][]byte{expression("brand-new"), jump}, nil, jumpOther},
		"an interface":              {[][]byte{expression("meta", attribute(unix.NFTA_META_KEY, be32(6))), cmpExpression(1, unix.NFT_CMP_EQ, 2), jump}, nil, jumpOther},
		"a comment in user data":    {[][]byte{jump}, []byte("\x00\x02x\x00"), rule{to: []byte("KUBE-SERVICES"), comment: []byte("x")}},
		"other user data first":     {[][]byte{jump}, []byte("\x01\x04aaaa\x00\x02x\x00"), rule{to: []byte("KUBE-SERVICES"), comment: []byte("x")}},
		"odd user data":             {[][]byte{jump}, []byte("\x00\x09x\x00"), jumpTo},
		"user data beside a match":  {[][]byte{comment}, []byte("\x00\x02x\x00"), rule{comment: []byte("kubernetes service portals")}},
		"ct state new":              {[][]byte{load, bitwiseExpression(1, 8, 0), cmpExpression(1, unix.NFT_CMP_NEQ, 0), jump}, nil, jumpNew},
		"ct state new, equal":       {[][]byte{load, cmpExpression(1, unix.NFT_CMP_EQ, 8), jump}, nil, jumpNew},
		"ct state & new == new":     {[][]byte{load, bitwiseExpression(2, 8, 0), cmpExpression(2, unix.NFT_CMP_EQ, 8), jump}, nil, jumpNew},
		"ct state not new":          {[][]byte{load, bitwiseExpression(1, 8, 0), cmpExpression(1, unix.NFT_CMP_EQ, 0), jump}, nil, jumpOther},
		"ct state != new":           {[][]byte{load, cmpExpression(1, unix.NFT_CMP_NEQ, 8), jump}, nil, jumpOther},
		"ct state != 0":             {[][]byte{load, cmpExpression(1, unix.NFT_CMP_NEQ, 0), jump}, nil, jumpOther},
		"ct state new,established":  {[][]byte{load, bitwiseExpression(1, 10, 0), cmpExpression(1, unix.NFT_CMP_NEQ, 0), jump}, nil, jumpOther},
		"ct state, flipped":         {[][]byte{load, bitwiseExpression(1, 8, 8), cmpExpression(1, unix.NFT_CMP_NEQ, 0), jump}, nil, jumpOther},
		"ct state of one direction": {[][]byte{ctExpression(unix.NFT_CT_STATE, attribute(unix.NFTA_CT_DIRECTION, []byte{0})), cmpExpression(1, unix.NFT_CMP_EQ, 8), jump}, nil, jumpOther},
		"ct mark":                   {[][]byte{ctExpression(unix.NFT_CT_MARK), cmpExpression(1, unix.NFT_CMP_EQ, 8), jump}, nil, jumpOther},
		"another register":          {[][]byte{load, cmpExpression(2, unix.NFT_CMP_EQ, 8), jump}, nil, jumpOther},
		"ct state, never compared":  {[][]byte{load, jump}, nil, jumpOther},
		"ct state new, twice":       {[][]byte{load, cmpExpression(1, unix.NFT_CMP_EQ, 8), load, cmpExpression(1, unix.NFT_CMP_EQ, 8), jump}, nil, rule{to: []byte("KUBE-SERVICES"), ctStateNew: true, otherMatches: true}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseNFTRule(&nftObject{expressions: slices.Concat(test.expressions...), userdata: test.userdata})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(rule{}, markUse{})); diff != "" {
				t.Errorf("by hand (-), parsed (+):\n%s", diff)
			}
		})
	}
}

func TestParseNFTRuleRefusesWhatIsBroken(t *testing.T) {
	tests := map[string][]byte{
		"not an element":         attribute(7, attribute(unix.NFTA_EXPR_NAME, []byte("counter\x00"))),
		"no name":                attribute(unix.NFTA_LIST_ELEM, attribute(unix.NFTA_EXPR_DATA)),
		"cut":                    counterExpression()[:13],
		"a jump to nowhere":      verdictExpression(unix.NFT_JUMP, ""),
		"a short register":       expression("immediate", attribute(unix.NFTA_IMMEDIATE_DREG, []byte{0})),
		"a verdict in pieces":    expression("immediate", attribute(unix.NFTA_IMMEDIATE_DATA, []byte{9, 0, 1, 0, 0})),
		"a revision of two bits": expression("match", attribute(unix.NFTA_MATCH_REV, []byte{1, 2})),
	}
	for name, expressions := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := parseNFTRule(&nftObject{expressions: expressions}); err == nil {
				t.Errorf("parsed as %+v, want an error", got)
			}
		})
	}
}

// message builds an answer to a dump.
func message(family uint8, attributes ...[]byte) []byte {
	return append([]byte{family, 0, 0, 0}, slices.Concat(attributes...)...)
}

func TestParseNFT(t *testing.T) {
	tests := map[string]struct {
		kind    nftKind
		message []byte
		want    nftObject
		wantErr bool
	}{
		"a table": {
			kind:    nftTables(),
			message: message(unix.NFPROTO_IPV6, attribute(unix.NFTA_TABLE_NAME, []byte("nat\x00")), attribute(nftaTableHandle, be64(7)), attribute(99, []byte("x"))),
			want:    nftObject{family: unix.NFPROTO_IPV6, table: []byte("nat"), handle: 7},
		},
		"a base chain": {
			kind: nftChains(),
			message: message(unix.NFPROTO_IPV4, attribute(unix.NFTA_CHAIN_TABLE, []byte("nat\x00")), attribute(unix.NFTA_CHAIN_HANDLE, be64(2)),
				attribute(unix.NFTA_CHAIN_NAME, []byte("a\xff\x00")), attribute(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED), attribute(unix.NFTA_CHAIN_USE, be32(5))),
			want: nftObject{family: unix.NFPROTO_IPV4, table: []byte("nat"), name: []byte("a\xff"), handle: 2, hooked: true, hook: []byte{}, use: 5},
		},
		"an anonymous set": {
			kind: nftSets(),
			message: message(unix.NFPROTO_INET, attribute(unix.NFTA_SET_TABLE, []byte("t\x00")), attribute(unix.NFTA_SET_NAME, []byte("__set0\x00")),
				attribute(nftaSetHandle, be64(3)), attribute(unix.NFTA_SET_FLAGS, be32(3))),
			want: nftObject{family: unix.NFPROTO_INET, table: []byte("t"), name: []byte("__set0"), handle: 3, flags: 3, anonymous: true},
		},
		"a named map": {
			kind: nftSets(),
			message: message(unix.NFPROTO_INET, attribute(unix.NFTA_SET_TABLE, []byte("t\x00")), attribute(unix.NFTA_SET_NAME, []byte("m\x00")),
				attribute(nftaSetHandle, be64(3)), attribute(unix.NFTA_SET_FLAGS, be32(8))),
			want: nftObject{family: unix.NFPROTO_INET, table: []byte("t"), name: []byte("m"), handle: 3, flags: 8},
		},
		"shorter than its header": {kind: nftTables(), message: []byte{2, 0}, wantErr: true},
		"no table":                {kind: nftTables(), message: message(2, attribute(nftaTableHandle, be64(7))), wantErr: true},
		"no handle":               {kind: nftTables(), message: message(2, attribute(unix.NFTA_TABLE_NAME, []byte("nat\x00"))), wantErr: true},
		"a short handle":          {kind: nftTables(), message: message(2, attribute(unix.NFTA_TABLE_NAME, []byte("nat\x00")), attribute(nftaTableHandle, be32(7))), wantErr: true},
		"a rule without a chain":  {kind: nftRules(), message: message(2, attribute(unix.NFTA_RULE_TABLE, []byte("nat\x00")), attribute(unix.NFTA_RULE_HANDLE, be64(7))), wantErr: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseNFT(test.kind, test.message)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %v", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(nftObject{})); err == nil && diff != "" {
				t.Errorf("by hand (-), parsed (+):\n%s", diff)
			}
		})
	}
}

// A dump that went back tells by its handles.
func TestSnapshotRefusesWhatComesTwice(t *testing.T) {
	head := func(kind nftKind, family uint8, table, name string, handle uint64) func(*nftSnapshot) error {
		return func(s *nftSnapshot) error {
			return s.addHead(kind, &nftObject{family: family, table: []byte(table), name: []byte(name), handle: handle})
		}
	}
	table, other := head(nftTables(), 2, "nat", "", 1), head(nftTables(), 10, "nat", "", 2)
	tests := map[string]struct {
		steps []func(*nftSnapshot) error
		torn  bool
	}{
		"in order":               {[]func(*nftSnapshot) error{table, other, head(nftChains(), 2, "nat", "A", 1), head(nftChains(), 10, "nat", "A", 1), head(nftChains(), 2, "nat", "B", 2)}, false},
		"a table twice":          {[]func(*nftSnapshot) error{table, table}, true},
		"a chain twice":          {[]func(*nftSnapshot) error{table, head(nftChains(), 2, "nat", "A", 1), head(nftChains(), 2, "nat", "A", 1)}, true},
		"a chain after its next": {[]func(*nftSnapshot) error{table, other, head(nftChains(), 2, "nat", "B", 2), head(nftChains(), 10, "nat", "A", 1), head(nftChains(), 2, "nat", "A", 1)}, true},
		"a set twice":            {[]func(*nftSnapshot) error{table, head(nftSets(), 2, "nat", "A", 1), head(nftSets(), 2, "nat", "A", 1)}, true},
		"a chain of no table":    {[]func(*nftSnapshot) error{head(nftChains(), 2, "nat", "A", 1)}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snapshot := newNFTSnapshot(maphash.MakeSeed())
			var err error
			for _, step := range test.steps {
				if err == nil {
					err = step(snapshot)
				}
			}
			if (err != nil) != test.torn {
				t.Errorf("error %v, want one: %v", err, test.torn)
			}
		})
	}
}

// The kernel's counts prove that all rules were seen: a rule of a chain and a jump to it count one each.
func TestTableAddsUp(t *testing.T) {
	count := func(uses [2]uint32, rules ...[]byte) bool {
		snapshot := newNFTSnapshot(maphash.MakeSeed())
		add := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		add(snapshot.addHead(nftTables(), &nftObject{family: unix.NFPROTO_IPV4, table: []byte("nat"), handle: 1}))
		for i, use := range uses {
			add(snapshot.addHead(nftChains(), &nftObject{
				family: unix.NFPROTO_IPV4, table: []byte("nat"), name: []byte{'A' + byte(i)}, handle: uint64(1 + i), use: use,
			}))
		}
		for i, expressions := range rules {
			add(snapshot.addRule(nftRules(), &nftObject{
				family: unix.NFPROTO_IPV4, table: []byte("nat"), name: []byte("A"), handle: uint64(9 + i), expressions: expressions,
			}))
		}
		return snapshot.current.addsUp()
	}
	jump := verdictExpression(unix.NFT_JUMP, "B")
	if !count([2]uint32{2, 1}, counterExpression(), jump) {
		t.Error("two rules, one of them a jump, do not add up to uses of 2 and 1")
	}
	if count([2]uint32{2, 1}, jump) || count([2]uint32{2, 1}, jump, jump) || count([2]uint32{2, 2}, counterExpression(), jump) {
		t.Error("a rule less, a jump more, or a jump from a map adds up too")
	}
}

func FuzzParseNFTRule(f *testing.F) {
	f.Add(slices.Concat(matchExpression("comment", 0, []byte("x\x00")), counterExpression(), verdictExpression(unix.NFT_JUMP, "A")), []byte("\x00\x02x\x00"))
	f.Add(slices.Concat(ctExpression(unix.NFT_CT_STATE), bitwiseExpression(1, 8, 0), cmpExpression(1, unix.NFT_CMP_NEQ, 0)), []byte{})
	f.Add(matchExpression("conntrack", 3, conntrackInfo(3, 1, 0, 8)), []byte("\x01\xff"))
	f.Fuzz(func(t *testing.T, expressions, userdata []byte) {
		got, err := parseNFTRule(&nftObject{expressions: expressions, userdata: userdata})
		if err == nil && len(expressions) == 0 && (got.otherMatches || len(got.to) > 0) {
			t.Errorf("nothing is parsed as %+v", got)
		}
	})
}

func FuzzParseNFT(f *testing.F) {
	f.Add(message(2, attribute(unix.NFTA_RULE_TABLE, []byte("nat\x00")), attribute(unix.NFTA_RULE_CHAIN, []byte("A\x00")),
		attribute(unix.NFTA_RULE_HANDLE, be64(1)), attribute(unix.NFTA_RULE_EXPRESSIONS, counterExpression())))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []nftKind{nftTables(), nftChains(), nftSets(), nftRules()} {
			object, err := parseNFT(kind, data)
			if err == nil && (len(object.table) == 0 || object.handle == 0) {
				t.Errorf("%s without a table or a handle", kind.what)
			}
		}
	})
}
