package render

import (
	"encoding/json"
	"fmt"
	"io"
)

// Items writes items one a line and nothing else, safe for a terminal.
func Items(w io.Writer, items []string) error {
	var p page
	for _, item := range items {
		p.text.WriteString(Clean(item) + "\n")
	}
	return p.flush(w)
}

// JSONItems writes each item as a JSON string on a line of its own.
func JSONItems(w io.Writer, items []string) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, item := range items {
		if err := encoder.Encode(item); err != nil {
			return fmt.Errorf("write an item: %w", err)
		}
	}
	return nil
}
