package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// serviceProxyName marks Services that kube-proxy leaves to somebody else.
const serviceProxyName = "service.kubernetes.io/service-proxy-name"

func services(objects []metav1.Object) []*offrampv1.ClusterService {
	var all []*offrampv1.ClusterService
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok {
			all = append(all, serviceFacts(service))
		}
	}
	return all
}

func serviceFacts(service *corev1.Service) *offrampv1.ClusterService {
	spec := service.Spec
	_, other := service.Labels[serviceProxyName]
	facts := &offrampv1.ClusterService{
		Namespace: service.Namespace, Name: service.Name, Type: string(spec.Type), ExternalIps: spec.ExternalIPs,
		SessionAffinity: spec.SessionAffinity == corev1.ServiceAffinityClientIP,
		InternalLocal:   spec.InternalTrafficPolicy != nil && *spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal:   spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		OtherProxy:      other, HealthCheckNodePort: uint32(max(spec.HealthCheckNodePort, 0)),
	}
	addresses := spec.ClusterIPs
	if len(addresses) == 0 && spec.ClusterIP != "" {
		addresses = []string{spec.ClusterIP}
	}
	for _, address := range addresses {
		if address == corev1.ClusterIPNone {
			facts.Headless = true
			continue
		}
		facts.ClusterIps = append(facts.ClusterIps, address)
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if proxied := ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP; proxied && ingress.IP != "" {
			facts.LoadBalancerIps = append(facts.LoadBalancerIps, ingress.IP)
		}
	}
	for _, port := range spec.Ports {
		protocol := port.Protocol
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		facts.Ports = append(facts.Ports, &offrampv1.ClusterServicePort{
			Name: port.Name, Protocol: string(protocol), Port: uint32(max(port.Port, 0)), NodePort: uint32(max(port.NodePort, 0)),
		})
	}
	return facts
}
