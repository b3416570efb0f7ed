package wire

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func TestChunksArriveAsSent(t *testing.T) {
	for _, size := range []int{0, 1, ChunkSize, ChunkSize + 1, 3 * ChunkSize} {
		content := bytes.Repeat([]byte("x"), size)
		var pipe, got bytes.Buffer
		if err := SendChunks(gob.NewEncoder(&pipe), bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if err := ReceiveChunks(gob.NewDecoder(&pipe), &got); err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Errorf("%d bytes sent, %d received (%v)", size, got.Len(), err)
		}
	}
}

func TestChunksThatEndEarlyAreAnError(t *testing.T) {
	var pipe bytes.Buffer
	failure := errors.New("broken")
	if err := SendChunks(gob.NewEncoder(&pipe), io.MultiReader(strings.NewReader("a"), iotest.ErrReader(failure))); !errors.Is(err, failure) {
		t.Errorf("sending: error is %v", err)
	}
	if err := ReceiveChunks(gob.NewDecoder(&pipe), io.Discard); err == nil {
		t.Error("receiving a file without its end is no error")
	}
}

func TestOutputIsSentInPieces(t *testing.T) {
	var pipe bytes.Buffer
	var lock sync.Mutex
	enc := gob.NewEncoder(&pipe)
	content := bytes.Repeat([]byte("y"), 2*ChunkSize+5)
	if n, err := (Output{Lock: &lock, Enc: enc}).Write(content); n != len(content) || err != nil {
		t.Fatal(n, err)
	}
	if _, err := (Output{Lock: &lock, Enc: enc, Stderr: true}).Write([]byte("problem")); err != nil {
		t.Fatal(err)
	}
	var out, problems []byte
	for dec := gob.NewDecoder(&pipe); ; {
		var reply Reply
		if err := dec.Decode(&reply); errors.Is(err, io.EOF) {
			break
		} else if err != nil || len(reply.Stdout) > ChunkSize {
			t.Fatal(len(reply.Stdout), err)
		}
		out, problems = append(out, reply.Stdout...), append(problems, reply.Stderr...)
	}
	if !bytes.Equal(out, content) || string(problems) != "problem" {
		t.Errorf("%d bytes of output and %q", len(out), problems)
	}
}

func TestParameter(t *testing.T) {
	const cmdline = "console=ttyS0 quiet offramp.name=a offramp.name2=b x.offramp.name=c\n"
	for key, want := range map[string]string{NameKey: "a", "quiet": "", "console": "ttyS0", AddressKey: ""} {
		if got := Parameter(cmdline, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
