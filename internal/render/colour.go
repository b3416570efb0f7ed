package render

import (
	"io"
	"strings"
	"unicode/utf8"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Screen is a writer whose reader shows colours: a terminal. Everything else gets the same text without them.
type Screen struct{ io.Writer }

// paint marks text with a colour until it is written. The marks are characters for private use, which Clean never lets
// through: no text from a node can hold one.
type paint rune

const (
	unpaint paint = '\ue000' + iota
	good
	doubtful
	bad
	strong
)

// codes are the sequences that stand for the marks on a screen.
func codes() map[paint]string {
	return map[paint]string{unpaint: "\x1b[0m", good: "\x1b[32m", doubtful: "\x1b[33m", bad: "\x1b[31m", strong: "\x1b[1m"}
}

func (p paint) on(text string) string { return string(rune(p)) + text + string(rune(unpaint)) }

// finish replaces the marks as the writer wants them.
func finish(w io.Writer, text string) string {
	_, coloured := w.(Screen)
	pairs := make([]string, 0, 2*len(codes()))
	for mark, code := range codes() {
		if !coloured {
			code = ""
		}
		pairs = append(pairs, string(rune(mark)), code)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// width is how many columns text takes; marks take none.
func width(text string) int {
	n := utf8.RuneCountInString(text)
	for mark := range codes() {
		n -= strings.Count(text, string(rune(mark)))
	}
	return n
}

func verdictWord(verdict offrampv1.Verdict) string {
	word := Word(verdict)
	switch verdict {
	case offrampv1.Verdict_VERDICT_READY:
		return good.on(word)
	case offrampv1.Verdict_VERDICT_BLOCKED:
		return bad.on(word)
	}
	return doubtful.on(word)
}

func phaseWord(phase offrampv1.Phase) string {
	word := Word(phase)
	switch phase {
	case offrampv1.Phase_PHASE_UNAFFECTED, offrampv1.Phase_PHASE_DONE:
		return good.on(word)
	case offrampv1.Phase_PHASE_SWITCHED_DIRTY, offrampv1.Phase_PHASE_SOAKING, offrampv1.Phase_PHASE_SILENT:
		return doubtful.on(word)
	}
	return word
}

func severityWord(severity offrampv1.Severity) string {
	word := Word(severity)
	switch severity {
	case offrampv1.Severity_SEVERITY_BLOCKER:
		return bad.on(word)
	case offrampv1.Severity_SEVERITY_WARNING:
		return doubtful.on(word)
	}
	return word
}
