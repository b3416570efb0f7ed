package render

import "strings"

// widen makes every width at least that of the row's cell.
func widen(widths []int, row []string) []int {
	for i, cell := range row {
		if i == len(widths) {
			widths = append(widths, 0)
		}
		widths[i] = max(widths[i], width(cell))
	}
	return widths
}

// joined lays out one row. An empty cell is shown as a dash, so that columns can be told apart by words.
func joined(row []string, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		if cell == "" {
			cell = "-"
		}
		line.WriteString(cell)
		if i < len(row)-1 && i < len(widths) {
			line.WriteString(strings.Repeat(" ", 2+max(0, widths[i]-width(cell))))
		}
	}
	return line.String() + "\n"
}

// grid writes rows in columns.
func (p *page) grid(indent int, rows [][]string) {
	var widths []int
	for _, row := range rows {
		widths = widen(widths, row)
	}
	for _, row := range rows {
		p.text.WriteString(strings.Repeat(" ", indent) + joined(row, widths))
	}
}
