package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/readiness"
)

func explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [ID]",
		Short: "Say what a finding means and what to do about it",
		Long: `Say what a finding means, how heavy it weighs, what to do about it, and where
that is known from. Without an id, list all findings. The aggregator is not
asked; docs/findings.md has the same.`,
		Example: `  kubectl-offramp explain
  kubectl-offramp explain kernel-too-old`,
		Args:              atMostOne("id of a finding"),
		ValidArgsFunction: completeFindings,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listFindings(cmd.OutOrStdout())
			}
			rule, found := readiness.Explain(args[0])
			if !found {
				return unknownFinding(args[0])
			}
			_, err := io.WriteString(cmd.OutOrStdout(), rule.Explanation())
			return err
		},
	}
}

// atMostOne allows one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return program.Usagef("%s wants one %s at most, got %d arguments", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// completeFindings offers the ids of findings for the first word.
func completeFindings(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return findingIDs(), cobra.ShellCompDirectiveNoFileComp
}

// findingIDs are the ids of all findings, sorted.
func findingIDs() []string {
	rules := readiness.Rules()
	ids := make([]string, 0, len(rules))
	for _, rule := range rules {
		ids = append(ids, rule.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func listFindings(w io.Writer) error {
	for _, id := range findingIDs() {
		rule, _ := readiness.Explain(id)
		if _, err := fmt.Fprintf(w, "%s\n    %s.\n", id, rule.Title); err != nil {
			return err
		}
	}
	return nil
}

// unknownFinding says that there is no such finding, and what may have been meant.
func unknownFinding(id string) error {
	near := nearFindings(id)
	if len(near) == 0 {
		return program.Usagef(`there is no finding %q; "explain" without an id lists them`, id)
	}
	return program.Usagef("there is no finding %q; did you mean %s?", id, strings.Join(near, ", "))
}

// maxNear is how many ids are suggested; maxSlips how many letters may be wrong.
const maxNear, maxSlips = 5, 3

// nearFindings are the ids that differ little from what was typed, or else those that have it, or a word of it, in them.
func nearFindings(id string) []string {
	id = strings.ToLower(id)
	var near, alike []string
	for _, known := range findingIDs() {
		switch {
		case slips(id, known) <= maxSlips:
			near = append(near, known)
		case id != "" && strings.Contains(known, id), sharesWord(id, known):
			alike = append(alike, known)
		}
	}
	slices.SortStableFunc(near, func(a, b string) int { return slips(id, a) - slips(id, b) })
	near = append(near, alike...)
	return near[:min(len(near), maxNear)]
}

func sharesWord(id, known string) bool {
	words := strings.Split(known, "-")
	return slices.ContainsFunc(strings.Split(id, "-"), func(word string) bool {
		return len(word) > maxSlips && slices.ContainsFunc(words, func(other string) bool { return slips(word, other) <= 1 })
	})
}

// slips is the least number of letters to add, drop or change that makes b of a (Levenshtein).
func slips(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
