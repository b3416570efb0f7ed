package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"offramp.dev/offramp/aggregator/serve"
)

// ready returns what says whether agents and people should come here: nil, or what is missing. serving ends when the server begins to
// drain. What the API server forbids is known to be missing and no reason to wait.
func (a *around) ready(serving context.Context, transport *tls.Config) func() error {
	return func() error {
		if serving.Err() != nil {
			return errors.New("draining")
		}
		if transport != nil && serve.CertificateExpiry(transport).IsZero() {
			return errors.New("no certificate to show")
		}
		if a.watcher == nil {
			return nil
		}
		if left := a.watcher.Unanswered(); len(left) > 0 {
			return fmt.Errorf("not read from the API server yet: %s", strings.Join(left, ", "))
		}
		return nil
	}
}
