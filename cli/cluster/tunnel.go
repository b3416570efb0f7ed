package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// maxTold bounds what the other side may say about an error, in bytes.
const maxTold = 4096

// tunnel is a forwarded connection. It has no deadlines: whoever waits for it closes it.
type tunnel struct {
	conn httpstream.Connection
	data httpstream.Stream
	// heard ends when nothing more can come on the stream of errors.
	heard sync.WaitGroup

	mu   sync.Mutex
	told string
}

func newTunnel(conn httpstream.Connection, port string) (*tunnel, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, port)
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	failures, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream of errors: %w", err)
	}
	// We say nothing there.
	_ = failures.Close()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream of data: %w", err)
	}
	t := &tunnel{conn: conn, data: data}
	t.heard.Go(func() { t.listen(failures) })
	return t, nil
}

// listen ends the connection when the other side says that it cannot go on.
func (t *tunnel) listen(failures io.Reader) {
	told, _ := io.ReadAll(io.LimitReader(failures, maxTold))
	if len(told) == 0 {
		return
	}
	t.mu.Lock()
	t.told = strings.TrimSpace(string(told))
	t.mu.Unlock()
	_ = t.conn.Close()
}

// because replaces an error by what the other side told of it.
func (t *tunnel) because(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || t.told == "" {
		return err
	}
	return errors.New(t.told)
}

// Read reads what the pod sends.
func (t *tunnel) Read(into []byte) (int, error) {
	n, err := t.data.Read(into)
	return n, t.because(err)
}

// Write sends to the pod.
func (t *tunnel) Write(text []byte) (int, error) {
	n, err := t.data.Write(text)
	return n, t.because(err)
}

// Close ends the connection and waits for what listens on it.
func (t *tunnel) Close() error {
	err := t.conn.Close()
	t.heard.Wait()
	return err
}

// LocalAddr is a name: nothing listens on this machine.
func (*tunnel) LocalAddr() net.Addr { return tunnelAddress{} }

// RemoteAddr is a name, too.
func (*tunnel) RemoteAddr() net.Addr { return tunnelAddress{} }

// SetDeadline does nothing; calls have deadlines of their own.
func (*tunnel) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (*tunnel) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (*tunnel) SetWriteDeadline(time.Time) error { return nil }

type tunnelAddress struct{}

// Network is the kind of the address.
func (tunnelAddress) Network() string { return "port-forward" }

func (tunnelAddress) String() string { return "the API server's port-forward" }
