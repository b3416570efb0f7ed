package collect

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"offramp.dev/offramp/internal/kubeproxy"
)

// nftLine writes a rule of nf_tables, expression by expression.
type nftLine struct {
	ruleLine
	names lineNames
	// loaded is what each register was loaded with; in consecutive registers stand the parts of a key.
	loaded     map[uint32]nftLoad
	conditions [5][]string
	// protocol is the one that was compared last, as an option of iptables.
	protocol string
}

// nftLoad is what a register holds.
type nftLoad struct {
	what string
	mask []byte
	size int
}

func lineOfNFT(names lineNames, object *nftObject) (ruleLine, error) {
	line := nftLine{names: names, loaded: map[uint32]nftLoad{}, protocol: "[th]"}
	err := eachExpression(object.expressions, line.add)
	if comment := nftComment(object.userdata); len(comment) > 0 {
		line.words = append([]string{"-m", "comment", "--comment", quoted(comment)}, line.words...)
	}
	line.words = append(slices.Concat(line.conditions[:]...), line.words...)
	return line.ruleLine, err
}

func (l *nftLine) add(name, data []byte) error {
	switch string(name) {
	case "counter":
		return nil
	case "match", "target":
		extension, err := parseExtension(data)
		if string(name) == "match" {
			l.addMatch(l.names, &extension)
		} else {
			l.addTarget(l.names, &extension)
		}
		return err
	case "immediate":
		return l.addImmediate(data)
	case "payload", "meta", "ct":
		return l.addLoad(string(name), data)
	case "bitwise":
		return l.addBitwise(data)
	case "cmp":
		return l.addCompare(data)
	case "lookup":
		return l.addLookup(data)
	default:
		l.ruleLine.add("[" + printable(name) + " " + raw(data) + "]")
		return nil
	}
}

func (l *nftLine) addImmediate(data []byte) error {
	immediate, err := parseImmediate(data)
	switch {
	case err != nil:
		return err
	case !immediate.isVerdict():
		l.loaded[immediate.register] = nftLoad{what: "0x" + raw(immediate.value), size: len(immediate.value)}
	case immediate.code == unix.NFT_JUMP:
		l.jump("-j", string(immediate.chain))
	case immediate.code == unix.NFT_GOTO:
		l.jump("-g", string(immediate.chain))
	default:
		l.ruleLine.add("-j", nftVerdictWord(immediate.code))
	}
	return nil
}

func nftVerdictWord(code int32) string {
	switch code {
	case policyDrop:
		return "DROP"
	case policyAccept:
		return "ACCEPT"
	case unix.NFT_RETURN:
		return "RETURN"
	default:
		return fmt.Sprintf("[verdict %d]", code)
	}
}

// addBitwise keeps the mask of a load that is compared afterwards.
func (l *nftLine) addBitwise(data []byte) error {
	var operands nftOperands
	err := operands.parse(operationBitwise, data)
	load := l.loaded[operands.source]
	load.mask = operands.mask
	if !isZero(operands.xor) || operands.operation != unix.NFT_BITWISE_BOOL {
		load.what += " ^ 0x" + raw(operands.xor)
	}
	l.loaded[operands.destination] = load
	return err
}

func (l *nftLine) addCompare(data []byte) error {
	var operands nftOperands
	err := operands.parse(operationCompare, data)
	load := l.loaded[operands.source]
	if operands.operation > unix.NFT_CMP_NEQ {
		load.what += [...]string{" <", " <=", " >", " >="}[min(operands.operation-unix.NFT_CMP_LT, 3)]
	}
	l.addComparison(load, operands.value, operands.operation == unix.NFT_CMP_NEQ)
	return err
}

