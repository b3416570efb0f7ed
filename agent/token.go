package main

import (
	"github.com/spf13/pflag"

	"offramp.dev/offramp/internal/bearer"
	"offramp.dev/offramp/internal/program"
)

// defaultTokenFile is where the manifests mount the projected token.
//
//nolint:gosec // a path, not a secret
const defaultTokenFile = "/var/run/secrets/offramp/token"

// addTokenFlag adds --token-file.
func (d *daemon) addTokenFlag(flags *pflag.FlagSet) {
	flags.StringVar(&d.tokenFile, "token-file", "", "file with the ServiceAccount token that says which node this is, read again when it is renewed (default: "+defaultTokenFile+", if it is there)")
}

// token is the file whose token goes with every stream; nil for none. A token that was asked for is never left out: it
// would be sent in the clear, or not at all.
func (d *daemon) token() (*bearer.File, error) {
	switch {
	case d.tokenFile != "" && d.tls.InsecurePlaintext:
		return nil, program.Usagef("--token-file would be sent in the clear: it cannot go with --insecure-plaintext")
	case d.tokenFile != "":
		return bearer.New(d.tokenFile), nil
	case d.tls.InsecurePlaintext:
		return nil, nil
	default:
		return bearer.Found(defaultTokenFile), nil
	}
}
