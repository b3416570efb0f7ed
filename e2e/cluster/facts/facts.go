// Package facts writes down what kube-proxy was seen to leave on a node.
package facts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"offramp.dev/offramp/e2e/cluster"
)

// DirVariable names the environment variable with the folder that rows are kept in; without it none are.
const DirVariable = "OFFRAMP_FACTS_DIR"

// Row is one transition of one node.
type Row struct {
	// Order sorts the table.
	Order int
	// Transition says what was done, as "ipvs -> nftables".
	Transition string
	// Proxy, Kernel and Backend are kube-proxy's version, the node's kernel ("6.1", or "host"), and iptables' backend.
	Proxy, Kernel, Backend string
	// Before and After are the node's state.
	Before, After cluster.State
	// Errors are error lines of kube-proxy's log in words that are the same each time.
	Errors []string
	// Notes are further things that were seen and asserted.
	Notes []string
}

// Keep writes a row into the folder that DirVariable names, for Render to be read again.
func Keep(row Row) error {
	dir := os.Getenv(DirVariable)
	if dir == "" {
		return nil
	}
	content, err := json.MarshalIndent(row, "", "\t")
	if err != nil {
		return fmt.Errorf("encoding a row: %w", err)
	}
	name := strings.NewReplacer(" ", "_", "/", "_").Replace(fmt.Sprintf("%03d-%s-%s-%s-%s.json", row.Order, row.Transition, row.Proxy, row.Kernel, row.Backend))
	return os.WriteFile(filepath.Join(dir, name), content, 0o644)
}

// Read reads all rows of a folder in the table's order.
func Read(dir string) ([]Row, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("looking for rows: %w", err)
	}
	slices.Sort(paths)
	rows := make([]Row, len(paths))
	for i, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a row: %w", err)
		}
		if err := json.Unmarshal(content, &rows[i]); err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
	return rows, nil
}