// addComparison writes what is compared as the option that iptables has for it.
func (l *nftLine) addComparison(load nftLoad, value []byte, unequal bool) {
	var text string
	switch load.what {
	case "-s", "-d":
		text = l.prefix(load.mask, value)
	case "--sport", "--dport":
		if !l.says("-m", l.protocol) {
			l.ruleLine.add("-m", l.protocol)
		}
		text = portWord(value)
	case "-p":
		text = protocolOption(append(value, 0)[0])
		l.protocol = text
	case "-i", "-o":
		text = printable(cutNUL(value))
		if len(value) == 0 || value[len(value)-1] != 0 {
			text += "+"
		}
	case "mark":
		l.ruleLine.add("-m", "mark")
		load.what, text = "--mark", markWord(value)+maskWord(load.mask)
	default:
		l.not(unequal)
		l.ruleLine.add("[" + load.what + maskWord(load.mask) + " 0x" + raw(value) + "]")
		return
	}
	words := []string{load.what, text}
	if unequal {
		words = append([]string{"!"}, words...)
	}
	if at := slices.Index(conditionOrder(), load.what); at >= 0 && l.conditions[at] == nil {
		l.conditions[at] = words
		return
	}
	l.ruleLine.add(words...)
}

// conditionOrder is the order in which iptables-save writes what comes before matches.
func conditionOrder() []string { return []string{"-s", "-d", "-i", "-o", "-p"} }

// prefix writes an address that is compared in part: by its first bytes, or under a mask.
func (l *nftLine) prefix(mask, value []byte) string {
	full := 4
	if l.names.family == kubeproxy.IPv6 {
		full = 16
	}
	if mask == nil {
		mask = slices.Repeat([]byte{0xff}, len(value))
	}
	padding := make([]byte, max(full-len(value), 0))
	return prefixWord(slices.Concat(value, padding), slices.Concat(mask, padding))
}

func portWord(value []byte) string {
	if len(value) < 2 {
		return raw(value)
	}
	return strconv.Itoa(int(binary.BigEndian.Uint16(value)))
}

func markWord(value []byte) string {
	if number, ok := nativeEndian32(value); ok {
		return fmt.Sprintf("0x%x", number)
	}
	return raw(value)
}

func maskWord(mask []byte) string {
	if mask == nil {
		return ""
	}
	return "/" + markWord(mask)
}

// addLookup writes the key and the set that it is looked up in.
func (l *nftLine) addLookup(data []byte) error {
	var set []byte
	var source, flags uint32
	destination, isMap := uint32(0), false
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch parts.kind {
		case unix.NFTA_LOOKUP_SET:
			set = cutNUL(parts.value)
		case unix.NFTA_LOOKUP_SREG:
			err = bigEndian32(parts.value, &source)
		case unix.NFTA_LOOKUP_DREG:
			isMap = true
			err = bigEndian32(parts.value, &destination)
		case unix.NFTA_LOOKUP_FLAGS:
			err = bigEndian32(parts.value, &flags)
		}
		if err != nil {
			return err
		}
	}
	kind := "set"
	switch {
	case isMap && destination == unix.NFT_REG_VERDICT:
		kind = "vmap"
	case isMap:
		kind = "map"
		l.loaded[destination] = nftLoad{what: "@" + printable(set)}
	}
	l.not(flags&1 != 0)
	l.ruleLine.add("[" + l.key(source) + "] " + kind + " @" + printable(set))
	l.sets = append(l.sets, string(set))
	return parts.err
}

// key names what stands in a register and in those right behind it.
func (l *nftLine) key(register uint32) string {
	var parts []string
	if register < unix.NFT_REG32_00 { // four registers of four bytes each
		register = unix.NFT_REG32_00 + 4*(register-1)
	}
	for {
		load, found := l.at(register)
		if !found {
			return strings.Join(parts, " . ")
		}
		parts = append(parts, strings.TrimLeft(load.what, "-"))
		register += uint32(max(load.size+3, 4) / 4) //nolint:gosec // a few bytes
	}
}

func (l *nftLine) at(register uint32) (nftLoad, bool) {
	if load, found := l.loaded[register]; found {
		return load, true
	}
	if wide := register - unix.NFT_REG32_00; wide%4 == 0 {
		load, found := l.loaded[wide/4+1]
		return load, found
	}
	return nftLoad{}, false
}
