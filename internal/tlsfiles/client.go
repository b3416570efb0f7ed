// Package tlsfiles turns files into TLS settings. Files are read again for every connection, so that certificates may be
// renewed under a running program.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// Client says how to trust a server, and optionally who we are. The zero value means TLS with the system's roots.
type Client struct {
	// CAFile holds the PEM certificates to trust instead of the system's.
	CAFile string
	// ServerName is the name to expect in the server's certificate, instead of the host that was dialled.
	ServerName string
	// CertFile and KeyFile are our own certificate and key, PEM; both or neither.
	CertFile string
	KeyFile  string
	// InsecurePlaintext means no TLS at all. It contradicts every other field.
	InsecurePlaintext bool
}

// AddFlags adds the flags that fill a Client.
func (c *Client) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.CAFile, "ca-file", "", "PEM file with the certificates to trust (default: the system's)")
	flags.StringVar(&c.ServerName, "server-name", "", "name to expect in the aggregator's certificate (default: the host dialled)")
	flags.StringVar(&c.CertFile, "cert-file", "", "PEM file with a client certificate; needs --key-file")
	flags.StringVar(&c.KeyFile, "key-file", "", "PEM file with the client certificate's key")
	flags.BoolVar(&c.InsecurePlaintext, "insecure-plaintext", false, "talk without TLS: anybody on the way can read and forge")
}

// Check tells whether the fields agree with each other. It reads no file.
func (c Client) Check() error {
	if c.InsecurePlaintext && (c.CAFile != "" || c.ServerName != "" || c.CertFile != "" || c.KeyFile != "") {
		return errors.New("--insecure-plaintext means no TLS: it cannot go with --ca-file, --server-name, --cert-file or --key-file")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("a client certificate needs both --cert-file and --key-file")
	}
	return nil
}

// Config reads the files. The error says which file is missing or has nothing usable in it. Not for InsecurePlaintext.
func (c Client) Config() (*tls.Config, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.InsecurePlaintext {
		return nil, errors.New("plaintext was asked for: there is no TLS configuration")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.ServerName}
	if err := c.readRoots(config); err != nil {
		return nil, err
	}
	return config, c.readCertificate(config)
}

func (c Client) readRoots(config *tls.Config) error {
	if c.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return fmt.Errorf("reading the certificates to trust (--ca-file): %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no PEM certificate in %s (--ca-file)", c.CAFile)
	}
	return nil
}

func (c Client) readCertificate(config *tls.Config) error {
	if c.CertFile == "" {
		return nil
	}
	certificate, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("reading the client certificate (--cert-file, --key-file): %w", err)
	}
	config.Certificates = []tls.Certificate{certificate}
	return nil
}
