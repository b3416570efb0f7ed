package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// ErrListChanged says that a named list is no longer the one whose digest was asked for.
var ErrListChanged = errors.New("the list has changed since that digest was reported")

// List returns the items, sorted, of a list that a section named by digest. It reads them again instead of keeping them. An
// error wraps ErrListChanged when what is there now has another digest.
func (s *Scanner) List(ctx context.Context, wanted *offrampv1.ListDigest) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.SectionTimeout)
	defer cancel()
	items, err := s.readList(ctx, wanted.GetName())
	if err != nil {
		return nil, fmt.Errorf("read list %s: %w", wanted.GetName(), err)
	}
	if !bytes.Equal(facts.ListDigest(wanted.GetName(), items).GetDigest(), wanted.GetDigest()) {
		return nil, fmt.Errorf("list %s: %w", wanted.GetName(), ErrListChanged)
	}
	return items, nil
}

func (s *Scanner) readList(ctx context.Context, name offrampv1.ListName) ([]string, error) {
	switch name {
	case offrampv1.ListName_LIST_NAME_IPVS_VIRTUAL_SERVERS:
		return s.readVirtualServerList(ctx)
	case offrampv1.ListName_LIST_NAME_IPVS_LINK_ADDRESSES:
		network, _, err := readNetwork(ctx)
		if err != nil {
			return nil, err
		}
		return network.ipvsLinkAddresses(), nil
	case offrampv1.ListName_LIST_NAME_NFTABLES_SERVICES:
		return s.rules.readServiceList(ctx)
	default:
		return nil, errors.New("this agent does not know such a list")
	}
}

func (s *Scanner) readVirtualServerList(ctx context.Context) ([]string, error) {
	scan := &scan{scanner: s}
	table, by, _, err := readAgreedIPVS(ctx, s.config.Host, scan.localClaims)
	if err != nil {
		return nil, err
	}
	items, ok := virtualServerList(table, by.local)
	if !ok {
		return nil, by.err
	}
	return items, nil
}
