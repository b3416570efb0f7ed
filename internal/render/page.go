package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// columns is the width that text is wrapped to.
const columns = 80

// page gathers wrapped lines and writes them at once, so that an error of the writer is seen once.
type page struct{ text bytes.Buffer }

// line writes a paragraph: the first line indented by indent spaces, those after it by four more. A word that is longer
// than a line stays whole, so that commands and names can be copied.
func (p *page) line(indent int, format string, args ...any) {
	p.wrap(indent, indent+4, fmt.Sprintf(format, args...))
}

// field writes "name: text", unless the text is empty. Lines of the text stay apart.
func (p *page) field(indent int, name, text string) {
	if text == "" {
		return
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	p.line(indent, "%s: %s", name, Clean(lines[0]))
	for _, more := range lines[1:] {
		p.wrap(indent+4, indent+4, Clean(more))
	}
}

func (p *page) blank() { p.text.WriteByte('\n') }

func (p *page) wrap(first, hanging int, text string) {
	width := first
	p.text.WriteString(strings.Repeat(" ", first))
	atStart := true
	for _, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		if !atStart && width+1+size > columns {
			p.text.WriteString("\n" + strings.Repeat(" ", hanging))
			width, atStart = hanging, true
		}
		if !atStart {
			p.text.WriteByte(' ')
			width++
		}
		p.text.WriteString(word)
		width, atStart = width+size, false
	}
	p.text.WriteByte('\n')
}

func (p *page) flush(w io.Writer) error {
	if _, err := w.Write(p.text.Bytes()); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
