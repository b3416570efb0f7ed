package collect

import (
	"context"
	"errors"
	"fmt"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/facts"
	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Exact reads the node as Scan does, and then every object by itself that a clean-up may touch or has to know about. What
// could not be read of the latter is in Problems. Like Scan it changes nothing.
func (s *Scanner) Exact(ctx context.Context) (*offrampv1.NodeFacts, *inventory.Node) {
	node := s.Scan(ctx)
	e := &exact{
		scan:  &scan{scanner: s},
		facts: node,
		node: &inventory.Node{
			BootID:   facts.Find(node, kindKernel).GetStable().GetKernel().GetBootId(),
			Problems: map[offrampv1.SectionKind]string{},
		},
	}
	for _, part := range e.parts() {
		limited, cancel := context.WithTimeout(ctx, s.config.SectionTimeout)
		if err := guardedRead(limited, part.read); err != nil {
			for _, kind := range part.kinds {
				e.node.Problems[kind] = shorten(err.Error())
			}
			if errors.Is(err, errInconsistent) {
				e.node.KeptChanging = append(e.node.KeptChanging, part.kinds...)
			}
		}
		cancel()
	}
	return node, e.node
}

// exact reads objects one by one into node.
type exact struct {
	scan  *scan
	facts *offrampv1.NodeFacts
	node  *inventory.Node
	sets  setNames
}

// exactPart is what is read together, and the sections that could not be read when it fails.
type exactPart struct {
	kinds []offrampv1.SectionKind
	read  func(context.Context) error
}

func (e *exact) parts() []exactPart {
	kinds := func(kinds ...offrampv1.SectionKind) []offrampv1.SectionKind { return kinds }
	return []exactPart{
		{kinds(kindIPVS), e.readServers},
		{kinds(kindIPVSLink, kindAddresses), e.readLinks},
		{kinds(kindIPSets), e.readSets},
		{kinds(kindNFTIPv4, kindNFTIPv6, kindNFT), e.readNFT},
		{kinds(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4), func(ctx context.Context) error {
			return e.readLegacy(ctx, legacyIPv4())
		}},
		{kinds(offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6), func(ctx context.Context) error {
			return e.readLegacy(ctx, legacyIPv6())
		}},
		{kinds(offrampv1.SectionKind_SECTION_KIND_HOST), e.readHost},
	}
}

// guardedRead turns a panic of a reader into an error.
func guardedRead(ctx context.Context, read func(context.Context) error) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the reader broke down: %v", broken)
		}
	}()
	return read(ctx)
}

// readSets reads the headers of all ipsets, and which index rules know each by.
func (e *exact) readSets(ctx context.Context) error {
	mods := e.scan.scanner.modules
	s, err := openIPSet(mods)
	if errors.Is(err, errNoIPSet) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.close()
	headers, _, err := agreed(ctx, func(ctx context.Context) ([]ipsetHeader, error) { return dumpIPSetHeaders(ctx, s) }, equalHeaders)
	if mods.deniesIPSet(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.sets, err = readSetNames(ctx, mods); err != nil {
		return err
	}
	indices := make(map[kubeproxy.Set]uint16, len(e.sets))
	for index, set := range e.sets {
		indices[set] = index
	}
	for _, header := range headers {
		e.node.Sets = append(e.node.Sets, inventory.Set{
			Set: header.set(), Index: indices[header.set()], Revision: header.revision,
			References: header.references, Entries: header.entries,
		})
	}
	return nil
}

// nameSets turns indices into names.
func (e *exact) nameSets(indices []uint16) []string {
	if len(indices) == 0 {
		return nil
	}
	names := make([]string, 0, len(indices))
	for _, index := range indices {
		name := fmt.Sprintf("#%d", index)
		if set, known := e.sets[index]; known {
			name = set.Name
		}
		names = append(names, name)
	}
	return names
}
