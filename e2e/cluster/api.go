package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"offramp.dev/offramp/e2e/lab"
)

// callLimit is what one request may take.
const callLimit = 30 * time.Second

// API talks to an API server as one user.
type API struct {
	client *http.Client
	base   string
	token  string
}

// StatusError is the API server's refusal of a request.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Request is what was asked for, as "GET /api/v1/nodes".
	Request string
	// Body is the answer, for people.
	Body string
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", e.Request, e.Code, http.StatusText(e.Code), e.Body)
}

func newAPI(l *lab.Lab, base, ca, token string) (*API, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		return nil, errors.New("reading the authority's certificate")
	}
	transport := &http.Transport{DialContext: l.Dial, TLSClientConfig: &tls.Config{RootCAs: roots}}
	return &API{client: &http.Client{Transport: transport, Timeout: callLimit}, base: base, token: token}, nil
}

// As returns the API server as another user sees it.
func (a *API) As(token string) *API {
	return &API{client: a.client, base: a.base, token: token}
}

// Do sends one request. in, unless nil, is sent as JSON, and the answer is read as JSON into out unless that is nil. A
// refusal is a *StatusError.
func (a *API) Do(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	if in == nil {
		body = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", contentType(method))
	response, err := a.client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the API server: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the API server's answer: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return &StatusError{Code: response.StatusCode, Request: method + " " + path, Body: string(answer)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

func contentType(method string) string {
	if method == http.MethodPatch {
		return "application/merge-patch+json"
	}
	return "application/json"
}
