package collect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/agent/inventory"
	"offramp.dev/offramp/internal/facts"
)

// readHost reads the names of the nfacct objects, and the API servers that kubeconfig files name.
func (e *exact) readHost(ctx context.Context) error {
	var err error
	// The counting reader asked only where asking loads nothing: where it found any, asking again is as harmless.
	if host := facts.Find(e.facts, kindHost).GetStable().GetHost(); len(host.GetAccountingObjects()) > 0 {
		e.node.Accounting, _, err = repeat(ctx, dumpAccountingNames)
	}
	tree, treeErr := openHostTree(e.scan.scanner.config.Host)
	if treeErr != nil {
		return errors.Join(err, treeErr)
	}
	e.node.APIServers = readAPIServers(tree)
	return errors.Join(err, tree.close())
}

func dumpAccountingNames(ctx context.Context) ([]string, error) {
	socket, err := openSocket(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer socket.close()
	request := nl.NewNetlinkRequest(subsystemAccounting<<8|accountingGet, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	var names []string
	err = socket.dump(ctx, request, func(message []byte) error {
		name, err := parseAccounting(message)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the nfacct objects: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

// kubeconfigFiles are where kubelet and kube-proxy find the API server: kubeadm, binary installs, k3s and RKE2.
func kubeconfigFiles() []string {
	return []string{
		"etc/kubernetes/kubelet.conf", "etc/kubernetes/kubelet.kubeconfig", "var/lib/kubelet/kubeconfig",
		"etc/kubernetes/kube-proxy.kubeconfig", "var/lib/kube-proxy/kubeconfig", "var/lib/kube-proxy/kubeconfig.conf",
		"var/lib/rancher/k3s/agent/kubelet.kubeconfig", "var/lib/rancher/k3s/agent/kubeproxy.kubeconfig",
		"var/lib/rancher/rke2/agent/kubelet.kubeconfig", "var/lib/rancher/rke2/agent/kubeproxy.kubeconfig",
	}
}

// readAPIServers leaves out files that are not there or are no kubeconfig.
func readAPIServers(tree *hostTree) []inventory.APIServer {
	var servers []inventory.APIServer
	for _, name := range kubeconfigFiles() {
		text, found, err := tree.read(name)
		if !found || err != nil {
			continue
		}
		for _, server := range parseKubeconfig(text) {
			server.File = "/" + name
			servers = append(servers, server)
		}
	}
	return servers
}

// parseKubeconfig returns the servers of all clusters of a kubeconfig, none for what is not understood.
func parseKubeconfig(text []byte) []inventory.APIServer {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string `json:"server"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil
	}
	var servers []inventory.APIServer
	for _, cluster := range config.Clusters {
		if server, ok := parseServerURL(cluster.Cluster.Server); ok {
			servers = append(servers, server)
		}
	}
	return servers
}

// parseServerURL takes "https://10.96.0.1:443"; without a port it is the scheme's.
func parseServerURL(text string) (inventory.APIServer, bool) {
	at, err := url.Parse(text)
	if err != nil || at.Hostname() == "" {
		return inventory.APIServer{}, false
	}
	service := at.Port()
	switch {
	case service != "":
	case at.Scheme == "https":
		service = "443"
	case at.Scheme == "http":
		service = "80"
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return inventory.APIServer{}, false
	}
	return inventory.APIServer{Host: at.Hostname(), Port: uint16(port)}, true
}
