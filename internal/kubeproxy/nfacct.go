package kubeproxy

// NfacctObjects returns the accounting objects of iptables mode since 1.31 (pkg/proxy/metrics/metrics.go), which no
// cleaner of kube-proxy's removes.
func NfacctObjects() []string {
	return []string{"ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"}
}

// NfacctOwner tells whose an nfacct object is.
func NfacctOwner(name string) Owner {
	for _, known := range NfacctObjects() {
		if name == known {
			return OwnerIPTables
		}
	}
	return Foreign(unidentified)
}
