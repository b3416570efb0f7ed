// Command render makes docs/kube-proxy-facts.md from the rows that the tests of e2e/cluster kept, and prints its
// table.
package main

import (
	"flag"
	"fmt"
	"os"

	"offramp.dev/offramp/e2e/cluster/facts"
)

func main() {
	dir := flag.String("rows", "", "folder with the rows")
	out := flag.String("o", "", "file to write; empty is none")
	what := flag.String("what", "make e2e", "the command that made the rows")
	flag.Parse()
	if err := run(*dir, *out, *what); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(dir, out, what string) error {
	rows, err := facts.Read(dir)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return fmt.Errorf("no rows in %q: no transition was seen", dir)
	}
	if out != "" {
		if err := os.WriteFile(out, []byte(facts.Render(rows, what)), 0o644); err != nil {
			return fmt.Errorf("writing the page: %w", err)
		}
	}
	fmt.Print(facts.Table(rows))
	return nil
}
