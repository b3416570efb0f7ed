package plan_test

import (
	"encoding/json"
	"testing"

	"offramp.dev/offramp/e2e/lab"
)

// restored is what `cleanup restore -o json` prints.
type restored struct {
	ID    string `json:"id"`
	Mode  string `json:"running_mode"`
	Items []struct{ What, Outcome, Why string }
}

// restoreOn restores a backup and fails unless it ends with 0.
func restoreOn(t *testing.T, g *lab.Guest, id string, flags ...string) {
	t.Helper()
	said, exit := tryRestore(t, g, id, flags...)
	if exit != 0 {
		t.Errorf("restore %s %v: exit code %d", id, flags, exit)
	}
	for _, item := range said.Items {
		if item.Outcome == "failed" {
			t.Errorf("restore %s: %s: %s", id, item.What, item.Why)
		}
	}
}

func tryRestore(t *testing.T, g *lab.Guest, id string, flags ...string) (restored, int) {
	t.Helper()
	result, err := g.Run(t.Context(), append([]string{agent, "cleanup", "restore", id, "-o", "json"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	var said restored
	if result.Stdout == "" {
		t.Logf("restore %s: %s", id, result.Stderr)
		return said, result.ExitCode
	}
	if err := json.Unmarshal([]byte(result.Stdout), &said); err != nil {
		t.Fatalf("restore: %v: exit code %d: %s%s", err, result.ExitCode, result.Stdout, result.Stderr)
	}
	return said, result.ExitCode
}
