package kubeproxy

import "strings"

// hashLength is how many characters of a base32-coded SHA-256 end a chain's name.
const hashLength = 16

// hasHash reports whether name is prefix and then exactly one hash.
func hasHash(name, prefix string) bool {
	rest, found := strings.CutPrefix(name, prefix)
	if !found || len(rest) != hashLength {
		return false
	}
	for _, char := range []byte(rest) {
		if !isBase32(char) {
			return false
		}
	}
	return true
}

func isBase32(char byte) bool {
	return (char >= 'A' && char <= 'Z') || (char >= '2' && char <= '7')
}

// couldBeKubeProxys reports whether a name that no table lists might still be one of kube-proxy's, of a release that this
// table does not know (KUBE-XLB- chains, nat KUBE-FIREWALL and KUBE-FIRE-WALL of before 1.28 are such). It only ever makes
// the answer "unknown": nothing is attributed to anybody by a prefix.
func couldBeKubeProxys(name string) bool { return strings.HasPrefix(name, "KUBE-") }
