package render

import "io"

// Missing writes why nodes may be missing from an answer, where they may.
func Missing(w io.Writer, why string) error {
	var p page
	p.mayMiss(why)
	return p.flush(w)
}

func (p *page) mayMiss(why string) {
	if why != "" {
		p.line(0, "Nodes may be missing: %s", Clean(why))
	}
}
