package deploycheck

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// foreign are kinds of other projects' that the API server knows once those are installed. Their schema is not at hand.
func foreign() map[string]bool {
	return map[string]bool{
		"cert-manager.io/v1/Certificate": true, "cert-manager.io/v1/Issuer": true, "monitoring.coreos.com/v1/ServiceMonitor": true,
		"monitoring.coreos.com/v1/PodMonitor": true, "monitoring.coreos.com/v1/PrometheusRule": true,
		"security.openshift.io/v1/SecurityContextConstraints": true,
	}
}

// Typed decodes an object with the API's own types, strictly: an unknown or doubled field is an error, as with
// kubectl apply --validate=strict. It is nil, without an error, for another project's kind.
func Typed(object Object) (runtime.Object, error) {
	if foreign()[fmt.Sprint(object["apiVersion"], "/", object["kind"])] {
		return nil, nil
	}
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, err
	}
	if err := apiextensions.AddToScheme(known); err != nil {
		return nil, err
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		return nil, err
	}
	typed, _, err := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
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
