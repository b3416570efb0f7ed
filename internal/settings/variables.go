// Package settings gives every program the same way to be told things: a flag, or else the variable OFFRAMP_NAME of the
// same name, or else the default.
package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Lookup finds an environment variable, as os.LookupEnv does.
type Lookup func(name string) (value string, found bool)

// alsoKey is where a flag keeps the names of further variables that may set it.
const alsoKey = "offramp.dev/also"

// Variable is the name of the variable that stands in for a flag: "scan-interval" is OFFRAMP_SCAN_INTERVAL.
func Variable(flag string) string {
	return "OFFRAMP_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Also lets further variables set a flag, tried in this order when neither the flag nor its own variable is set.
// It fails when there is no such flag.
func Also(flags *pflag.FlagSet, flag string, variables ...string) error {
	if err := flags.SetAnnotation(flag, alsoKey, variables); err != nil {
		return fmt.Errorf("naming variables for --%s: %w", flag, err)
	}
	return nil
}

// onlyKey marks a flag that no variable sets.
const onlyKey = "offramp.dev/only"

// OnlyFlag keeps variables away from a flag that means something else in every command. It fails when there is no such flag.
func OnlyFlag(flags *pflag.FlagSet, flag string) error {
	if err := flags.SetAnnotation(flag, onlyKey, nil); err != nil {
		return fmt.Errorf("keeping variables from --%s: %w", flag, err)
	}
	return nil
}

// Fill sets every flag that was not given from its variable. An empty variable counts as not set, so that a manifest may
// leave it empty. The error names the variable, not the flag that nobody typed.
func Fill(flags *pflag.FlagSet, lookup Lookup) error {
	var failed error
	flags.VisitAll(func(flag *pflag.Flag) {
		if failed != nil || flag.Changed || !settable(flag) {
			return
		}
		failed = fillOne(flags, flag, lookup)
	})
	return failed
}

func fillOne(flags *pflag.FlagSet, flag *pflag.Flag, lookup Lookup) error {
	for _, name := range variables(flag) {
		value, _ := lookup(name)
		if value == "" {
			continue
		}
		if err := flags.Set(flag.Name, value); err != nil {
			return fmt.Errorf("variable %s: %w", name, err)
		}
		return nil
	}
	return nil
}

// Document adds to the usage of every flag below root the variables that may set it. Call it once, when all is built.
func Document(root *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{root.Flags(), root.PersistentFlags()} {
		flags.VisitAll(documentOne)
	}
	for _, child := range root.Commands() {
		Document(child)
	}
}

func documentOne(flag *pflag.Flag) {
	note := " [$" + strings.Join(variables(flag), ", $") + "]"
	if settable(flag) && !strings.HasSuffix(flag.Usage, note) {
		flag.Usage += note
	}
}

func variables(flag *pflag.Flag) []string {
	return append([]string{Variable(flag.Name)}, flag.Annotations[alsoKey]...)
}

// settable leaves out what only makes sense on a command line.
func settable(flag *pflag.Flag) bool {
	_, only := flag.Annotations[onlyKey]
	return !only && flag.Name != "help" && flag.Name != "version"
}
