package collect

import "golang.org/x/sys/unix"

// nftImmediate is something that a rule loads into a register: a verdict, or a value.
type nftImmediate struct {
	register uint32
	verdict  []byte // attributes of NFTA_DATA_VERDICT
	value    []byte
	// code and chain are those of the verdict; other verdicts than jump and goto have no chain.
	code  int32
	chain []byte
}

func (i *nftImmediate) isVerdict() bool {
	return i.register == unix.NFT_REG_VERDICT && i.verdict != nil
}

func parseImmediate(data []byte) (nftImmediate, error) {
	var immediate nftImmediate
	parts := attributes{rest: data}
	for parts.next() {
		var err error
		switch parts.kind {
		case unix.NFTA_IMMEDIATE_DREG:
			err = bigEndian32(parts.value, &immediate.register)
		case unix.NFTA_IMMEDIATE_DATA:
			err = immediate.takeData(parts.value)
		}
		if err != nil {
			return immediate, err
		}
	}
	return immediate, parts.err
}

// takeData takes NFTA_DATA attributes, of an immediate or of the data of a map's element.
func (i *nftImmediate) takeData(data []byte) error {
	parts := attributes{rest: data}
	for parts.next() {
		switch parts.kind {
		case unix.NFTA_DATA_VALUE:
			i.value = parts.value
		case unix.NFTA_DATA_VERDICT:
			i.verdict = parts.value
			if err := i.takeVerdict(parts.value); err != nil {
				return err
			}
		}
	}
	return parts.err
}

func (i *nftImmediate) takeVerdict(data []byte) error {
	parts := attributes{rest: data}
	for parts.next() {
		switch parts.kind {
		case unix.NFTA_VERDICT_CODE:
			var code uint32
			if err := bigEndian32(parts.value, &code); err != nil {
				return err
			}
			i.code = int32(code)
		case unix.NFTA_VERDICT_CHAIN:
			i.chain = cutNUL(parts.value)
		}
	}
	return parts.err
}
