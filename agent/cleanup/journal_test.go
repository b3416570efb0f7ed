package cleanup

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func threeSets() *offrampv1.Plan {
	plan := &offrampv1.Plan{Node: "node-0", BootId: "boot"}
	for _, name := range []string{"KUBE-CLUSTER-IP", "KUBE-LOOP-BACK", "KUBE-IPVS-IPS"} {
		plan.Operations = append(plan.Operations, &offrampv1.Operation{
			Stage: offrampv1.Stage_STAGE_IPSETS, Change: &offrampv1.Operation_DestroySet{DestroySet: &offrampv1.DestroySet{Name: name}},
		})
	}
	return plan
}

// writeJournal writes records as a run does, and returns the file.
func writeJournal(t *testing.T, dir, id string, records ...Record) string {
	t.Helper()
	j, err := openJournal(dir, id, func() time.Time { return time.Unix(1_800_000_000, 0) })
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range records {
		if err := j.add(&record); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, journalFolder, id+journalSuffix)
}

const oneRun = "20270115T080000Z-00000001"

func begun(t *testing.T) Record {
	t.Helper()
	text, err := protojson.Marshal(threeSets())
	if err != nil {
		t.Fatal(err)
	}
	return Record{Kind: RecordBegan, What: "apply", Boot: "boot", Plan: text}
}

// Killed after any record, the journal tells what is known: nothing that was only intended counts as done.
func TestJournalTellsWhatHappened(t *testing.T) {
	all := []Record{
		begun(t),
		{Kind: RecordBackup, Text: oneRun},
		{Kind: RecordIntent, First: 0, Count: 2},
		{Kind: RecordOutcome, First: 0, Count: 2, Outcomes: []string{"done"}},
		{Kind: RecordIntent, First: 2, Count: 1},
		{Kind: RecordOutcome, First: 2, Count: 1, Outcomes: []string{"remains"}},
		{Kind: RecordNote, Text: "a note"},
		{Kind: RecordEnded, Text: "1 operations remain"},
	}
	type told struct {
		Outcomes    []offrampv1.OperationOutcome
		Backup      bool
		Interrupted bool
		Error       string
	}
	three := func(a, b, c offrampv1.OperationOutcome) []offrampv1.OperationOutcome {
		return []offrampv1.OperationOutcome{a, b, c}
	}
	want := []told{
		{nil, false, true, ""},
		{three(notTried, notTried, notTried), false, true, ""},
		{three(notTried, notTried, notTried), true, true, ""},
		{three(unknown, unknown, notTried), true, true, ""},
		{three(done, done, notTried), true, true, ""},
		{three(done, done, unknown), true, true, ""},
		{three(done, done, remains), true, true, ""},
		{three(done, done, remains), true, true, ""},
		{three(done, done, remains), true, false, "1 operations remain"},
	}
	for length := range len(all) + 1 {
		dir := t.TempDir()
		path := writeJournal(t, dir, oneRun, all[:length]...)
		for _, torn := range []string{"", `{"time":"2027-01-15T08:00:00Z","kind":"outco`} {
			appendText(t, path, torn)
			runs, err := ReadJournal(dir)
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d records: %d runs, error %v", length, len(runs), err)
			}
			got := told{runs[0].Outcomes, runs[0].BackupComplete, runs[0].Interrupted(), runs[0].Error}
			if diff := cmp.Diff(want[length], got); diff != "" {
				t.Errorf("%d records, torn %q: by hand (-), read (+):\n%s", length, torn, diff)
			}
		}
	}
}

func appendText(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// An interrupted run is told once, and then has an end, even after a line that was cut short.
func TestInterruptedRunIsClosed(t *testing.T) {
	dir := t.TempDir()
	path := writeJournal(t, dir, oneRun, begun(t), Record{Kind: RecordIntent, Count: 3})
	appendText(t, path, `{"time":"2027-0`)
	open, err := Interrupted(dir)
	if err != nil || len(open) != 1 {
		t.Fatalf("%d interrupted runs, error %v", len(open), err)
	}
	if want := "0 of 3 operations done, 3 not known, 0 not tried, before its backup was complete"; open[0].Summary() != want {
		t.Errorf("%q, want %q", open[0].Summary(), want)
	}
	if err := closeInterrupted(dir, time.Unix(1_800_000_100, 0)); err != nil {
		t.Fatal(err)
	}
	runs, err := ReadJournal(dir)
	if err != nil || runs[0].Interrupted() || !strings.HasPrefix(runs[0].Error, "interrupted: 0 of 3") {
		t.Errorf("after it was closed: %+v, error %v", runs[0], err)
	}
	if runs[0].Outcomes[0] != unknown {
		t.Errorf("its outcome is %v, want unknown still", runs[0].Outcomes[0])
	}
}

func TestDamagedJournalSaysSo(t *testing.T) {
	dir := t.TempDir()
	path := writeJournal(t, dir, oneRun, begun(t))
	appendText(t, path, "{]\n")
	appendText(t, path, `{"time":"2027-01-15T08:00:00Z","kind":"outcome","first":2,"count":9,"outcomes":["done"]}`+"\n{}\n")
	runs, err := ReadJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(runs[0].Error, "damaged") {
		t.Errorf("error %q, want that it is damaged", runs[0].Error)
	}
	if diff := cmp.Diff([]offrampv1.OperationOutcome{notTried, notTried, notTried}, runs[0].Outcomes); diff != "" {
		t.Errorf("an outcome of what the plan does not have was believed:\n%s", diff)
	}
}

func TestRunIDs(t *testing.T) {
	id, err := newRunID(time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC), rand.Read)
	if err != nil || !isRunID(id) || !strings.HasPrefix(id, "20270115T080000Z-") {
		t.Errorf("%q, error %v", id, err)
	}
	for _, name := range []string{"", "lock", "..", "20270115T080000Z", "20270115T080000Z-0000000g", "20271315T080000Z-00000001", "20270115T080000Z-00000001.partial", "20270115T080000Z-00000001/../x"} {
		if isRunID(name) {
			t.Errorf("%q passes for the id of a run", name)
		}
	}
}

func FuzzParseRun(f *testing.F) {
	f.Add([]byte(`{"kind":"began"}` + "\n" + `{"kind":"outcome","count":-1}` + "\n"))
	f.Add([]byte(`{"kind":"began","plan":{"operations":[{}]}}` + "\n" + `{"kind":"intent","first":9223372036854775807,"count":1}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		run := parseRun(oneRun, content)
		if run.Plan != nil && len(run.Outcomes) != len(run.Plan.GetOperations()) {
			t.Errorf("%d outcomes of %d operations", len(run.Outcomes), len(run.Plan.GetOperations()))
		}
	})
}
