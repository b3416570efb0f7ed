package collect

import (
	"errors"
	"fmt"
	"unicode/utf8"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxErrorBytes bounds SectionStable.error, as facts.proto says.
const maxErrorBytes = 1024

// errInconsistent marks a reading that kept changing through all retries.
var errInconsistent = errors.New("it kept changing while it was read")

// absent says that the kernel or the node does not have this at all.
func absent(kind offrampv1.SectionKind) *offrampv1.Section {
	return section(kind, &offrampv1.SectionStable{State: offrampv1.SectionState_SECTION_STATE_ABSENT})
}

// failed says that a section could not be read, or not twice alike.
func failed(kind offrampv1.SectionKind, err error) *offrampv1.Section {
	state := offrampv1.SectionState_SECTION_STATE_UNREADABLE
	if errors.Is(err, errInconsistent) {
		state = offrampv1.SectionState_SECTION_STATE_INCONSISTENT
	}
	return section(kind, &offrampv1.SectionStable{State: state, Error: shorten(err.Error())})
}

// read says that a section was read in full. isEmpty tells an empty one from one that holds something.
func read(kind offrampv1.SectionKind, isEmpty bool, stable *offrampv1.SectionStable) *offrampv1.Section {
	stable.State = offrampv1.SectionState_SECTION_STATE_PRESENT
	if isEmpty {
		stable.State = offrampv1.SectionState_SECTION_STATE_EMPTY
	}
	return section(kind, stable)
}

func section(kind offrampv1.SectionKind, stable *offrampv1.SectionStable) *offrampv1.Section {
	return &offrampv1.Section{Kind: kind, Stable: stable, Volatile: &offrampv1.SectionVolatile{}}
}

// shorten cuts text to what a section's error may hold.
func shorten(text string) string { return cut(text, maxErrorBytes) }

// cut cuts text to so many bytes, at a character's edge.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// printable turns bytes that came from the kernel into a valid string: what is not UTF-8 becomes \xNN, a backslash \\.
func printable(name []byte) string {
	out := make([]byte, 0, len(name))
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		switch {
		case r == utf8.RuneError && size <= 1:
			out = fmt.Appendf(out, `\x%02x`, name[0])
			size = 1
		case r == '\\':
			out = append(out, `\\`...)
		default:
			out = append(out, name[:size]...)
		}
		name = name[size:]
	}
	return string(out)
}
