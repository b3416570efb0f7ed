package kubeproxy

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// unidentified is the WHO of somebody that is not known, but is not kube-proxy.
const unidentified = "unidentified"

// lookAlike is a full pattern of names that belong to somebody else. The pattern is anchored at both ends.
type lookAlike struct {
	who string
	// begins is what every name of the pattern begins with, one of these: most names are told apart by that alone, and most
	// patterns are never compiled.
	begins []string
	names  func() *regexp.Regexp
}

func like(who, pattern string) lookAlike {
	return lookAlike{who, beginnings(pattern), sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:` + pattern + `)$`)
	})}
}

// beginnings returns the literal text that each alternative of a pattern begins with, which may be empty.
func beginnings(pattern string) []string {
	var begins []string
	depth, start, inClass := 0, 0, false
	for i := 0; i < len(pattern); i++ {
		switch char := pattern[i]; {
		case char == '\\':
			i++ // what it escapes means nothing
		case inClass:
			inClass = char != ']'
		case char == '[':
			inClass = true
		case char == '(':
			depth++
		case char == ')':
			depth--
		case char == '|' && depth == 0:
			begins = append(begins, beginning(pattern[start:i]))
			start = i + 1
		}
	}
	return append(begins, beginning(pattern[start:]))
}

func beginning(alternative string) string {
	end := strings.IndexAny(alternative, `\.+*?()[]{}^$`)
	if end < 0 {
		return alternative
	}
	if strings.IndexByte("*?{", alternative[end]) >= 0 { // it makes the character before it one that may be missing
		end = max(end-1, 0)
	}
	return alternative[:end]
}

func (l lookAlike) matches(name string) bool {
	return slices.ContainsFunc(l.begins, func(begin string) bool { return strings.HasPrefix(name, begin) }) &&
		l.names().MatchString(name)
}

// find returns whose a name is, or "" where nobody is known to use it.
func find(table []lookAlike, name string) Owner {
	for _, row := range table {
		if row.matches(name) {
			return Foreign(row.who)
		}
	}
	return ""
}
