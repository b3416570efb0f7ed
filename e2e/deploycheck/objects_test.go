package deploycheck

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"
)

func text(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// sortSets sorts the lists below a value that have an order to nobody: those of things with a name, and mounts by their path.
func sortSets(value any) {
	switch value := value.(type) {
	case Object:
		sortSets(map[string]any(value))
	case map[string]any:
		for key, inner := range value {
			sortSets(inner)
			list, isList := inner.([]any)
			if isList && (key == "volumes" || key == "volumeMounts") {
				slices.SortFunc(list, func(a, b any) int { return cmp.Compare(setKey(a), setKey(b)) })
			}
		}
	case []any:
		for _, inner := range value {
			sortSets(inner)
		}
	}
}

func setKey(item any) string {
	fields, _ := item.(map[string]any)
	name, _ := fields["name"].(string)
	return name
}
