// Package render turns what Offramp knows into text for people and documents for scripts. It judges nothing.
//
// Everything that comes from a node is untrusted: no byte of it reaches a terminal as a control character.
package render

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds one piece of text from a node, in characters, so that no node can flood a terminal.
const maxText = 1000

// Clean makes untrusted text safe for a terminal and keeps it on one line: what does not print (escape sequences, line
// ends, characters that turn the direction of writing, broken UTF-8) becomes its number, such as \x1b or \u202e, and text
// beyond 1,000 characters is cut.
func Clean(text string) string {
	var out strings.Builder
	for n := 0; len(text) > 0; n++ {
		if n == maxText {
			out.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(text)
		writeRune(&out, r, text[:size])
		text = text[size:]
	}
	return out.String()
}

// Printable makes untrusted text safe for a terminal as Clean does, and cuts nothing off.
func Printable(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		writeRune(&out, r, text[:size])
		text = text[size:]
	}
	return out.String()
}

func writeRune(out *strings.Builder, r rune, raw string) {
	switch {
	case r == utf8.RuneError && len(raw) == 1, r < 0x80 && !unicode.IsPrint(r):
		fmt.Fprintf(out, `\x%02x`, raw[0])
	case unicode.IsPrint(r):
		out.WriteString(raw)
	case r > 0xffff:
		fmt.Fprintf(out, `\U%08x`, r)
	default:
		fmt.Fprintf(out, `\u%04x`, r)
	}
}

// cleanAll cleans each of them and joins.
func cleanAll(texts []string, separator string) string {
	cleaned := make([]string, len(texts))
	for i, text := range texts {
		cleaned[i] = Clean(text)
	}
	return strings.Join(cleaned, separator)
}
