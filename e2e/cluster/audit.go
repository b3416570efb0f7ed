package cluster

import (
	"encoding/json"
	"strings"
)

// auditPolicy writes down what people and the service accounts of the namespace offramp ask for.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    userGroups: [system:serviceaccounts:offramp]
    resources: [{group: authorization.k8s.io, resources: [subjectaccessreviews]}]
  - level: Metadata
    users: [offramp-admin]
  - level: Metadata
    userGroups: [system:serviceaccounts:offramp]
  - level: None
`

// Asked is a request that the API server has answered.
type Asked struct {
	// User is who asked, or whom that one impersonated.
	User string
	// Verb is as in a role: get, list, watch, create.
	Verb string
	// Group, Resource (with the subresource, as pods/log), Namespace and Name say for what. Path is all that there is of what is
	// no resource.
	Group, Resource, Namespace, Name, Path string
	// Code is the HTTP status.
	Code int
	// About is the question of whether somebody may do something, for which Code is 0; nil where there is none.
	About *Asked
}

// Audit is what people and the service accounts of the namespace offramp have asked the API server so far. It is written
// where Options.Kubelets names nodes.
func (c *Cluster) Audit() []Asked {
	var all []Asked
	for line := range strings.Lines(c.plane.apiserver.Output()) {
		var event auditEvent
		if strings.HasPrefix(line, `{"kind":"Event","apiVersion":"audit.k8s.io`) && json.Unmarshal([]byte(line), &event) == nil {
			all = append(all, event.asked())
		}
	}
	return all
}

type auditEvent struct {
	Verb, RequestURI       string
	User, ImpersonatedUser struct{ Username string }
	ObjectRef              struct{ Resource, Subresource, APIGroup, Namespace, Name string }
	ResponseStatus         struct{ Code int }
	RequestObject          struct {
		Spec struct {
			User               string
			ResourceAttributes *struct{ Verb, Group, Resource, Subresource, Namespace, Name string }
		}
	}
}

func (e auditEvent) asked() Asked {
	path, _, _ := strings.Cut(e.RequestURI, "?")
	a := Asked{
		User: e.User.Username, Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Path: path, Code: e.ResponseStatus.Code,
	}
	if e.ImpersonatedUser.Username != "" {
		a.User = e.ImpersonatedUser.Username
	}
	if e.ObjectRef.Subresource != "" {
		a.Resource += "/" + e.ObjectRef.Subresource
	}
	if about := e.RequestObject.Spec.ResourceAttributes; about != nil {
		a.About = &Asked{User: e.RequestObject.Spec.User, Verb: about.Verb, Group: about.Group, Resource: about.Resource, Namespace: about.Namespace, Name: about.Name}
	}
	return a
}
