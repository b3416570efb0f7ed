package main

import (
	"bytes"
	"os"
	"testing"

	"offramp.dev/offramp/internal/render"
)

func TestColoursOnATerminalAlone(t *testing.T) {
	environment := func(values map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { value, found := values[name]; return value, found }
	}
	for name, tt := range map[string]struct {
		values map[string]string
		want   bool
	}{
		"plain": {nil, true}, "NO_COLOR": {map[string]string{"NO_COLOR": "1"}, false}, "empty NO_COLOR": {map[string]string{"NO_COLOR": ""}, true},
		"dumb": {map[string]string{"TERM": "dumb"}, false}, "xterm": {map[string]string{"TERM": "xterm"}, true},
	} {
		if got := wantsColours(environment(tt.values)); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, coloured := screen(file, environment(nil)).(render.Screen); coloured {
		t.Error("a file is coloured")
	}
	if _, coloured := screen(&bytes.Buffer{}, environment(nil)).(render.Screen); coloured {
		t.Error("a buffer is coloured")
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal to open: %v", err)
	}
	defer func() { _ = terminal.Close() }()
	if _, coloured := screen(terminal, environment(nil)).(render.Screen); !coloured {
		t.Error("a terminal has no colours")
	}
}
