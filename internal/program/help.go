package program

import "github.com/spf13/cobra"

// Undocumented names every command of a tree that lacks one of Short, Long and Example, as "PATH: FIELD". Commands that
// cobra adds by itself are left out.
func Undocumented(root *cobra.Command) []string {
	var missing []string
	for field, text := range map[string]string{"Short": root.Short, "Long": root.Long, "Example": root.Example} {
		if text == "" {
			missing = append(missing, root.CommandPath()+": "+field)
		}
	}
	for _, child := range root.Commands() {
		if child.Name() != "help" && child.Name() != "completion" {
			missing = append(missing, Undocumented(child)...)
		}
	}
	return missing
}
