package cluster_test

import (
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

// What the lab has recorded it can put into another guest, legacy tables too; Restore reads back what it restored.
func TestRestoreRecorded(t *testing.T) {
	t.Parallel()
	l := labtest.Start(t)
	guest := labtest.Boot(t, l, lab.VM{Name: "restored", Kernel: "6.1"})
	if err := lab.Restore(t.Context(), guest, "1.37.2-legacy-ipvs-then-iptables"); err != nil {
		t.Fatal(err)
	}
	rules, err := guest.Output(t.Context(), "iptables-legacy-save", "-t", "nat")
	if err != nil || len(rules) < 10000 {
		t.Errorf("the guest has %d bytes of legacy rules (%v)", len(rules), err)
	}
}
