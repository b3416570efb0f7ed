package cluster_test

import (
	"testing"

	"offramp.dev/offramp/e2e/cluster"
)

// Lines as real kube-proxies wrote them. The two restores differ in one word: a sync that fails does not name a table.
func TestUnexplained(t *testing.T) {
	const log = `I1130 18:12:32.839820    1970 shared_informer.go:356] "Caches are synced" controller="service config"
E1130 18:12:21.000000    1970 proxier.go:420] "Failed to execute iptables-restore" err=<
	exit status 4: iptables-restore v1.8.9 (nf_tables): 
	line 7: CHAIN_DEL failed (Device or resource busy): chain KUBE-MARK-MASQ
 > table="nat"
E1130 15:30:36.207368     716 proxier.go:1390] "Failed to execute iptables-restore" err=<
	exit status 2: iptables-restore v1.8.9 (nf_tables): Couldn't load match ` + "`statistic'" + `:No such file or directory
 > ipFamily="IPv4"
E1130 16:16:56.292918     115 server_linux.go:193] "The ipvs proxier has been deprecated and will be disabled by default"
F1130 16:16:57.000000     115 server.go:10] "something nobody has seen"
`
	if got := len(cluster.ErrorLines(log)); got != 4 {
		t.Errorf("%d error lines, want 4", got)
	}
	got := cluster.Unexplained(log)
	if len(got) != 2 || got[0].File != "proxier.go" || got[1].File != "server.go" {
		t.Errorf("unexplained are %q, want the restore of a sync and the fatal line", got)
	}
	for _, line := range cluster.ErrorLines(log)[:1] {
		check(t, "why --cleanup's restore fails", line.Explain() != "", true)
	}
}
