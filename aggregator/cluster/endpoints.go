package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// maxSlices bounds how many EndpointSlices of one Service are read: 100 endpoints each.
const maxSlices = 200

// EndpointNames names what stands behind a Service's addresses: "10.244.1.7" is "pod default/web-1 on node-a". EndpointSlices are
// read when somebody asks, not followed: only this question needs them.
func EndpointNames(ctx context.Context, client kubernetes.Interface, namespace, service string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	slices, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: "kubernetes.io/service-name=" + service, Limit: maxSlices,
	})
	if err != nil {
		return nil, fmt.Errorf("read the EndpointSlices of Service %s/%s: %w", namespace, service, err)
	}
	names := map[string]string{}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			name := "endpoint of " + namespace + "/" + service
			if target := endpoint.TargetRef; target != nil && target.Kind == "Pod" {
				name = "pod " + target.Namespace + "/" + target.Name
			}
			if endpoint.NodeName != nil {
				name += " on " + *endpoint.NodeName
			}
			for _, address := range endpoint.Addresses {
				names[address] = name
			}
		}
	}
	return names, nil
}
