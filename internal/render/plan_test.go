package render

import (
	"bytes"
	"io"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const nft4 = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4

// planGoldens are held by files like the others of golden_test.go.
func planGoldens() map[string]func(io.Writer) error {
	refused := samplePlan()
	refused.Guards = sampleGuards()
	return map[string]func(io.Writer) error{
		"plan.txt":         func(w io.Writer) error { return Plan(w, samplePlan()) },
		"plan-refused.txt": func(w io.Writer) error { return Plan(w, refused) },
		"plan-empty.txt":   func(w io.Writer) error { return Plan(w, &offrampv1.Plan{Node: "worker-1", Target: 1}) },
		"plan-nothing.txt": func(w io.Writer) error { return Plan(w, nil) },
		"plan.json":        func(w io.Writer) error { return JSON(w, samplePlan()) },
		"result.txt":       func(w io.Writer) error { return Result(w, samplePlan(), sampleResult()) },
		"result-refused.txt": func(w io.Writer) error {
			return Result(w, samplePlan(), &offrampv1.CleanupResult{Node: "worker-1", RefusedBy: sampleGuards()})
		},
		"result-nothing.txt": func(w io.Writer) error { return Result(w, nil, nil) },
	}
}

// samplePlan has one operation of each kind.
func samplePlan() *offrampv1.Plan {
	plan := &offrampv1.Plan{
		Node: "worker-1", Target: offrampv1.Target_TARGET_NONE, RunningMode: offrampv1.ProxyMode_PROXY_MODE_NONE,
		Digest: bytes.Repeat([]byte{0xab, 0xcd}, 16),
		Kept:   []*offrampv1.Kept{{What: "chain iptables-nft filter KUBE-FIREWALL", Owner: "kubelet", Why: "kubelet's"}},
	}
	add := func(stage offrampv1.Stage, transaction uint32, owner, why, releases string, operation *offrampv1.Operation) {
		operation.Stage, operation.Transaction, operation.Owner, operation.Why, operation.Releases = stage, transaction, owner, why, releases
		plan.Operations = append(plan.Operations, operation)
	}
	const byIPVS, byIPTables = "kube-proxy/ipvs", "kube-proxy/iptables"
	add(1, 1, byIPVS, "no VIP as a source", "", &offrampv1.Operation{Change: &offrampv1.Operation_SetRouteSource{
		SetRouteSource: &offrampv1.SetRouteSource{Address: "fd00::1", Link: "kube-ipvs0", Source: "2001:db8::15"}}})
	for i, address := range []string{"10.96.0.1", "fd00::1"} {
		add(2, uint32(2+i), byIPVS, "stands in kube-proxy's sets", "", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteVirtualServer{
			DeleteVirtualServer: &offrampv1.DeleteVirtualServer{Protocol: "TCP", Address: address, Port: 443, Scheduler: "rr", RealServers: uint32(i)}}})
	}
	add(3, 4, byIPVS, "holds VIPs", "68 addresses", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteLink{
		DeleteLink: &offrampv1.DeleteLink{Name: "kube-ipvs0", Type: "dummy", Addresses: 68}}})
	add(4, 5, byIPVS, "exact", "chain KUBE-NODE-PORT", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteRule{DeleteRule: &offrampv1.DeleteRule{
		Section: nft4, Table: "filter", Chain: "INPUT", Position: 3, Rule: `-A INPUT -m comment --comment "x\x1b" -j KUBE-NODE-PORT`}}})
	for _, name := range []string{"KUBE-NODE-PORT", "KUBE-IPVS-FILTER"} {
		add(4, 5, byIPVS, "a chain", "", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteChain{
			DeleteChain: &offrampv1.DeleteChain{Section: nft4, Table: "filter", Chain: name, Rules: 1234}}})
	}
	add(4, 6, "kube-proxy/nftables", "a table", "", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteTable{
		DeleteTable: &offrampv1.DeleteTable{Family: "ip6", Name: "kube-proxy"}}})
	add(5, 7, byIPVS, "a set", "", &offrampv1.Operation{Change: &offrampv1.Operation_DestroySet{
		DestroySet: &offrampv1.DestroySet{Name: "KUBE-CLUSTER-IP", Type: "hash:ip,port", Entries: 1}}})
	add(6, 8, "offramp", "a black hole", "", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteRoute{
		DeleteRoute: &offrampv1.DeleteRoute{Address: "fd00::1", Link: "lo"}}})
	add(6, 9, byIPTables, "an accounting object", "", &offrampv1.Operation{Change: &offrampv1.Operation_DeleteAccountingObject{
		DeleteAccountingObject: &offrampv1.DeleteAccountingObject{Name: "localhost_nps_accepted_pkts"}}})
	add(7, 10, byIPVS, "nobody wants it", "", &offrampv1.Operation{Change: &offrampv1.Operation_ResetSysctl{
		ResetSysctl: &offrampv1.ResetSysctl{Path: "net/ipv4/vs/conntrack", From: "1", To: "0"}}})
	add(99, 11, "somebody", "of the future", "", &offrampv1.Operation{})
	return plan
}

func sampleGuards() []*offrampv1.GuardFinding {
	return []*offrampv1.GuardFinding{
		{Id: "mode-is-not-target", Title: "kube-proxy does not run in the target mode", Evidence: []string{"running: ipvs"}, Remedy: "Switch it."},
		{Id: "sockets-with-vip", Title: "Sockets have a VIP", Evidence: []string{"2 sockets"}, Remedy: "Wait for them.", CanBeOverridden: true},
		{Id: "boot-file", Title: "A file names a set", Remedy: "Mend it.", CanBeOverridden: true, OverriddenBecause: "goes with the next image"},
	}
}

func sampleResult() *offrampv1.CleanupResult {
	result := &offrampv1.CleanupResult{Node: "worker-1", PlanDigest: bytes.Repeat([]byte{0xab, 0xcd}, 16), BackupId: "20261130T180000Z-1a2b", Remaining: 2}
	for range samplePlan().GetOperations() {
		result.Operations = append(result.Operations, &offrampv1.OperationResult{Outcome: offrampv1.OperationOutcome_OPERATION_OUTCOME_DONE})
	}
	result.Operations[1].Outcome = offrampv1.OperationOutcome_OPERATION_OUTCOME_GONE
	result.Operations[8] = &offrampv1.OperationResult{Outcome: offrampv1.OperationOutcome_OPERATION_OUTCOME_REMAINS, Error: "held by 1 rule"}
	result.Operations[9] = &offrampv1.OperationResult{Outcome: offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED}
	return result
}
