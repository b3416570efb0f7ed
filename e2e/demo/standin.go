package main

import (
	"context"
	"fmt"

	"offramp.dev/offramp/e2e/lab"
)

// restored brings nodes up from captures, with stand-ins for kube-proxy.
type restored struct{ stage *stage }

// left implements origin: what is left of ipvs mode in the capture ipvs-then-iptables, counted by hand from its files.
func (restored) left() leftovers { return leftovers{servers: 85, sets: 34, addresses: 68} }

// bring implements origin.
func (r restored) bring(ctx context.Context, nodes []*node) error {
	return each(nodes, func(_ int, n *node) (err error) {
		if n.guest, err = r.stage.lab.Boot(ctx, lab.VM{Name: n.name, Kernel: n.kernel, Files: r.stage.programs.forGuest(), Disk: diskMiB}); err != nil {
			return fmt.Errorf("booting %s: %w", n.name, err)
		}
		if err := lab.Restore(ctx, n.guest, n.capture); err != nil {
			return err
		}
		n.kubeProxy, err = lab.StandIn(ctx, n.guest, n.capture)
		return err
	})
}
