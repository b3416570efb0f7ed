// Copy writes into the chart what it shares with kustomize. Run it in e2e/deploycheck, after a change of deploy/.
package main

import (
	"fmt"
	"os"

	"offramp.dev/offramp/e2e/deploycheck"
)

func main() {
	if err := deploycheck.CopyShared("../../deploy"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
