package fleet

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// garbage is something that arrives on the aggregator's port and is not gRPC.
type garbage struct {
	name string
	send func(*testing.T, *stage, net.Conn)
}

func garbages() []garbage {
	return []garbage{
		{"random bytes", func(t *testing.T, _ *stage, conn net.Conn) { write(conn, random(t, 1<<20)) }},
		{"an HTTP/1 request in plaintext", func(_ *testing.T, _ *stage, conn net.Conn) {
			write(conn, []byte("GET / HTTP/1.1\r\nHost: offramp\r\n\r\n"))
		}},
		{"half of a TLS handshake", func(_ *testing.T, _ *stage, conn net.Conn) {
			write(conn, []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03})
		}},
		{"random bytes within TLS", func(t *testing.T, s *stage, conn net.Conn) { write(s.encrypt(conn), random(t, 1<<20)) }},
		{"an HTTP/1 request within TLS", func(_ *testing.T, s *stage, conn net.Conn) {
			write(s.encrypt(conn), []byte("POST /offramp.v1.AgentService/Connect HTTP/1.1\r\nHost: offramp\r\nContent-Length: 1000000000\r\n\r\n{}"))
		}},
		{"HTTP/2 with random frames", func(t *testing.T, s *stage, conn net.Conn) {
			write(s.encrypt(conn), append([]byte(http2.ClientPreface), random(t, 1<<20)...))
		}},
		{"HTTP/2 frames out of order", func(t *testing.T, s *stage, conn net.Conn) { framesOutOfOrder(t, s.encrypt(conn)) }},
		{"an endless header", func(t *testing.T, s *stage, conn net.Conn) { endlessHeader(t, s.encrypt(conn)) }},
		{"a flood of pings and resets", func(t *testing.T, s *stage, conn net.Conn) { flood(t, s.encrypt(conn)) }},
	}
}

// Garbage on the port, each kind on some connections at once: the streams of the agents live on.
func TestGarbageOnThePort(t *testing.T) {
	s := setUp(t, never)
	if s == nil {
		return
	}
	before := s.complaints()
	for _, kind := range garbages() {
		t.Run(kind.name, func(t *testing.T) {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() { s.throw(t, kind) })
			}
			all.Wait()
			s.stands(t, kind.name)
		})
	}
	for i, lines := range s.complaints() {
		if len(lines) != len(before[i]) {
			t.Errorf("the stream of %s did not live through it:\n%s", nodes()[i], lines[len(lines)-1])
		}
	}
	s.tearDown()
}

// throw sends one kind of garbage on a connection of its own.
func (s *stage) throw(t *testing.T, kind garbage) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Error(err)
		return
	}
	kind.send(t, s, conn)
}

// stands holds that the aggregator lives, is no larger than it may be, and has the whole view right.
func (s *stage) stands(t *testing.T, after string) {
	t.Helper()
	s.change()
	took, wrong := s.untilRight(twoHeartbeats)
	if wrong != "" {
		t.Errorf("two heartbeats after %s the view is wrong: %s", after, wrong)
	}
	peak := s.aggregator.peak(t)
	t.Logf("news had arrived after %s; the aggregator's memory was at most %d MiB", took.Round(time.Millisecond), peak>>20)
	if peak > maxMemory {
		t.Errorf("the aggregator took %d MiB", peak>>20)
	}
}

// maxMemory is far below what the garbage weighs that is sent, and above what an idle aggregator takes (40 MiB).
const maxMemory = 128 << 20

// encrypt does a TLS handshake as an agent does.
func (s *stage) encrypt(conn net.Conn) net.Conn {
	s.Helper()
	return tls.Client(conn, s.tlsConfig())
}

func (s *stage) tlsConfig() *tls.Config {
	s.Helper()
	ca, err := os.ReadFile(s.certificates.CA)
	if err != nil {
		s.Error(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
}

// write writes what the other side takes; that it hangs up is what is hoped for.
func write(conn net.Conn, data []byte) {
	_, _ = conn.Write(data)
	_, _ = io.CopyN(io.Discard, conn, 1)
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	data := make([]byte, size)
	if _, err := rand.Read(data); err != nil {
		t.Error(err)
	}
	return data
}

func framer(conn net.Conn) *http2.Framer {
	_, _ = io.WriteString(conn, http2.ClientPreface)
	frames := http2.NewFramer(conn, conn)
	frames.AllowIllegalWrites = true
	_ = frames.WriteSettings()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return frames
}

func framesOutOfOrder(t *testing.T, conn net.Conn) {
	t.Helper()
	frames := framer(conn)
	_ = frames.WriteData(7, false, random(t, 1000))
	_ = frames.WriteContinuation(9, true, random(t, 100))
	_ = frames.WriteWindowUpdate(0, 1<<31-1)
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: random(t, 100), EndHeaders: true})
	_ = frames.WriteRawFrame(http2.FrameType(200), 0xff, 1<<30, random(t, 1000))
	_ = frames.WriteGoAway(1<<30, http2.ErrCodeEnhanceYourCalm, nil)
}

// endlessHeader is the attack by CONTINUATION frames.
func endlessHeader(t *testing.T, conn net.Conn) {
	t.Helper()
	frames := framer(conn)
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: random(t, 100)})
	for range 2000 {
		if err := frames.WriteContinuation(1, false, random(t, 16000)); err != nil {
			return
		}
	}
}

// flood opens streams and takes them back, which is the attack by rapid resets, with pings between.
func flood(t *testing.T, conn net.Conn) {
	t.Helper()
	frames := framer(conn)
	// The static table of HPACK has ":method POST" as 3, ":scheme https" as 7, ":path /" as 4.
	header := []byte{0x83, 0x87, 0x84}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for id := uint32(1); ctx.Err() == nil; id += 2 {
		err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header, EndHeaders: true})
		if err == nil {
			err = frames.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if err == nil {
			err = frames.WritePing(false, [8]byte{})
		}
		if err != nil {
			return
		}
	}
}
