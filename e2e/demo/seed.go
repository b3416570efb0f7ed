package main

import (
	"context"
	"fmt"
	"strings"

	"offramp.dev/offramp/e2e/lab"
)

// seed adds to a node n virtual servers as kube-proxy leaves them, n of somebody else's, and n sets of somebody else's.
func seed(ctx context.Context, guest *lab.Guest, n int) error {
	if n == 0 {
		return nil
	}
	if _, err := guest.Output(ctx, "modprobe", "-a", "ip_vs_lc", "ip_vs_wlc"); err != nil {
		return fmt.Errorf("loading schedulers: %w", err)
	}
	var servers, sets, addresses strings.Builder
	for i := 1; i <= n; i++ {
		left := fmt.Sprintf("10.96.250.%d", i)
		fmt.Fprintf(&sets, "add KUBE-CLUSTER-IP %s,tcp:80\n", left)
		fmt.Fprintf(&addresses, "address add %s/32 dev kube-ipvs0\n", left)
		fmt.Fprintf(&servers, "-A -t %s:80 -s lc\n-a -t %s:80 -r 10.244.9.%d:8080 -m -w 1\n", left, left, i)

		foreign := fmt.Sprintf("10.6.115.%d", i)
		fmt.Fprintf(&servers, "-A -t %s:41808 -s wlc\n-a -t %s:41808 -r 10.6.116.%d:8080 -g -w 1\n", foreign, foreign, i)
		fmt.Fprintf(&sets, "create office-%d hash:ip\n", i)
	}
	for _, input := range []struct {
		text string
		argv []string
	}{
		{sets.String(), []string{"ipset", "restore"}},
		{addresses.String(), []string{"ip", "-batch", "-"}},
		{servers.String(), []string{"ipvsadm", "-R"}},
	} {
		result, err := guest.RunInput(ctx, []byte(input.text), input.argv...)
		if err != nil {
			return fmt.Errorf("seeding with %s: %w", input.argv[0], err)
		}
		if result.ExitCode != 0 {
			return fmt.Errorf("seeding with %s: exit status %d: %s", input.argv[0], result.ExitCode, result.Stderr)
		}
	}
	return nil
}
