package deploycheck

import (
	"encoding/json"
	"errors"
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// foreign are kinds of other projects' that the API server knows once those are installed. Their schema is not at hand.
func foreign() map[string]bool {
	return map[string]bool{
		"cert-manager.io/v1/Certificate": true, "cert-manager.io/v1/Issuer": true, "monitoring.coreos.com/v1/ServiceMonitor": true,
		"monitoring.coreos.com/v1/PodMonitor": true, "monitoring.coreos.com/v1/PrometheusRule": true,
		"security.openshift.io/v1/SecurityContextConstraints": true,
	}
}

// Types decodes objects with the API's own types. Use NewTypes.
type Types struct{ decoder runtime.Decoder }

// NewTypes knows the built-in kinds and CustomResourceDefinition.
func NewTypes() (*Types, error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensions.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("gather the API's types: %w", err)
	}
	return &Types{serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()}, nil
}

// Decode is strict: an unknown or doubled field is an error, as with kubectl apply --validate=strict. The answer is nil, without
// an error, for another project's kind.
func (t *Types) Decode(object Object) (runtime.Object, error) {
	if foreign()[fmt.Sprint(object["apiVersion"], "/", object["kind"])] {
		return nil, nil
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object.Name(), err)
	}
	typed, _, err := t.decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", object.Name(), err)
	}
	return typed, nil
}

// Name is "kind/namespace/name", without the namespace where there is none.
func (o Object) Name() string {
	metadata, _ := o["metadata"].(map[string]any)
	if namespace, found := metadata["namespace"]; found {
		return fmt.Sprintf("%v/%v/%v", o["kind"], namespace, metadata["name"])
	}
	return fmt.Sprintf("%v/%v", o["kind"], metadata["name"])
}
