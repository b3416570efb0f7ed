package deploy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/e2e/cluster"
)

// People of the cluster. Each is bound to one of the roles that nobody is bound to by what is installed.
const (
	looker = "vera" // offramp-be-viewer
	doer   = "olga" // offramp-be-operator
)

const people = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: people-look, namespace: offramp}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: offramp-be-viewer}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ` + looker + `}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: people-do, namespace: offramp}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: offramp-be-operator}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: ` + doer + `}]
`

// right is one thing that a line of a role allows.
type right struct{ user, namespace, verb, group, resource, name, path string }

func (r right) String() string {
	what := r.path
	if r.resource != "" {
		what = strings.TrimSuffix(strings.Join([]string{r.group, r.resource, r.name}, "/"), "/")
	}
	return fmt.Sprintf("%s may %s %s in %q", r.user, r.verb, what, r.namespace)
}

// usedBy reports whether a request that was let through needs the right.
func (r right) usedBy(a cluster.Asked) bool {
	if a.About != nil && r.usedBy(*a.About) {
		return true
	}
	if a.User != r.user || a.Verb != r.verb || a.Code == 403 || a.Code == 401 {
		return false
	}
	if r.path != "" {
		return a.Path == r.path
	}
	return a.Group == r.group && a.Resource == r.resource && (r.name == "" || r.name == a.Name) && (r.namespace == "" || r.namespace == a.Namespace)
}

// object is what a manifest says of rights.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Rules    []struct{ APIGroups, Resources, ResourceNames, Verbs, NonResourceURLs []string }
	RoleRef  struct{ Kind, Name string }
	Subjects []struct{ Kind, Name, Namespace string }
}

// rights are all that the roles of a manifest allow those who are bound to them.
func (s *stage) rights(manifest string) []right {
	s.Helper()
	var objects []object
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		var o object
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			s.Fatal(err)
		}
		objects = append(objects, o)
	}
	all := map[right]bool{}
	for _, binding := range objects {
		for _, role := range objects {
			if role.Kind != binding.RoleRef.Kind || role.Metadata.Name != binding.RoleRef.Name {
				continue
			}
			for _, subject := range binding.Subjects {
				user := subject.Name
				if subject.Kind == "ServiceAccount" {
					user = "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
				}
				addRights(all, role, user, binding.Metadata.Namespace)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b right) int { return strings.Compare(a.String(), b.String()) })
}

func addRights(all map[right]bool, role object, user, namespace string) {
	for _, rule := range role.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				all[right{user: user, verb: verb, path: path}] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						all[right{user: user, namespace: namespace, verb: verb, group: group, resource: resource, name: name}] = true
					}
				}
			}
		}
	}
}

// elsewhere says why a right is given that nothing on this cluster needs, or "" where there is no reason.
func (r right) elsewhere() string {
	aggregator := strings.HasSuffix(r.user, ":offramp-aggregator")
	switch {
	case aggregator && r.verb == "list" && r.group != "discovery.k8s.io":
		return "API servers that do not stream lists are asked for them"
	case aggregator && r.resource == "namespaces":
		return "asked where pods and ConfigMaps in it cannot be read"
	case aggregator && r.resource == "pods" && r.verb == "get":
		return "before Kubernetes 1.30 a token names no node, but its pod"
	case r.resource == "pods/portforward" && r.verb == "create":
		return "asked for beside get by API servers from 1.35 on, which do not write that down, and instead of it before 1.30"
	}
	return ""
}

// rightsAreUsed holds that no request of Offramp's accounts was refused, and that each right was used, since so many requests had
// been answered. Before may be those of an Offramp that was being removed, its rights first.
func (s *stage) rightsAreUsed(manifest string, since int) {
	s.Helper()
	asked := s.Cluster.Audit()[since:]
	for _, a := range asked {
		// Whether OpenShift's kube-proxy is there is found out by asking.
		if strings.Contains(a.User, ":offramp:") && a.Code == 403 && a.Namespace != "openshift-kube-proxy" {
			s.Errorf("forbidden: %+v", a)
		}
	}
	for _, r := range s.rights(manifest + "\n---" + people) {
		used := slices.ContainsFunc(asked, r.usedBy)
		reason := r.elsewhere()
		switch {
		case used:
		case reason != "":
			s.Logf("not needed here (%s): %s", reason, r)
		default:
			s.Errorf("never used: %s", r)
		}
	}
}
