package deploycheck

import (
	"fmt"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
)

// Ask is one thing that somebody may do or see beyond what every pod may: a capability, a mount, a rule.
type Ask struct {
	// Who is an account: offramp-agent, offramp-aggregator, one of people's, or a role that nobody is bound to.
	Who string
	// What is in words that are the key of its reason.
	What string
}

// Asks lists what objects ask for, sorted, each once.
func (t *Types) Asks(objects []Object) ([]Ask, error) {
	var asks []Ask
	roles, holders := map[string][]rbac.PolicyRule{}, map[string][]string{}
	for _, object := range objects {
		typed, err := t.Decode(object)
		if err != nil {
			return nil, err
		}
		switch o := typed.(type) {
		case *apps.DaemonSet:
			asks = append(asks, podAsks(&o.Spec.Template.Spec)...)
		case *apps.Deployment:
			asks = append(asks, podAsks(&o.Spec.Template.Spec)...)
		case *rbac.ClusterRole:
			roles["ClusterRole "+o.Name] = o.Rules
		case *rbac.Role:
			roles["Role "+o.Name] = o.Rules
		case *rbac.ClusterRoleBinding:
			bind(holders, o.RoleRef, o.Subjects, "everywhere")
		case *rbac.RoleBinding:
			bind(holders, o.RoleRef, o.Subjects, "in "+o.Namespace)
		}
	}
	asks = append(asks, roleAsks(roles, holders)...)
	slices.SortFunc(asks, func(a, b Ask) int { return strings.Compare(a.Who+"\n"+a.What, b.Who+"\n"+b.What) })
	return slices.Compact(asks), nil
}

// bind notes "account, where" for a role.
func bind(holders map[string][]string, role rbac.RoleRef, subjects []rbac.Subject, where string) {
	for _, subject := range subjects {
		key := role.Kind + " " + role.Name
		holders[key] = append(holders[key], subject.Name+"\n"+where)
	}
}

// roleAsks are the rules of roles by who is bound to them. A role of somebody else's has none in sight and is named.
func roleAsks(roles map[string][]rbac.PolicyRule, holders map[string][]string) []Ask {
	var asks []Ask
	for role, rules := range roles {
		bound := holders[role]
		if len(bound) == 0 {
			bound = []string{strings.Fields(role)[1] + " (nobody is bound to it)\nin offramp"}
		}
		for _, holder := range bound {
			who, where, _ := strings.Cut(holder, "\n")
			for _, rule := range rules {
				asks = append(asks, Ask{who, ruleWords(rule) + ", " + where})
			}
		}
	}
	for role, bound := range holders {
		if _, known := roles[role]; known {
			continue
		}
		for _, holder := range bound {
			who, where, _ := strings.Cut(holder, "\n")
			asks = append(asks, Ask{who, role + ", " + where})
		}
	}
	return asks
}

func ruleWords(rule rbac.PolicyRule) string {
	things := slices.Concat(rule.NonResourceURLs, rule.Resources)
	for i, thing := range rule.Resources {
		if group := rule.APIGroups[0]; group != "" {
			things[len(rule.NonResourceURLs)+i] = thing + "." + group
		}
	}
	words := strings.Join(rule.Verbs, ", ") + " " + strings.Join(things, ", ")
	if len(rule.ResourceNames) > 0 {
		words += " named " + strings.Join(rule.ResourceNames, ", ")
	}
	return words
}

func podAsks(pod *core.PodSpec) []Ask {
	var whats []string
	for what, asked := range map[string]bool{
		"the node's network": pod.HostNetwork, "the node's process ids": pod.HostPID, "the node's IPC": pod.HostIPC,
		"a token for the API server": pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken,
	} {
		if asked {
			whats = append(whats, what)
		}
	}
	for _, toleration := range pod.Tolerations {
		if toleration.Key == "" && toleration.Operator == core.TolerationOpExists && toleration.Effect == "" {
			whats = append(whats, "nodes with any taint")
		} else {
			whats = append(whats, "nodes with the taint "+toleration.Key)
		}
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		whats = append(whats, containerAsks(pod, &container)...)
	}
	asks := make([]Ask, 0, len(whats))
	for _, what := range whats {
		asks = append(asks, Ask{pod.ServiceAccountName, what})
	}
	return asks
}

func containerAsks(pod *core.PodSpec, container *core.Container) []string {
	var whats []string
	security := container.SecurityContext
	if security == nil {
		security = &core.SecurityContext{}
	}
	for what, asked := range map[string]bool{
		"a privileged container":    security.Privileged != nil && *security.Privileged,
		"more rights by a program":  security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation,
		"a writable root":           security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem,
		"user 0":                    security.RunAsUser != nil && *security.RunAsUser == 0,
		"a mount without a volume":  len(container.VolumeMounts) > len(pod.Volumes),
		"no seccomp profile":        pod.SecurityContext == nil || pod.SecurityContext.SeccompProfile == nil,
		"a capability kept by many": security.Capabilities == nil || !slices.Equal(security.Capabilities.Drop, []core.Capability{"ALL"}),
	} {
		if asked {
			whats = append(whats, what)
		}
	}
	if security.Capabilities != nil {
		for _, capability := range security.Capabilities.Add {
			whats = append(whats, "the capability "+string(capability))
		}
	}
	if security.SELinuxOptions != nil {
		whats = append(whats, "the SELinux type "+security.SELinuxOptions.Type)
	}
	for _, port := range container.Ports {
		if port.HostPort != 0 {
			whats = append(whats, fmt.Sprintf("port %d of the node", port.HostPort))
		}
	}
	for _, mount := range container.VolumeMounts {
		whats = append(whats, mountWords(pod, mount))
	}
	return whats
}

func mountWords(pod *core.PodSpec, mount core.VolumeMount) string {
	access := "writable"
	switch {
	case mount.RecursiveReadOnly != nil && *mount.RecursiveReadOnly != core.RecursiveReadOnlyDisabled:
		access = "read-only with all below"
	case mount.ReadOnly:
		access = "read-only"
	}
	for _, volume := range pod.Volumes {
		if volume.Name != mount.Name {
			continue
		}
		switch {
		case volume.HostPath != nil:
			return fmt.Sprintf("%s of the node, %s", volume.HostPath.Path, access)
		case volume.ConfigMap != nil:
			return fmt.Sprintf("the ConfigMap %s, %s", volume.ConfigMap.Name, access)
		case volume.Secret != nil:
			return fmt.Sprintf("the Secret %s, %s", volume.Secret.SecretName, access)
		case volume.Projected != nil && len(volume.Projected.Sources) == 1 && volume.Projected.Sources[0].ServiceAccountToken != nil:
			return fmt.Sprintf("a token for the audience %s alone", volume.Projected.Sources[0].ServiceAccountToken.Audience)
		}
	}
	return "a mount that is not understood: " + mount.Name
}
