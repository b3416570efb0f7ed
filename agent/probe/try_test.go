package probe_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"offramp.dev/offramp/agent/probe"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// listen takes connections until the test ends, hands each to serve, and returns its address.
func listen(t *testing.T, address string, serve func(net.Conn)) netip.AddrPort {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return netip.MustParseAddrPort(listener.Addr().String())
}

// answer is what a server of DNS says to a question; with another id it is somebody else's.
func answer(t *testing.T, question []byte, id uint16) []byte {
	t.Helper()
	var message dnsmessage.Message
	if err := message.Unpack(question); err != nil || len(message.Questions) != 1 {
		t.Errorf("no question: %v", err)
		return nil
	}
	message.Header = dnsmessage.Header{ID: message.ID ^ id, Response: true, RCode: dnsmessage.RCodeNameError}
	packed, err := message.Pack()
	if err != nil {
		t.Error(err)
	}
	return packed
}

func serveStream(t *testing.T, id uint16) func(net.Conn) {
	return func(conn net.Conn) {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		asked := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, asked); err != nil {
			return
		}
		said := answer(t, asked, id)
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(said))), said...))
	}
}

// listenUDP answers questions until the test ends.
func listenUDP(t *testing.T, address string, id uint16) netip.AddrPort {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 1500)
		for {
			count, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answer(t, buffer[:count], id), from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func prober() *probe.Prober { return &probe.Prober{Timeout: 300 * time.Millisecond} }

func TestOnce(t *testing.T) {
	silent := listen(t, "127.0.0.1:0", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for _, c := range []struct {
		name   string
		target probe.Target
		works  bool
	}{
		{"somebody listens", probe.Target{Name: "given", Protocol: "tcp", Service: silent}, true},
		{"nobody does", probe.Target{Name: "given", Protocol: "tcp", Service: closedPort(t)}, false},
		{"DNS by TCP", probe.Target{Name: "dns", Protocol: "tcp", Service: listen(t, "127.0.0.1:0", serveStream(t, 0))}, true},
		{"DNS by UDP", probe.Target{Name: "dns", Protocol: "udp", Service: listenUDP(t, "127.0.0.1:0", 0)}, true},
		{"somebody else's answer by TCP", probe.Target{Name: "dns", Protocol: "tcp", Service: listen(t, "127.0.0.1:0", serveStream(t, 1))}, false},
		{"somebody else's answer by UDP", probe.Target{Name: "dns", Protocol: "udp", Service: listenUDP(t, "127.0.0.1:0", 1)}, false},
		{"a listener that answers nothing", probe.Target{Name: "dns", Protocol: "tcp", Service: silent}, false},
		{"nobody answers by UDP", probe.Target{Name: "dns", Protocol: "udp", Service: closedPort(t)}, false},
	} {
		got := prober().Once(t.Context(), []probe.Target{c.target})
		if len(got) != 1 || (got[0].Failed == nil) != c.works || got[0].Answering != nil {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// A Service that fails at first and then answers is no failure; one that goes on failing is told from its endpoints.
func TestThorough(t *testing.T) {
	alive := listen(t, "127.0.0.1:0", func(net.Conn) {})
	var tries atomic.Int32
	late := listen(t, "127.0.0.1:0", func(conn net.Conn) {
		if tries.Add(1) > 1 {
			serveStream(t, 0)(conn)
		}
	})
	dead := closedPort(t)
	got := prober().Thorough(t.Context(), []probe.Target{
		{Name: "given", Protocol: "tcp", Service: dead, Endpoints: []netip.AddrPort{dead, alive}},
		{Name: "given", Protocol: "tcp", Service: dead, Endpoints: []netip.AddrPort{dead}},
		{Name: "given", Protocol: "tcp", Service: dead},
		{Name: "dns", Protocol: "tcp", Service: late, Endpoints: []netip.AddrPort{alive}},
	})
	verdicts := []offrampv1.ProbeVerdict{
		offrampv1.ProbeVerdict_PROBE_VERDICT_FAILS, offrampv1.ProbeVerdict_PROBE_VERDICT_ENDPOINTS_FAIL,
		offrampv1.ProbeVerdict_PROBE_VERDICT_NOT_COMPARED, offrampv1.ProbeVerdict_PROBE_VERDICT_WORKS,
	}
	for i, said := range probe.Now(got) {
		if said.GetVerdict() != verdicts[i] {
			t.Errorf("%s: want %s", probe.Sentence(said), verdicts[i])
		}
	}
	if tries.Load() != 2 {
		t.Errorf("tried %d times", tries.Load())
	}
}
