package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"offramp.dev/offramp/cli/cluster"
	"offramp.dev/offramp/internal/render"
)

// noStream is how an aggregator that was reached says that it has no agent of a node.
const noStream = "has no stream to this aggregator"

// explain turns the error of a call into one line that says what failed and what to do. doing says what was asked for.
func (c *connection) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	told := status.Convert(err)
	return fmt.Errorf("%s: %s", doing, c.reason(told.Code(), render.Clean(told.Message())))
}

func (c *connection) reason(code codes.Code, message string) string {
	switch code {
	case codes.Unavailable:
		// gRPC wraps and quotes what went wrong in a handshake.
		said := unquoted(message)
		if i := strings.Index(said, cluster.Says); i >= 0 {
			return render.Clean(said[i:])
		}
		if strings.HasSuffix(message, noStream) {
			return message + ": no agent of that name is connected; \"kubectl offramp nodes\" lists those that ever were"
		}
		return fmt.Sprintf("cannot talk to the aggregator at %s: %s", c.place(), unavailable(message))
	case codes.DeadlineExceeded:
		return fmt.Sprintf("no answer from the aggregator at %s within %s; is the address right? --timeout allows for more", c.place(), c.timeout)
	case codes.Canceled:
		return "interrupted"
	case codes.Unauthenticated, codes.PermissionDenied:
		if strings.HasPrefix(message, cluster.Says) {
			return message
		}
		return fmt.Sprintf("the aggregator at %s refuses the caller: %s%s", c.place(), message, c.whoHint(code))
	case codes.Unimplemented:
		return fmt.Sprintf("what answers at %s does not know this question (%s): another version, or no Offramp aggregator", c.place(), message)
	case codes.ResourceExhausted:
		return fmt.Sprintf("too much at once for the aggregator at %s: %s", c.place(), message)
	case codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition:
		return message
	}
	return fmt.Sprintf("the aggregator at %s answered %s: %s", c.place(), code, message)
}

// unquoted is what gRPC puts in quotes when a connection cannot be made.
func unquoted(message string) string {
	_, quoted, found := strings.Cut(message, "desc = ")
	if text, err := strconv.Unquote(quoted); found && err == nil {
		return text
	}
	return message
}

// whoHint says how to be somebody, to those who were nobody.
func (c *connection) whoHint(code codes.Code) string {
	if code != codes.Unauthenticated || c.tokenFile != "" || c.tls.CertFile != "" || c.asksCluster() {
		return ""
	}
	return "; say who you are with --kubeconfig or --context, --token-file, or --cert-file"
}

// hint is what to tell people when an error has the sign in its text.
type hint struct{ sign, text string }

// hints are tried in this order. Only the words of Go's and gRPC's own errors tell the cases apart; an unknown one is
// shown as it is.
func hints() []hint {
	return []hint{
		{"first record does not look like a TLS handshake", "it does not speak TLS there; if that is intended, --insecure-plaintext"},
		{"unknown authority", "its certificate is signed by nobody we trust; name the CA with --ca-file"},
		{"certificate has expired or is not yet valid", "its certificate is out of date (or this clock is wrong)"},
		{"certificate is valid for", "its certificate is for another name; name the one to expect with --server-name"},
		{"cannot validate certificate for", "its certificate is for another name; name the one to expect with --server-name"},
		{"protocol version not supported", "it does not speak TLS 1.3"},
		{"certificate required", "it wants a client certificate: --cert-file and --key-file"},
		{"connection refused", "connection refused; does it run, and is this its port?"},
		{"no such host", "there is no host of this name"},
		{"error reading server preface", "it does not speak gRPC in plaintext there; without --insecure-plaintext TLS is used"},
		{"connection reset by peer", "the connection was cut; with --insecure-plaintext the other side may expect TLS"},
	}
}

func unavailable(message string) string {
	for _, known := range hints() {
		if strings.Contains(message, known.sign) {
			return known.text
		}
	}
	return message
}
