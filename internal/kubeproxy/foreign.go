package kubeproxy

import "regexp"

// unidentified is the WHO of somebody that is not known, but is not kube-proxy.
const unidentified = "unidentified"

// lookAlike is a full pattern of names that belong to somebody else. The pattern is anchored at both ends.
type lookAlike struct {
	who   string
	names *regexp.Regexp
}

func like(who, pattern string) lookAlike {
	return lookAlike{who, regexp.MustCompile(`^(?:` + pattern + `)$`)}
}

// find returns whose a name is, or "" where nobody is known to use it.
func find(table []lookAlike, name string) Owner {
	for _, row := range table {
		if row.names.MatchString(name) {
			return Foreign(row.who)
		}
	}
	return ""
}
