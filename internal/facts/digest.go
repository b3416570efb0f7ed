// Package facts is the border control of the node model: it encodes and digests sections, and refuses received ones that no
// kernel could hold or that break the bounds of facts.proto.
package facts

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// Sum digests the encoded bytes of a section, exactly as they travelled.
func Sum(encoded []byte) Digest { return sha256.Sum256(encoded) }

// ParseDigest reads a digest off the wire; ok is false when it is not 32 bytes long.
func ParseDigest(wire []byte) (digest Digest, ok bool) {
	if len(wire) != sha256.Size {
		return Digest{}, false
	}
	return Digest(wire), true
}

// Encode returns the bytes of a section as they travel, and their digest. Within one build equal sections give equal
// bytes. It fails only on a string that is not UTF-8.
func Encode(stable *offrampv1.SectionStable) ([]byte, Digest, error) {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(stable)
	if err != nil {
		return nil, Digest{}, fmt.Errorf("encode a section: %w", err)
	}
	return encoded, Sum(encoded), nil
}

// ListDigest names a list: the number of its items and the SHA-256 of the items, sorted bytewise, each followed by a
// newline. It leaves items as they are. Items must not hold newlines.
func ListDigest(name offrampv1.ListName, items []string) *offrampv1.ListDigest {
	if !slices.IsSorted(items) {
		items = slices.Clone(items)
		slices.Sort(items)
	}
	hash := sha256.New()
	const block = 4 << 10 // as many bytes at once: a list may have 50,000 items
	lines := make([]byte, 0, block+64)
	for _, item := range items {
		if lines = append(append(lines, item...), '\n'); len(lines) >= block {
			hash.Write(lines)
			lines = lines[:0]
		}
	}
	hash.Write(lines)
	return &offrampv1.ListDigest{Name: name, Count: uint64(len(items)), Digest: hash.Sum(nil)}
}

// Find returns the section of that kind, or nil.
func Find(node *offrampv1.NodeFacts, kind offrampv1.SectionKind) *offrampv1.Section {
	for _, section := range node.GetSections() {
		if section.GetKind() == kind {
			return section
		}
	}
	return nil
}
