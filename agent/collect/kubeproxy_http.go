package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	// askTimeout bounds one question to kube-proxy, answer included.
	askTimeout = 2 * time.Second
	// Limits of answers, in bytes.
	maxModeAnswer    = 1 << 10
	maxAnswer        = 1 << 20
	maxMetricsAnswer = 8 << 20
	// maxReason bounds what is reported of an error, in bytes.
	maxReason = 200
)

var errTooLong = errors.New("the answer is too long")

// questioner asks kube-proxy over plain HTTP and keeps a record of what it asked. Not for concurrent use.
type questioner struct {
	client    *http.Client
	endpoints []*offrampv1.KubeProxyEndpoint
}

// newQuestioner makes a client that goes where it is told and nowhere else: no proxy of the environment, no redirects.
func newQuestioner() *questioner {
	return &questioner{client: &http.Client{
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: askTimeout}).DialContext,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 1 << 16,
		},
	}}
}

// answer is how an endpoint answered. Status is 0 when it did not.
type answer struct {
	url    string
	status int
	ok     bool // there is a usable answer
}

// ask gets a path and hands the body to use, at most limit bytes of it. statuses are those whose body is of use.
func (q *questioner) ask(
	ctx context.Context, where netip.AddrPort, path string, limit int64, use func(io.Reader) error, statuses ...int,
) answer {
	target := url.URL{Scheme: "http", Host: where.String(), Path: path}
	result := answer{url: target.String()}
	err := q.get(ctx, &result, limit, use, statuses)
	result.ok = err == nil
	endpoint := &offrampv1.KubeProxyEndpoint{Url: result.url, Status: uint32(result.status)} //nolint:gosec // 100 to 999
	if err != nil {
		endpoint.Error = reason(err)
	}
	q.endpoints = append(q.endpoints, endpoint)
	return result
}

func (q *questioner) get(
	ctx context.Context, into *answer, limit int64, use func(io.Reader) error, statuses []int,
) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, into.url, nil)
	if err != nil {
		return err
	}
	response, err := q.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	into.status = response.StatusCode
	for _, status := range append(statuses, http.StatusOK) {
		if response.StatusCode == status {
			return use(&limitedReader{reader: response.Body, left: limit})
		}
	}
	return errors.New("not the status that was expected")
}

// limitedReader fails where the answer goes on beyond the limit, unlike io.LimitReader, which would pass a part for all.
type limitedReader struct {
	reader io.Reader
	left   int64
}

// Read implements io.Reader.
func (l *limitedReader) Read(buffer []byte) (int, error) {
	n, err := l.reader.Read(buffer)
	if l.left -= int64(n); l.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

// reason says what went wrong in words that are the same each time, since they are part of what has a digest. Errors of
// net and net/http are not: they name the port that the kernel chose for the question, and tell apart how a peer's bytes
// and its hanging up happened to arrive.
func reason(err error) string {
	var timeout interface{ Timeout() bool }
	var transport *url.Error
	var dial *net.OpError
	var number syscall.Errno
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", askTimeout)
	case errors.As(err, &dial) && dial.Op == "dial" && errors.As(err, &number):
		return number.Error()
	case errors.As(err, &transport), errors.As(err, &number):
		return "the answer is not HTTP, or not all of it"
	default:
		return cut(printable([]byte(err.Error())), maxReason)
	}
}

func readText(into *string) func(io.Reader) error {
	return func(body io.Reader) error {
		text, err := io.ReadAll(body)
		*into = strings.TrimSpace(string(text))
		return err
	}
}

func discard(body io.Reader) error {
	_, err := io.Copy(io.Discard, body)
	return err
}
