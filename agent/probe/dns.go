package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/dns/dnsmessage"
)

// question is a name that every cluster's DNS answers by itself, without asking anybody outside. Where the cluster's domain
// is another one, the answer is that there is no such name, which is an answer too.
const question = "kubernetes.default.svc.cluster.local."

// maxAnswer is the size of an answer over UDP without EDNS (RFC 1035, 4.2.1).
const maxAnswer = 512

var errAnswer = errors.New("what came back is no answer to the question")

// askDNS asks a question on a connection that is open, and has an answer, whatever it says: the path is what is tried.
func askDNS(conn net.Conn, stream bool, id uint16) error {
	packed, err := packQuestion(id)
	if err != nil {
		return err
	}
	if stream {
		packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...) //nolint:gosec // some 60 bytes
	}
	if _, err := conn.Write(packed); err != nil {
		return fmt.Errorf("asking a question of DNS: %w", err)
	}
	answer, err := readAnswer(conn, stream)
	if err != nil {
		return fmt.Errorf("waiting for an answer of DNS: %w", err)
	}
	return checkAnswer(answer, id)
}

func packQuestion(id uint16) ([]byte, error) {
	name, err := dnsmessage.NewName(question)
	if err != nil {
		return nil, fmt.Errorf("making a question of DNS: %w", err)
	}
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := message.Pack()
	if err != nil {
		return nil, fmt.Errorf("making a question of DNS: %w", err)
	}
	return packed, nil
}

func readAnswer(conn io.Reader, stream bool) ([]byte, error) {
	size := maxAnswer
	if stream {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return nil, err
		}
		answer := make([]byte, binary.BigEndian.Uint16(length[:]))
		_, err := io.ReadFull(conn, answer)
		return answer, err
	}
	answer := make([]byte, size)
	count, err := conn.Read(answer)
	return answer[:count], err
}

func checkAnswer(answer []byte, id uint16) error {
	var parser dnsmessage.Parser
	header, err := parser.Start(answer)
	if err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	if header.ID != id || !header.Response {
		return errAnswer
	}
	return nil
}
