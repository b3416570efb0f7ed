package serve

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// from is an address of a listener's fake connections.
func from(text string) net.Addr {
	address, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		panic(err)
	}
	return address
}

func TestOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[::ffff:192.0.2.1]:5": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:7": "2001:db8:1:2::", "[fe80::1%lo]:7": "fe80::",
	} {
		if got := origin(from(text)).String(); got != want {
			t.Errorf("%s counts for %s, want %s", text, got, want)
		}
	}
	if origin(&net.UnixAddr{Name: "x"}).IsValid() {
		t.Error("a socket file has an address")
	}
}

// One address has its share, and gets it back; another one's is its own.
func TestLimitPerAddress(t *testing.T) {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := LimitPerAddress(socket, 3, quiet())
	accepted := make(chan net.Conn, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := limited.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	t.Cleanup(func() { _ = socket.Close(); <-ended })
	dial := func(local string) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(local)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	turnedAway := func(conn net.Conn) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(patient))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) || !errors.Is(err, io.EOF) && isTimeout(err) {
			t.Errorf("a connection too many: %v", err)
		}
	}
	var taken []net.Conn
	for range 3 {
		dial("127.0.0.1")
		taken = append(taken, <-accepted)
	}
	for range 20 {
		turnedAway(dial("127.0.0.1"))
	}
	dial("127.0.0.2")
	<-accepted
	// Closed twice, it counts once.
	_ = taken[0].Close()
	_ = taken[0].Close()
	dial("127.0.0.1")
	<-accepted
	turnedAway(dial("127.0.0.1"))
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
