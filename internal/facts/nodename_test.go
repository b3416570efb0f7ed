package facts_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/internal/facts"
)

func TestCheckNodeName(t *testing.T) {
	tests := map[string]bool{
		"a": true, "node-1": true, "ip-10-0-0-1.eu-west-1.compute.internal": true, "7": true,
		strings.Repeat("a", 253): true, strings.Repeat("a", 254): false,
		"": false, "Node": false, "-a": false, "a-": false, "a..b": false, ".a": false, "a.": false,
		"a_b": false, "a/b": false, "a\nb": false, "größe": false, "../../etc": false,
	}
	for name, fine := range tests {
		if err := facts.CheckNodeName(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
