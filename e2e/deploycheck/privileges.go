package deploycheck

import (
	_ "embed" // reasons.yaml
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed reasons.yaml
var reasonsText []byte

// Reasons are the reasons by "WHO: WHAT".
type Reasons map[string]string

// ReadReasons reads reasons.yaml.
func ReadReasons() (Reasons, error) {
	var reasons Reasons
	if err := yaml.UnmarshalStrict(reasonsText, &reasons); err != nil {
		return nil, fmt.Errorf("read the reasons: %w", err)
	}
	return reasons, nil
}

// Of is the reason for an ask; "" when there is none.
func (r Reasons) Of(ask Ask) string { return r[ask.Who+": "+ask.What] }

const privilegesHead = `# What Offramp asks for, and why

Made of the manifests by ` + "`go -C e2e/deploycheck run ./write`" + `; a test fails when a capability, a mount or a right is here and not in
what kustomize builds, or the other way round, and the chart renders the same. Each of the agent's capabilities and folders is
taken away in another test, in the sandbox that a container runtime makes, to see that something can then not be read or done.

What nobody has: a privileged container, a way to more rights (` + "`allowPrivilegeEscalation`" + `), a writable root, the node's process ids or
IPC, the node's whole root, the sockets of the container runtime or kubelet, other pods' files, a right of the agents at the API
server, Secrets but the one named here. Both programs have seccomp's profile RuntimeDefault and drop every capability first; the
aggregator has none, runs as user 65532 and would be let in by the strictest level of pod security.

What remains: whoever takes over an agent is user 0 on the node's network. He can change its rules, links and virtual servers, and
read what root reads below /etc; see the threat model.
`

// Privileges is docs/privileges.md.
func Privileges(m *Manifests, t *Types, reasons Reasons) (string, error) {
	asksOf := func(overlay string, components ...string) ([]Ask, error) {
		objects, err := m.BuildWith(overlay, components...)
		if err != nil {
			return nil, err
		}
		return t.Asks(objects)
	}
	observe, err := asksOf("observe")
	if err != nil {
		return "", err
	}
	enforce, err := asksOf("enforce")
	if err != nil {
		return "", err
	}
	components, err := m.Names("components")
	if err != nil {
		return "", err
	}
	var doc strings.Builder
	doc.WriteString(privilegesHead)
	section(&doc, "The overlay observe", nil, observe, reasons)
	section(&doc, "The overlay enforce", observe, enforce, reasons)
	for _, component := range components {
		with, err := asksOf("enforce", component)
		if err != nil {
			return "", err
		}
		section(&doc, "The component "+component, enforce, with, reasons)
	}
	return doc.String(), nil
}

// section tells what after has beside before, and what it lacks.
func section(doc *strings.Builder, title string, before, after []Ask, reasons Reasons) {
	fmt.Fprintf(doc, "\n## %s\n\n", title)
	added := slices.DeleteFunc(slices.Clone(after), func(a Ask) bool { return slices.Contains(before, a) })
	gone := slices.DeleteFunc(slices.Clone(before), func(a Ask) bool { return slices.Contains(after, a) })
	for _, ask := range gone {
		fmt.Fprintf(doc, "Without, for %s: %s.\n\n", ask.Who, ask.What)
	}
	if len(added) == 0 {
		doc.WriteString("Nothing more.\n")
		return
	}
	if before != nil {
		doc.WriteString("More:\n\n")
	}
	doc.WriteString("| who | what | why |\n|---|---|---|\n")
	for _, ask := range added {
		fmt.Fprintf(doc, "| %s | %s | %s |\n", ask.Who, ask.What, reasons.Of(ask))
	}
}
