package cleanup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftBatch is a transaction of nf_tables: the kernel does all of it or nothing (nfnetlink_rcv_batch in
// net/netfilter/nfnetlink.c).
//
// It is put together by hand, since google/nftables knows neither the generation as a condition nor batches of more than
// a few hundred messages (it asks for an answer to each), and does not say which message was refused.
type nftBatch struct {
	data       []byte
	generation uint32
	messages   int
	last       int // where the last message begins
}

// newNFTBatch begins a transaction that is refused unless the ruleset is still of this generation. Without the condition
// (generation 0, which the kernel never has) a rule could be deleted that somebody has put in another's place.
func newNFTBatch(generation uint32) *nftBatch {
	b := &nftBatch{generation: generation}
	b.frame(unix.NFNL_MSG_BATCH_BEGIN, generation)
	return b
}

// at is the same transaction under another condition. It is for one that has a condition.
func (b *nftBatch) at(generation uint32) *nftBatch {
	const where = unix.NLMSG_HDRLEN + nl.SizeofNfgenmsg + unix.NLA_HDRLEN // the first attribute of what begins the batch
	other := *b
	other.generation, other.data = generation, slices.Clone(b.data)
	binary.BigEndian.PutUint32(other.data[where:], generation)
	return &other
}

// nfnlBatchGenID is NFNL_BATCH_GENID (linux/netfilter/nfnetlink.h).
const nfnlBatchGenID = 1

// frame adds the message that begins or ends a batch. Its resource id names the subsystem.
func (b *nftBatch) frame(kind uint16, generation uint32) {
	end := b.begin(kind, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	if generation != 0 {
		b.attribute(nfnlBatchGenID, binary.BigEndian.AppendUint32(nil, generation))
	}
	end()
}

// add adds a message of nf_tables, with its attributes. flags are those of netlink beside NLM_F_REQUEST.
func (b *nftBatch) add(message, flags uint16, family uint8, attributes ...nftAttribute) {
	b.last = len(b.data)
	b.messages++
	end := b.begin(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags, family, 0)
	for _, attribute := range attributes {
		b.attribute(attribute.kind, attribute.value)
	}
	end()
}

// addRaw adds a message whose attributes are on the wire already.
func (b *nftBatch) addRaw(message, flags uint16, family uint8, attributes []byte) {
	b.last = len(b.data)
	b.messages++
	end := b.begin(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags, family, 0)
	b.data = append(b.data, attributes...)
	end()
}

// nftAttribute is an attribute as it is on the wire, flags in the kind included.
type nftAttribute struct {
	kind  uint16
	value []byte
}

func nftText(kind uint16, text string) nftAttribute {
	return nftAttribute{kind, append([]byte(text), 0)}
}

func nftNumber64(kind uint16, number uint64) nftAttribute {
	return nftAttribute{kind, binary.BigEndian.AppendUint64(nil, number)}
}

func nftNumber32(kind uint16, number uint32) nftAttribute {
	return nftAttribute{kind, binary.BigEndian.AppendUint32(nil, number)}
}

// begin writes the head of a message (struct nlmsghdr, struct nfgenmsg); the function it returns puts the length in.
func (b *nftBatch) begin(kind, flags uint16, family uint8, resource uint16) func() {
	start := len(b.data)
	b.data = binary.NativeEndian.AppendUint32(b.data, 0)
	b.data = binary.NativeEndian.AppendUint16(b.data, kind)
	b.data = binary.NativeEndian.AppendUint16(b.data, unix.NLM_F_REQUEST|flags)
	b.data = binary.NativeEndian.AppendUint32(b.data, uint32(b.messages)) //nolint:gosec // far below 2^32: it is the sequence
	b.data = binary.NativeEndian.AppendUint32(b.data, 0)
	b.data = append(b.data, family, unix.NFNETLINK_V0)
	b.data = binary.BigEndian.AppendUint16(b.data, resource)
	return func() {
		binary.NativeEndian.PutUint32(b.data[start:], uint32(len(b.data)-start)) //nolint:gosec // bounded by the socket's buffer
	}
}

func (b *nftBatch) attribute(kind uint16, value []byte) {
	const header = 4
	b.data = binary.NativeEndian.AppendUint16(b.data, uint16(header+len(value))) //nolint:gosec // callers keep values short
	b.data = binary.NativeEndian.AppendUint16(b.data, kind)
	b.data = append(b.data, value...)
	for len(b.data)%4 != 0 {
		b.data = append(b.data, 0)
	}
}

// close ends the batch and asks for an answer to its last message alone: an answer to each would overrun the socket.
func (b *nftBatch) close() []byte {
	flags := b.data[b.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	sequence := b.messages
	b.messages++
	b.frame(unix.NFNL_MSG_BATCH_END, 0)
	b.messages = sequence
	return b.data
}

// How a transaction can end without being done.
var (
	// errChanged says that the ruleset is of another generation: nothing was done.
	errChanged = errors.New("the ruleset of nf_tables has changed")
	// errNoAnswer says that the kernel was asked and did not tell: whether it was done takes another look.
	errNoAnswer = errors.New("nf_tables did not say how the transaction ended")
)

// refusedError says which message of a batch the kernel refused, counted from 0; nothing was done.
type refusedError struct {
	message int
	cause   unix.Errno
}

// Error implements error.
func (e *refusedError) Error() string {
	return fmt.Sprintf("nf_tables refused message %d of the transaction: %v", e.message, e.cause)
}

// Unwrap gives the errno.
func (e *refusedError) Unwrap() error { return e.cause }

// verdict reads the kernel's answers. The first message has sequence 1, what began the batch 0.
func (b *nftBatch) verdict(answers []byte) (ended bool, err error) {
	for len(answers) >= unix.NLMSG_HDRLEN+4 {
		length := int(binary.NativeEndian.Uint32(answers))
		if length < unix.NLMSG_HDRLEN+4 || length > len(answers) {
			return false, errNoAnswer
		}
		if binary.NativeEndian.Uint16(answers[4:]) == unix.NLMSG_ERROR {
			sequence := int(binary.NativeEndian.Uint32(answers[8:]))
			number := int32(binary.NativeEndian.Uint32(answers[unix.NLMSG_HDRLEN:])) //nolint:gosec // it is a signed number
			switch {
			case number < 0:
				return true, refusal(sequence, unix.Errno(-number))
			case sequence == b.messages:
				return true, nil
			}
		}
		answers = answers[min((length+3)&^3, len(answers)):]
	}
	return false, nil
}

func refusal(sequence int, cause unix.Errno) error {
	if cause == unix.ERESTART {
		return errChanged
	}
	return &refusedError{max(sequence-1, 0), cause}
}
