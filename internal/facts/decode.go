package facts

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Decode reads a received section and refuses one that breaks the bounds of facts.proto or claims what no kernel can hold.
//
// An enum value that this version does not know reads as its unknown value (a state: as unreadable). An unknown kind is an
// error here: ask Known first, and skip.
func Decode(kind offrampv1.SectionKind, encoded []byte) (*offrampv1.SectionStable, error) {
	if len(encoded) > MaxSectionBytes {
		return nil, fmt.Errorf("section %v has %d bytes, more than %d", kind, len(encoded), MaxSectionBytes)
	}
	stable := &offrampv1.SectionStable{}
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(encoded, stable); err != nil {
		return nil, fmt.Errorf("decode section %v: %w", kind, err)
	}
	if err := Check(kind, stable); err != nil {
		return nil, err
	}
	return stable, nil
}

// Check is the judging half of Decode. An agent asks it before it sends, so that one odd section costs the node that section
// and not its stream. Unknown enum values are rewritten in place.
func Check(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) error {
	if !Known(kind) {
		return fmt.Errorf("section kind %d is not known", kind)
	}
	readState(stable)
	if err := settle(stable.ProtoReflect()); err != nil {
		return fmt.Errorf("section %v: %w", kind, err)
	}
	if err := checkFrame(kind, stable); err != nil {
		return fmt.Errorf("section %v: %w", kind, err)
	}
	if err := checkContent(stable); err != nil {
		return fmt.Errorf("section %v: %w", kind, err)
	}
	return nil
}

// CheckVolatile judges the volatile part of a section of that kind; nil is fine. Unknown enum values are rewritten in place.
func CheckVolatile(kind offrampv1.SectionKind, volatile *offrampv1.SectionVolatile) error {
	if volatile == nil {
		return nil
	}
	if !volatileFits(kind, volatile) {
		return fmt.Errorf("the volatile part of section %v holds another section's content", kind)
	}
	if err := settle(volatile.ProtoReflect()); err != nil {
		return fmt.Errorf("the volatile part of section %v: %w", kind, err)
	}
	var b bounds
	b.list("syncs", len(volatile.GetKubeProxy().GetSyncs()), maxFamilies)
	b.count("sockets", volatile.GetIpvsLink().GetSockets(), maxSockets)
	b.list("sockets", len(volatile.GetIpvsLink().GetSocketSamples()), maxSamples)
	b.list("node ports", len(volatile.GetIpvs().GetNodePorts()), maxNodePorts)
	for _, port := range volatile.GetIpvs().GetNodePorts() {
		b.list("clients of a node port", len(port.GetClients()), maxSamples)
	}
	return b.err
}

// readState lets a state of a newer version read as what it is to this one: nothing may be concluded.
func readState(stable *offrampv1.SectionStable) {
	if _, named := offrampv1.SectionState_name[int32(stable.GetState())]; named {
		return
	}
	stable.Error = fmt.Sprintf("state %d is not known to this version", stable.GetState())
	stable.State = offrampv1.SectionState_SECTION_STATE_UNREADABLE
}

func checkFrame(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) error {
	switch {
	case stable.GetState() == offrampv1.SectionState_SECTION_STATE_UNSPECIFIED:
		return fmt.Errorf("it has no state")
	case len(stable.GetError()) > MaxErrorBytes:
		return fmt.Errorf("its error has %d bytes, more than %d", len(stable.GetError()), MaxErrorBytes)
	case !contentFits(kind, stable):
		return fmt.Errorf("its content is missing or another section's")
	default:
		return nil
	}
}
