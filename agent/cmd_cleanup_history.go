package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"offramp.dev/offramp/agent/cleanup"
	"offramp.dev/offramp/internal/program"
	"offramp.dev/offramp/internal/render"
	"offramp.dev/offramp/internal/settings"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// kept is where a command looks that asks what clean-ups left on the node's disk.
type kept struct {
	stateDir, output string
}

func (k *kept) addFlags(cmd *cobra.Command) {
	stateDirFlag(cmd, &k.stateDir)
	settings.OutputFlag(cmd, &k.output, "text", "json", "yaml")
}

// runEntry is a run of the journal as scripts get it.
type runEntry struct {
	ID          string         `json:"id"`
	What        string         `json:"what"`
	Target      string         `json:"target,omitempty"`
	Began       time.Time      `json:"began"`
	Ended       *time.Time     `json:"ended,omitempty"`
	Interrupted bool           `json:"interrupted"`
	Backup      bool           `json:"backup"`
	Operations  map[string]int `json:"operations"`
	Notes       []string       `json:"notes,omitempty"`
	Error       string         `json:"error,omitempty"`
}

func journalCommand(*options) *cobra.Command {
	k := &kept{}
	cmd := &cobra.Command{
		Use:   "journal",
		Short: "Tell what clean-ups and restores did on this node",
		Long: `Print every clean-up and restore that was begun on this node, oldest first: when,
how its operations ended, whether there is a backup, and whether it was
interrupted. What was about to be done at that moment is "unknown": a new plan
looks at what is really there, and finishes the rest.`,
		Example: `  offramp-agent cleanup journal
  offramp-agent cleanup journal --state-dir /var/lib/offramp -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return k.journal(cmd.OutOrStdout()) },
	}
	k.addFlags(cmd)
	return cmd
}

func (k *kept) journal(w io.Writer) error {
	runs, err := cleanup.ReadJournal(k.stateDir)
	if err != nil {
		return err
	}
	entries := make([]runEntry, 0, len(runs))
	for _, run := range runs {
		entries = append(entries, entryOf(run))
	}
	return k.print(w, entries, func() error {
		if len(entries) == 0 {
			return writeLine(w, "No clean-up was begun on this node, as far as %s tells.", k.stateDir)
		}
		for _, entry := range entries {
			if err := entry.write(w); err != nil {
				return err
			}
		}
		return nil
	})
}

func entryOf(run *cleanup.Run) runEntry {
	entry := runEntry{
		ID: run.ID, What: run.What, Began: run.BeganAt, Interrupted: run.Interrupted(), Backup: run.BackupComplete,
		Operations: map[string]int{}, Notes: run.Notes, Error: run.Error,
	}
	if run.Plan != nil {
		entry.Target = render.Word(run.Plan.GetTarget())
	}
	if !run.EndedAt.IsZero() {
		entry.Ended = &run.EndedAt
	}
	for _, outcome := range run.Outcomes {
		entry.Operations[outcomeWord(outcome)]++
	}
	return entry
}

// outcomeWord is "not-tried" for the zero value: nothing was written of the operation.
func outcomeWord(outcome offrampv1.OperationOutcome) string {
	if outcome == offrampv1.OperationOutcome_OPERATION_OUTCOME_UNSPECIFIED {
		outcome = offrampv1.OperationOutcome_OPERATION_OUTCOME_NOT_TRIED
	}
	return render.Word(outcome)
}

func (e *runEntry) write(w io.Writer) error {
	ended := "interrupted"
	if e.Ended != nil {
		ended = "ended " + e.Ended.UTC().Format(time.DateTime) + "Z"
	}
	counts := make([]string, 0, len(e.Operations))
	for word, count := range e.Operations {
		counts = append(counts, fmt.Sprintf("%s %d", word, count))
	}
	slices.Sort(counts)
	lines := []string{
		fmt.Sprintf("%s %s %s: began %sZ, %s", render.Clean(e.ID), render.Clean(e.What), render.Clean(e.Target), e.Began.UTC().Format(time.DateTime), ended),
	}
	if len(counts) > 0 {
		lines = append(lines, "  operations: "+strings.Join(counts, ", "))
	}
	if e.Backup {
		lines = append(lines, "  backup: "+render.Clean(e.ID))
	}
	for _, note := range e.Notes {
		lines = append(lines, "  "+render.Clean(note))
	}
	if e.Error != "" {
		lines = append(lines, "  error: "+render.Clean(e.Error))
	}
	return writeLine(w, "%s", strings.Join(lines, "\n"))
}

func backupsCommand(*options) *cobra.Command {
	k := &kept{}
	cmd := &cobra.Command{
		Use:   "backups",
		Short: "List the backups that clean-ups made on this node",
		Long: `Print the complete backups in --state-dir, oldest first, each with its files. They
are in the formats of the native tools, so that people can bring back single
things by hand; "restore" brings back all that may be. A backup is of one boot:
after a reboot there is nothing to undo.`,
		Example: `  offramp-agent cleanup backups
  offramp-agent cleanup backups -o json`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return k.backups(cmd.OutOrStdout()) },
	}
	k.addFlags(cmd)
	return cmd
}

func (k *kept) backups(w io.Writer) error {
	manifests, err := cleanup.Backups(k.stateDir)
	if err != nil {
		return err
	}
	return k.print(w, manifests, func() error {
		if len(manifests) == 0 {
			return writeLine(w, "There is no backup in %s.", k.stateDir)
		}
		for _, manifest := range manifests {
			if err := writeBackup(w, manifest); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeBackup(w io.Writer, manifest *cleanup.Manifest) error {
	if manifest.MadeAt.IsZero() {
		return writeLine(w, "%s: its manifest cannot be read", render.Clean(manifest.ID))
	}
	lines := []string{fmt.Sprintf("%s: made %sZ, target %s", render.Clean(manifest.ID), manifest.MadeAt.UTC().Format(time.DateTime),
		render.Clean(strings.ToLower(strings.TrimPrefix(manifest.Target, "TARGET_"))))}
	for name, file := range manifest.Files {
		line := fmt.Sprintf("  %s, %d bytes", render.Clean(name), file.Bytes)
		if file.Restore != "" {
			line += ", by hand: " + render.Clean(file.Restore)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines[1:])
	return writeLine(w, "%s", strings.Join(lines, "\n"))
}

// print writes a document as the output flag says.
func (k *kept) print(w io.Writer, document any, text func() error) error {
	switch k.output {
	case "json":
		encoded, err := json.MarshalIndent(document, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding JSON: %w", err)
		}
		return writeLine(w, "%s", encoded)
	case "yaml":
		encoded, err := yaml.Marshal(document)
		if err != nil {
			return fmt.Errorf("encoding YAML: %w", err)
		}
		return writeLine(w, "%s", strings.TrimSuffix(string(encoded), "\n"))
	default:
		return text()
	}
}

func writeLine(w io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(w, format+"\n", args...); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
