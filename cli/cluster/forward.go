package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Dial opens a way to a ready pod of the aggregator through the API server, as kubectl port-forward does, but without a port
// on this machine that others could use. One pod after the other is tried.
func (c *Cluster) Dial(ctx context.Context) (net.Conn, error) {
	service, err := c.core.Services(c.settings.Namespace).Get(ctx, c.settings.Service, metav1.GetOptions{})
	if err != nil {
		return nil, says("looking for the aggregator's Service", err)
	}
	pods, err := c.readyPods(ctx, service)
	if err != nil {
		return nil, err
	}
	failed := make([]string, 0, len(pods))
	for _, pod := range pods {
		port, err := targetPort(service, pod)
		if err != nil {
			return nil, says("looking for the aggregator's port", err)
		}
		conn, err := c.forward(ctx, pod.Name, port)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, fmt.Sprintf("the pod %s: %v", pod.Name, err))
	}
	return nil, says("forwarding to the aggregator", errors.New(strings.Join(failed, "; ")))
}

func says(doing string, err error) error { return fmt.Errorf("%s%s: %w", Says, doing, err) }

// readyPods are those behind the Service, by name.
func (c *Cluster) readyPods(ctx context.Context, service *corev1.Service) ([]corev1.Pod, error) {
	if len(service.Spec.Selector) == 0 {
		return nil, says("looking for the aggregator's pods", fmt.Errorf("the Service %s/%s selects none", service.Namespace, service.Name))
	}
	selector := labels.SelectorFromSet(service.Spec.Selector).String()
	list, err := c.core.Pods(c.settings.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, says("looking for the aggregator's pods", err)
	}
	ready := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !isReady(pod) })
	if len(ready) == 0 {
		return nil, says("looking for the aggregator's pods", fmt.Errorf("none of the %d behind the Service %s/%s is ready", len(list.Items), c.settings.Namespace, c.settings.Service))
	}
	slices.SortFunc(ready, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return ready, nil
}

func isReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// targetPort is the pod's port behind the Service's port "grpc", or behind its only one.
func targetPort(service *corev1.Service, pod corev1.Pod) (int, error) {
	ports := service.Spec.Ports
	i := slices.IndexFunc(ports, func(port corev1.ServicePort) bool { return port.Name == "grpc" })
	if i < 0 && len(ports) != 1 {
		return 0, fmt.Errorf("the Service %s/%s has %d ports and none of them is named grpc", service.Namespace, service.Name, len(ports))
	}
	port := ports[max(i, 0)]
	if port.TargetPort.Type == intstr.Int {
		if number := port.TargetPort.IntValue(); number != 0 {
			return number, nil
		}
		return int(port.Port), nil
	}
	for _, container := range pod.Spec.Containers {
		for _, named := range container.Ports {
			if named.Name == port.TargetPort.StrVal {
				return int(named.ContainerPort), nil
			}
		}
	}
	return 0, fmt.Errorf("the pod %s has no port %q", pod.Name, port.TargetPort.StrVal)
}

// forward opens the way to one pod. The library's dialers know no context: what comes too late is closed.
func (c *Cluster) forward(ctx context.Context, pod string, port int) (net.Conn, error) {
	dialer, err := c.dialer(pod)
	if err != nil {
		return nil, err
	}
	type opened struct {
		conn net.Conn
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		conn, err := open(dialer, port)
		if err == nil && ctx.Err() != nil {
			err = conn.Close()
		}
		done <- opened{conn, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case ready := <-done:
		return ready.conn, ready.err
	}
}

// dialer talks WebSocket, and SPDY to an API server before 1.31.
func (c *Cluster) dialer(pod string) (httpstream.Dialer, error) {
	where := c.core.RESTClient().Post().Resource("pods").Namespace(c.settings.Namespace).Name(pod).SubResource("portforward").URL()
	modern, err := portforward.NewSPDYOverWebsocketDialerForStreaming(where, c.config)
	if err != nil {
		return nil, err
	}
	old, err := c.spdy(where)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(modern, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

func (c *Cluster) spdy(where *url.URL) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	return spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, where), nil
}

// open makes the two streams that one forwarded connection is.
func open(dialer httpstream.Dialer, port int) (net.Conn, error) {
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		_ = conn.Close()
		return nil, fmt.Errorf("the API server speaks %q, not %q", protocol, portforward.PortForwardProtocolV1Name)
	}
	tunnel, err := newTunnel(conn, strconv.Itoa(port))
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tunnel, nil
}
