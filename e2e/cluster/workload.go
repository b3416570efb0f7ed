package cluster

import (
	"bytes"
	"context"
	_ "embed" // for services.yaml
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"
)

//go:embed services.yaml
var servicesYAML []byte

// service is what of a Service the workload needs to know; the rest is passed on as it is.
type service struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		IPFamilies []string `json:"ipFamilies"`
		Ports      []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
		} `json:"ports"`
	} `json:"spec"`
}

// CreateServices makes one Service of every kind, with the pods behind them. For those whose endpoints are on other
// nodes only, the pods of node under are left out. Where names are given, only the Services of services.yaml that are
// called so are made.
func (c *Cluster) CreateServices(ctx context.Context, under *Node, pods []*Pod, names ...string) error {
	for _, text := range bytes.Split(servicesYAML, []byte("\n---\n")) {
		var read service
		var object map[string]any
		if err := errors.Join(yaml.UnmarshalStrict(text, &object), yaml.Unmarshal(text, &read)); err != nil {
			return fmt.Errorf("reading services.yaml: %w", err)
		}
		if len(names) > 0 && !slices.Contains(names, read.Metadata.Name) {
			continue
		}
		if err := c.createService(ctx, object, under, pods); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) createService(ctx context.Context, object map[string]any, under *Node, pods []*Pod) error {
	status := object["status"]
	delete(object, "status")
	object["apiVersion"] = "v1"
	if spec, ok := object["spec"].(map[string]any); ok {
		if addresses, ok := spec["clusterIPs"].([]any); ok {
			spec["clusterIP"] = addresses[0]
		}
	}
	const all = "/api/v1/namespaces/default/services"
	var made service
	if err := c.API.Do(ctx, "POST", all, object, &made); err != nil {
		return err
	}
	if status != nil {
		path := all + "/" + made.Metadata.Name + "/status"
		if err := c.API.Do(ctx, "PATCH", path, map[string]any{"status": status}, nil); err != nil {
			return err
		}
	}
	for _, family := range made.Spec.IPFamilies {
		if err := c.createSlice(ctx, made, family, endpointsOf(made, family, under, pods)); err != nil {
			return err
		}
	}
	return nil
}

// endpoint is one entry of an EndpointSlice.
type endpoint struct {
	Addresses  []string        `json:"addresses"`
	Conditions map[string]bool `json:"conditions"`
	NodeName   string          `json:"nodeName,omitempty"`
}

func endpointsOf(s service, family string, under *Node, pods []*Pod) []endpoint {
	where := s.Metadata.Annotations["endpoints"]
	found := []endpoint{}
	for _, p := range pods {
		if where == "none" || where == "remote" && p.Node == under {
			continue
		}
		address := p.V4
		if family == "IPv6" {
			address = p.V6
		}
		found = append(found, readyEndpoint(address, p.Node.Name))
	}
	return found
}

func readyEndpoint(address netip.Addr, node string) endpoint {
	return endpoint{Addresses: []string{address.String()}, Conditions: map[string]bool{"ready": true, "serving": true}, NodeName: node}
}

// createSlice does what the controller does that this cluster lacks.
func (c *Cluster) createSlice(ctx context.Context, s service, family string, endpoints []endpoint) error {
	ports := make([]map[string]any, 0, len(s.Spec.Ports))
	for _, p := range s.Spec.Ports {
		ports = append(ports, map[string]any{"name": p.Name, "protocol": p.Protocol, "port": 8080})
	}
	slice := map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": map[string]any{
			"name":   s.Metadata.Name + "-" + strings.ToLower(family),
			"labels": map[string]string{"kubernetes.io/service-name": s.Metadata.Name},
		},
		"addressType": family, "endpoints": endpoints, "ports": ports,
	}
	return c.API.Do(ctx, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice, nil)
}

// Generate makes n ClusterIP Services (IPv4) with m endpoints each, which are addresses that nobody answers at.
func (c *Cluster) Generate(ctx context.Context, n, m int) error {
	const atOnce = 16
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			text := fmt.Sprintf("kind: Service\nmetadata: {name: made-%05d, annotations: {endpoints: none}}\n"+
				"spec: {ipFamilies: [IPv4], ports: [{port: 80, targetPort: 8080}]}", i)
			var object map[string]any
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				return fmt.Errorf("generating a Service: %w", err)
			}
			var made service
			if err := c.API.Do(ctx, "POST", "/api/v1/namespaces/default/services", object, &made); err != nil {
				return err
			}
			endpoints := make([]endpoint, 0, m)
			for j := range m {
				number := i*m + j
				address := netip.AddrFrom4([4]byte{10, 128 + byte(number>>16)&0x3f, byte(number >> 8), byte(number)})
				endpoints = append(endpoints, readyEndpoint(address, ""))
			}
			return c.createSlice(ctx, made, "IPv4", endpoints)
		})
	}
	return group.Wait()
}
