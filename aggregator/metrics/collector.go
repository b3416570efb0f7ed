package metrics

import "github.com/prometheus/client_golang/prometheus"

// collector asks the sources at each scrape.
type collector struct {
	sources Sources
	all     []*prometheus.Desc

	nodes, verdicts, modes, connected, neverSeen, stuck, dirty, leftovers, pools *prometheus.Desc
	findings, accepted, undecided, cluster, unread                               *prometheus.Desc
	minors, expiry, refused, build                                               *prometheus.Desc
}

func newCollector(sources Sources) *collector {
	c := &collector{sources: sources}
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		one := prometheus.NewDesc("offramp_aggregator_"+name, help, labels, nil)
		c.all = append(c.all, one)
		return one
	}
	c.nodes = describe("nodes", "Nodes, by phase.", "phase")
	c.verdicts = describe("nodes_ready", "Nodes, by whether they could go to nftables mode.", "verdict")
	c.modes = describe("nodes_running", "Nodes that are heard of, by the mode that kube-proxy runs in.", "mode")
	c.connected = describe("nodes_connected", "Nodes with a stream to this replica now.")
	c.neverSeen = describe("nodes_never_seen", "Node objects for which no agent ever reported to this replica.")
	c.stuck = describe("nodes_kube_proxy_stuck", "Nodes whose kube-proxy has had changes to write for 10 minutes and finished no sync in that time.")
	c.dirty = describe("nodes_with_leftovers", "Nodes with something left of another mode.")
	c.leftovers = describe("leftovers", "What kube-proxy made and its running mode does not use, over all nodes, by kind.", "kind")
	c.pools = describe("pool_nodes", "Nodes, by pool and phase; at most 100 pools, the largest.", "pool", "phase")
	c.findings = describe("nodes_with_finding", "Nodes with a finding for the target nftables, by its id.", "finding", "severity")
	c.accepted = describe("nodes_with_finding_accepted", "Those of them on which somebody accepted the finding.", "finding")
	c.undecided = describe("nodes_with_finding_undecided", "Those of them on which the finding leaves the question open.", "finding")
	c.cluster = describe("cluster_finding", "1 for each finding about the cluster that nobody accepted, by its id.", "finding", "severity")
	c.unread = describe("cluster_sources_unread", "Kinds of objects of the Kubernetes API that could not be read.")
	c.minors = describe("ipvs_minor_versions_left", "Minor versions from this cluster's to the one that refuses ipvs mode, and to the one without it.", "until")
	c.expiry = describe("certificate_expiry_timestamp_seconds", "When a certificate expires: of the server, or of the authority that the aggregator made.", "certificate")
	c.refused = describe("refused_calls_total", "Calls that were refused for who made them.")
	c.build = describe("build_info", "1, with the version of the aggregator.", "version")
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, one := range c.all {
		to <- one
	}
}
