package apiserver

import (
	"fmt"

	"k8s.io/client-go/dynamic"
)

// Objects is a client for objects of kinds that client-go has no types for, reached as Connect does. It sends nothing yet.
func Objects(kubeconfig string) (dynamic.Interface, error) {
	config, err := configuration(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "offramp-aggregator"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("prepare to write objects of Offramp's own: %w", err)
	}
	return client, nil
}
