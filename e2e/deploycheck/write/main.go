// Write makes what is made of deploy/: the chart's copies of what it shares with kustomize, and docs/privileges.md. Run it in
// e2e/deploycheck, after a change of deploy/.
package main

import (
	"fmt"
	"os"

	"offramp.dev/offramp/e2e/deploycheck"
)

func main() {
	if err := write("../../deploy", "../../docs/privileges.md"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(deploy, privileges string) error {
	if err := deploycheck.CopyShared(deploy); err != nil {
		return err
	}
	manifests, err := deploycheck.ReadManifests(deploy)
	if err != nil {
		return err
	}
	types, err := deploycheck.NewTypes()
	if err != nil {
		return err
	}
	reasons, err := deploycheck.ReadReasons()
	if err != nil {
		return err
	}
	text, err := deploycheck.Privileges(manifests, types, reasons)
	if err != nil {
		return err
	}
	return os.WriteFile(privileges, []byte(text), 0o644)
}
