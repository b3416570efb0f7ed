package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"offramp.dev/offramp/aggregator/audit"
)

// docs/audit.md tells of every field.
func TestDocumented(t *testing.T) {
	document, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	_, orders, _ := strings.Cut(string(document), "## Orders from afar")
	kind := reflect.TypeFor[audit.Record]()
	for i := range kind.NumField() {
		if name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); !strings.Contains(orders, "`"+name+"`") {
			t.Errorf("field %s is not in docs/audit.md", name)
		}
	}
}

func record() audit.Record {
	return audit.Record{Time: time.Unix(1_800_000_000, 0), Event: "order", Caller: "jane\n", Node: "a", Outcome: "done", Message: strings.Repeat("x", 5000)}
}

// One record is one line, whatever is in it.
func TestOneLine(t *testing.T) {
	var to bytes.Buffer
	log := audit.New(&to, slog.New(slog.DiscardHandler))
	log.Write(record())
	log.Write(record())
	lines := strings.Split(strings.TrimSpace(to.String()), "\n")
	var got audit.Record
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil || len(lines) != 2 || got.Caller != "jane\n" || len(got.Message) > 1100 {
		t.Errorf("%d lines, %v: %+v", len(lines), err, got)
	}
}

// Who counts records has them all, in the log or in a file.
func TestAlso(t *testing.T) {
	var counted []string
	for _, log := range []*audit.Log{audit.New(&bytes.Buffer{}, slog.New(slog.DiscardHandler)), audit.ToLog(slog.New(slog.DiscardHandler))} {
		log.Also(func(record audit.Record) { counted = append(counted, record.Event+" "+record.Outcome) })
		log.Write(record())
	}
	if strings.Join(counted, ", ") != "order done, order done" {
		t.Errorf("counted %v", counted)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// What the file does not take is in the log; without a file all is.
func TestToTheLog(t *testing.T) {
	for _, to := range []func(*slog.Logger) *audit.Log{audit.ToLog, func(log *slog.Logger) *audit.Log { return audit.New(full{}, log) }} {
		var said bytes.Buffer
		to(slog.New(slog.NewJSONHandler(&said, nil))).Write(record())
		if !strings.Contains(said.String(), `"audit":{"event":"order","caller":"jane\n"`) {
			t.Errorf("the log says %s", said.String())
		}
	}
}
