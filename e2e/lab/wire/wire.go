// Package wire is what the lab and its guests say to each other: one TCP connection per request, a gob stream each way.
//
// The host sends one Request. For a Run it may then send Signals; for a Put, Chunks of which the last one is empty. The
// guest answers with Replies, of which the last one is Done. A connection that ends early ends what it started.
package wire

import (
	"encoding/gob"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
)

const (
	// Port is the TCP port of the guest's server on its control address.
	Port = 7707
	// Ready is what the guest writes to its serial console once the server listens.
	Ready = "offramp-guest: ready"
	// Link is the guest's network link to the lab: captures have an eth0 of their own.
	Link = "mgmt0"
	// LinkMAC is how the hardware address of Link begins.
	LinkMAC = "52:54:00:18:"
	// ControlMAC is how that of the link begins on which only the server listens.
	ControlMAC = "52:54:00:19:"
	// ChunkSize is the most bytes that one message carries.
	ChunkSize = 64 << 10

	// NameKey is the word of the kernel's command line that gives the guest's name.
	NameKey = "offramp.name"
	// AddressKey is the word that gives Link's address with its prefix length.
	AddressKey = "offramp.address"
	// ControlKey is the word that gives the control link's address with its prefix length.
	ControlKey = "offramp.control"
)

// Request is the first message of a connection. One field is set.
type Request struct {
	Run *Run
	Put *Put
	Get *Get
	// Account adds nfnetlink accounting objects of these names: the guest may be without the nfacct program.
	Account []string
}

// Run starts a program and waits for it. Argv[0] is looked up in the guest's PATH.
type Run struct {
	Argv  []string
	Env   []string
	Dir   string
	Stdin []byte
}

// Put writes a file, making its folder. What follows are Chunks.
type Put struct {
	Path string
	Mode fs.FileMode
}

// Get reads a file, or a pseudo-file of any size.
type Get struct{ Path string }

// Chunk is a piece of a file on its way to the guest; an empty one ends it.
type Chunk struct{ Data []byte }

// Signal goes to every process of the running program's group.
type Signal struct{ Number int }

// Reply is what comes back: output as it appears, at last how it ended. A Run's Exit is the program's exit status, or
// 128 plus the number of the signal that ended it. Error says why a request was not carried out at all.
type Reply struct {
	Stdout, Stderr []byte
	Done           bool
	Exit           int
	Error          string
}

// Output sends what is written to it as Replies. It may be used from several goroutines when they share Lock.
type Output struct {
	Lock   *sync.Mutex
	Enc    *gob.Encoder
	Stderr bool
}

// Write implements io.Writer.
func (o Output) Write(p []byte) (int, error) {
	for piece := p; len(piece) > 0; {
		n := min(len(piece), ChunkSize)
		reply := Reply{Stdout: piece[:n]}
		if o.Stderr {
			reply = Reply{Stderr: piece[:n]}
		}
		o.Lock.Lock()
		err := o.Enc.Encode(reply)
		o.Lock.Unlock()
		if err != nil {
			return 0, fmt.Errorf("sending output: %w", err)
		}
		piece = piece[n:]
	}
	return len(p), nil
}

// SendChunks sends all of r and the empty chunk that ends it.
func SendChunks(enc *gob.Encoder, r io.Reader) error {
	buffer := make([]byte, ChunkSize)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if err := enc.Encode(Chunk{Data: buffer[:n]}); err != nil {
				return fmt.Errorf("sending a chunk: %w", err)
			}
		}
		if err == io.EOF {
			return enc.Encode(Chunk{})
		}
		if err != nil {
			return fmt.Errorf("reading what is to be sent: %w", err)
		}
	}
}

// ReceiveChunks writes what SendChunks sent to w.
func ReceiveChunks(dec *gob.Decoder, w io.Writer) error {
	for {
		var chunk Chunk
		if err := dec.Decode(&chunk); err != nil {
			return fmt.Errorf("receiving a chunk: %w", err)
		}
		if len(chunk.Data) == 0 {
			return nil
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return fmt.Errorf("writing a chunk: %w", err)
		}
	}
}

// Parameter returns the value of a word like key=value on a kernel command line, "" if there is none.
func Parameter(cmdline, key string) string {
	for word := range strings.FieldsSeq(cmdline) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}
