package facts

import (
	"fmt"
	"strings"
)

// maxNodeName bounds a DNS name (RFC 1123).
const maxNodeName = 253

// CheckNodeName accepts what Kubernetes accepts as the name of a Node: a DNS subdomain of 1 to 253 bytes, lower case. A label
// may be as long as the name, since Kubernetes bounds only the whole (IsDNS1123Subdomain in apimachinery).
func CheckNodeName(name string) error {
	if name == "" || len(name) > maxNodeName {
		return fmt.Errorf("a node name has 1 to %d bytes, not %d", maxNodeName, len(name))
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return fmt.Errorf("node name %q is no DNS subdomain: lower-case letters, digits, '-' and '.', each part beginning and ending with a letter or digit", name)
		}
	}
	return nil
}

func isLabel(label string) bool {
	if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for _, c := range []byte(label) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
