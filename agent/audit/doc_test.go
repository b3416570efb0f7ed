package audit_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"offramp.dev/offramp/agent/audit"
)

// docs/audit.md tells of every field and every outcome.
func TestDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	kind := reflect.TypeFor[audit.Entry]()
	for i := range kind.NumField() {
		name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		if !strings.Contains(string(document), "| `"+name+"`") && !strings.Contains(string(document), ", `"+name+"` |") {
			t.Errorf("field %s is not in docs/audit.md", name)
		}
	}
	for _, outcome := range audit.Outcomes() {
		if !strings.Contains(string(document), "`"+outcome+"`") {
			t.Errorf("outcome %s is not in docs/audit.md", outcome)
		}
	}
}
