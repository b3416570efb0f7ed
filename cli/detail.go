package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func detailCommand(conn *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "detail",
		Short: "Ask a node for one Service, the members of a set, or the rules of a chain",
		Long: `Ask a node, through the aggregator, for more than it reports: one Service as
this node sees it, the members of an ipset, or the rules of a chain. The node
reads it now; nothing is changed. Answers are bounded and come as they are read:
what is left out is said, and the exit code is then 1.

Names are bytes and taken as they are. A byte that is no text is written \xNN,
as reports show it, and a backslash as two. In text output what does not print
is shown by its number; -o json has it unchanged, one item a line.`,
		Example: `  kubectl-offramp detail ipset worker-1 KUBE-CLUSTER-IP
  kubectl-offramp detail chain worker-1 iptables-nft-ipv4 nat KUBE-SERVICES
  kubectl-offramp detail service worker-1 tcp 10.96.0.1:443`,
		RunE: program.Group,
	}
	cmd.AddCommand(detailIpset(conn), detailChain(conn), detailService(conn))
	return cmd
}

func detailIpset(conn *connection) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "ipset NODE SET",
		Short:   "List the members of an ipset, as ipset save writes them",
		Long:    "List the members of an ipset on a node, one a line, as ipset save writes them.",
		Example: `  kubectl-offramp detail ipset worker-1 KUBE-CLUSTER-IP | wc -l`,
		Args:    words("a node and the name of a set", 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &offrampv1.GetDetailRequest{Node: args[0], Detail: &offrampv1.GetDetailRequest_Ipset{Ipset: args[1]}}
			return conn.detail(cmd.Context(), request, itemPrinter(cmd.OutOrStdout(), output))
		},
	}
	settings.OutputFlag(cmd, &output, "text", "json")
	return cmd
}

func detailChain(conn *connection) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "chain NODE BACKEND TABLE CHAIN",
		Short: "List the rules of a chain",
		Long: `List the rules of a chain on a node, one a line, those of iptables as
iptables-save writes them. BACKEND is one of
  ` + strings.Join(backendWords()[:4], "\n  ") + `
  ` + strings.Join(backendWords()[4:], ", ") + `.`,
		Example: `  kubectl-offramp detail chain worker-1 iptables-legacy-ipv4 nat KUBE-SERVICES
  kubectl-offramp detail chain worker-1 nft-ip kube-proxy services`,
		Args: words("a node, a backend, a table and a chain", 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := chainQuery(args[1], args[2], args[3])
			if err != nil {
				return err
			}
			request := &offrampv1.GetDetailRequest{Node: args[0], Detail: &offrampv1.GetDetailRequest_Chain{Chain: query}}
			return conn.detail(cmd.Context(), request, itemPrinter(cmd.OutOrStdout(), output))
		},
	}
	settings.OutputFlag(cmd, &output, "text", "json")
	return cmd
}

func detailService(conn *connection) *cobra.Command {
	var nodePort uint16
	var output string
	cmd := &cobra.Command{
		Use:   "service NODE PROTOCOL [ADDRESS:PORT ...]",
		Short: "Show what stands for a Service on a node",
		Long: `Show what stands for one Service on a node: virtual servers with their real
servers and connections, elements of kube-proxy's nftables maps, rules of
iptables, and the chains that they lead to. PROTOCOL is tcp, udp or sctp. All
addresses have one port.`,
		Example: `  kubectl-offramp detail service worker-1 tcp 10.96.0.1:443
  kubectl-offramp detail service worker-1 udp 10.96.0.10:53 '[fd00:10:96::a]:53'
  kubectl-offramp detail service worker-1 tcp 10.96.7.7:80 --node-port 30080`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return program.Usagef("%s wants a node, a protocol and addresses with a port", cmd.CommandPath())
			}
			query, err := serviceQuery(args[1], args[2:], nodePort)
			if err != nil {
				return err
			}
			request := &offrampv1.GetDetailRequest{Node: args[0], Detail: &offrampv1.GetDetailRequest_Service{Service: query}}
			return conn.detail(cmd.Context(), request, itemPrinter(cmd.OutOrStdout(), output))
		},
	}
	settings.OutputFlag(cmd, &output, "text", "json")
	cmd.Flags().Uint16Var(&nodePort, "node-port", 0, "node port of the Service (0: none)")
	return cmd
}

