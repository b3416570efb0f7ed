package lab_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

func TestRestore(t *testing.T) {
	l := labtest.Start(t)
	for _, kernel := range lab.Kernels() {
		t.Run(kernel, func(t *testing.T) {
			var group errgroup.Group
			group.SetLimit(2)
			for _, capture := range []string{"ipvs", "ipvs-then-iptables", "ipvs-then-nftables", "nftables"} {
				group.Go(func() error {
					guest, err := l.Boot(t.Context(), lab.VM{Name: capture, Kernel: kernel})
					if err != nil {
						return err
					}
					defer guest.Close()
					if err := lab.Restore(t.Context(), guest, capture); err != nil {
						t.Errorf("%v", err)
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
