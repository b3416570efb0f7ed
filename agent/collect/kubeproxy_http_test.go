package collect

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// Reasons are part of what has a digest: they must not hold the port that the kernel chose for the question.
func TestReason(t *testing.T) {
	source := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 43210}
	wrap := func(op string, err error) error {
		return &url.Error{Op: "Get", URL: "http://x/", Err: &net.OpError{Op: op, Net: "tcp", Source: source, Err: err}}
	}
	const broken = "the answer is not HTTP, or not all of it"
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nobody listens":   {wrap("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)), "connection refused"},
		"no such address":  {wrap("dial", os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)), "cannot assign requested address"},
		"mute":             {wrap("read", os.ErrDeadlineExceeded), "no answer within 2s"},
		"slow to connect":  {wrap("dial", os.ErrDeadlineExceeded), "no answer within 2s"},
		"hung up":          {wrap("read", os.NewSyscallError("read", syscall.ECONNRESET)), broken},
		"hung up politely": {&url.Error{Op: "Get", URL: "http://x/", Err: io.EOF}, broken},
		"not HTTP":         {&url.Error{Op: "Get", URL: "http://x/", Err: errors.New("malformed HTTP response")}, broken},
		"ended":            {&url.Error{Op: "Get", URL: "http://x/", Err: context.Canceled}, "context canceled"},
		"too long":         {errTooLong, "the answer is too long"},
		"odd bytes":        {errors.New("bad byte \xff"), `bad byte \xff`},
		"many words":       {errors.New(strings.Repeat("x", 300)), strings.Repeat("x", 200)},
	} {
		if got := reason(test.err); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestLimitedReader(t *testing.T) {
	for _, test := range []struct {
		text  string
		limit int64
		err   error
	}{{"", 0, nil}, {"abc", 3, nil}, {"abc", 2, errTooLong}, {"abc", 4, nil}} {
		for name, reader := range map[string]io.Reader{
			"at once":   strings.NewReader(test.text),
			"in pieces": iotest.OneByteReader(strings.NewReader(test.text)),
		} {
			_, err := io.ReadAll(&limitedReader{reader: reader, left: test.limit})
			if !errors.Is(err, test.err) {
				t.Errorf("%q %s with limit %d: %v", test.text, name, test.limit, err)
			}
		}
	}
}

// What is not HTTP at all.
func TestAnAnswerThatIsNoHTTP(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(connection, "SSH-2.0-OpenSSH_9.2\r\n")
			_ = connection.Close()
		}
	}()
	where := KubeProxyAddresses{Metrics: []string{listener.Addr().String()}, Healthz: []string{listener.Addr().String()}}
	first := readProxy(t, hostProcesses(nil), where, "").GetStable()
	second := readProxy(t, hostProcesses(nil), where, "").GetStable()
	if first.GetState() != sectionAbsent || first.String() != second.String() {
		t.Errorf("%v\n%v", first, second)
	}
}
