package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// targetWords are in the order in which people are told of them.
func targetWords() []string { return []string{"nftables", "iptables", "none", "ipvs"} }

// ParseTarget reads a target as people write it: nftables, iptables, none or ipvs.
func ParseTarget(word string) (offrampv1.Target, error) {
	switch word {
	case "nftables":
		return offrampv1.Target_TARGET_NFTABLES, nil
	case "iptables":
		return offrampv1.Target_TARGET_IPTABLES, nil
	case "none":
		return offrampv1.Target_TARGET_NONE, nil
	case "ipvs":
		return offrampv1.Target_TARGET_IPVS, nil
	}
	return offrampv1.Target_TARGET_UNSPECIFIED, fmt.Errorf("%q is no target; there are %s", word, strings.Join(targetWords(), ", "))
}

// targetValue makes a target a flag.
type targetValue struct{ into *offrampv1.Target }

// Type is what help calls the value.
func (v targetValue) Type() string { return "target" }

func (v targetValue) String() string {
	if v.into == nil || *v.into == offrampv1.Target_TARGET_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(v.into.String(), "TARGET_"))
}

// Set reads the value as people write it.
func (v targetValue) Set(word string) error {
	target, err := ParseTarget(word)
	if err != nil {
		return err
	}
	*v.into = target
	return nil
}

// TargetFlag adds --target; what into holds is the default.
func TargetFlag(cmd *cobra.Command, into *offrampv1.Target) {
	cmd.Flags().Var(targetValue{into}, "target", "where the node is going: "+strings.Join(targetWords(), ", "))
	complete(cmd, "target", targetWords())
}

// choiceValue is a flag that takes one of a few words.
type choiceValue struct {
	into    *string
	choices []string
}

// Type is what help calls the value.
func (v choiceValue) Type() string { return "word" }

func (v choiceValue) String() string { return *v.into }

// Set refuses what is none of the choices.
func (v choiceValue) Set(word string) error {
	if !slices.Contains(v.choices, word) {
		return fmt.Errorf("%q is none of %s", word, strings.Join(v.choices, ", "))
	}
	*v.into = word
	return nil
}

// Choice makes a flag value that takes one of the choices; what into holds is the default.
func Choice(into *string, choices ...string) pflag.Value { return choiceValue{into, choices} }

// OutputFlag adds -o, --output with the given formats; the first is the default.
func OutputFlag(cmd *cobra.Command, into *string, formats ...string) {
	*into = formats[0]
	cmd.Flags().VarP(Choice(into, formats...), "output", "o", "format of the output: "+strings.Join(formats, ", "))
	complete(cmd, "output", formats)
}

// complete offers words to a shell. It can only fail for a flag that does not exist.
func complete(cmd *cobra.Command, flag string, words []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}
