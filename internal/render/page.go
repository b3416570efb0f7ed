package render

import (
	"bytes"
	"fmt"
	"io"
	"strings"
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
	at := first
	p.text.WriteString(strings.Repeat(" ", first))
	atStart := true
	for _, word := range strings.Fields(text) {
		size := width(word)
		if !atStart && at+1+size > columns {
			p.text.WriteString("\n" + strings.Repeat(" ", hanging))
			at, atStart = hanging, true
		}
		if !atStart {
			p.text.WriteByte(' ')
			at++
		}
		p.text.WriteString(word)
		at, atStart = at+size, false
	}
	p.text.WriteByte('\n')
}

func (p *page) flush(w io.Writer) error {
	return write(w, []byte(finish(w, p.text.String())))
}
