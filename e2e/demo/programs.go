package main

import (
	"fmt"
	"os"
	"path/filepath"

	"offramp.dev/offramp/e2e/authority"
	"offramp.dev/offramp/e2e/lab"
)

// programs are the files that the demo runs, and the certificates that they trust.
type programs struct {
	agent, aggregator, kubectl string
	certificates               authority.Files
}

// findPrograms looks for the three programs.
func findPrograms(bin string, certificates authority.Files) (programs, error) {
	p := programs{
		agent:        filepath.Join(bin, "offramp-agent"),
		aggregator:   filepath.Join(bin, "offramp-aggregator"),
		kubectl:      filepath.Join(bin, "kubectl-offramp"),
		certificates: certificates,
	}
	for _, path := range []string{p.agent, p.aggregator, p.kubectl} {
		if _, err := os.Stat(path); err != nil {
			return programs{}, fmt.Errorf("finding the programs; run make build first: %w", err)
		}
	}
	return p, nil
}

// forGuest are the files that a node needs.
func (p programs) forGuest() []lab.File {
	return []lab.File{
		{Path: agentPath, Host: p.agent, Mode: 0o755},
		{Path: caPath, Host: p.certificates.CA},
	}
}