// words wants exactly as many arguments. An argument may be anything but empty: names are bytes.
func words(what string, count int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != count {
			return program.Usagef("%s wants %s, not %d words", cmd.CommandPath(), what, len(args))
		}
		for _, arg := range args {
			if arg == "" {
				return program.Usagef("%s wants %s; one is empty", cmd.CommandPath(), what)
			}
		}
		return nil
	}
}

func backendWords() []string {
	return []string{
		"iptables-nft-ipv4", "iptables-nft-ipv6", "iptables-legacy-ipv4", "iptables-legacy-ipv6",
		"nft-ip", "nft-ip6", "nft-inet", "nft-arp", "nft-bridge", "nft-netdev",
	}
}

func chainQuery(backend, table, chain string) (*offrampv1.ChainQuery, error) {
	query := &offrampv1.ChainQuery{Table: table, Chain: chain}
	switch backend {
	case "iptables-nft-ipv4":
		query.Section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV4
	case "iptables-nft-ipv6":
		query.Section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_NFT_IPV6
	case "iptables-legacy-ipv4":
		query.Section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4
	case "iptables-legacy-ipv6":
		query.Section = offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6
	case "nft-ip", "nft-ip6", "nft-inet", "nft-arp", "nft-bridge", "nft-netdev":
		query.Section, query.Family = offrampv1.SectionKind_SECTION_KIND_NFTABLES, strings.TrimPrefix(backend, "nft-")
	default:
		return nil, program.Usagef("%q is none of %s", backend, strings.Join(backendWords(), ", "))
	}
	return query, nil
}

func serviceQuery(protocol string, addresses []string, nodePort uint16) (*offrampv1.ServiceQuery, error) {
	query := &offrampv1.ServiceQuery{NodePort: uint32(nodePort), Protocol: strings.ToUpper(protocol)}
	switch query.GetProtocol() {
	case "TCP", "UDP", "SCTP":
	default:
		return nil, program.Usagef("%q is none of tcp, udp, sctp", protocol)
	}
	if len(addresses) == 0 && nodePort == 0 {
		return nil, program.Usagef("which Service? Name an address with a port, or --node-port")
	}
	for _, text := range addresses {
		address, err := netip.ParseAddrPort(text)
		if err != nil || address.Port() == 0 {
			return nil, program.Usagef("%q is no address with a port, such as 10.96.0.1:443 or [fd00::1]:443", text)
		}
		if port := uint32(address.Port()); query.GetPort() != 0 && query.GetPort() != port {
			return nil, program.Usagef("one Service, one port: not both %d and %d", query.GetPort(), port)
		}
		query.Port = uint32(address.Port())
		query.Addresses = append(query.Addresses, address.Addr().String())
	}
	return query, nil
}

// detail asks and prints each item as it comes. An answer that is not complete is an error, after what there was of it.
func (c *connection) detail(ctx context.Context, request *offrampv1.GetDetailRequest, print func([]string) error) error {
	return c.use(func(client offrampv1.FleetServiceClient) error {
		ctx, cancel := c.deadline(ctx)
		defer cancel()
		stream, err := client.GetDetail(ctx, request)
		for err == nil {
			var part *offrampv1.GetDetailResponse
			if part, err = stream.Recv(); err != nil {
				break
			}
			if err := print(part.GetItems()); err != nil {
				return err
			}
			if part.GetError() != "" {
				return fmt.Errorf("the answer of node %q is not complete: %s", request.GetNode(), render.Clean(part.GetError()))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return c.explain(fmt.Sprintf("asking node %q for a detail", request.GetNode()), err)
	})
}

// itemPrinter writes items one a line: cleaned for people, or each as a JSON string.
func itemPrinter(w io.Writer, output string) func([]string) error {
	if output == "json" {
		return func(items []string) error { return render.JSONItems(w, items) }
	}
	return func(items []string) error { return render.Items(w, items) }
}
