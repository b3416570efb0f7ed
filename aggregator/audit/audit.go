// Package audit writes one line of JSON for every order, every accepted finding and every decision about one. docs/audit.md has the fields.
package audit

import (
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Record is one line. Empty fields are left out.
type Record struct {
	Time time.Time `json:"time"`
	// Event is "order" for a call of CleanupService that was let through, "acceptance" for one that changes which findings are
	// accepted, "refused" for a call that was not let through, "unasked" for a result that came while nobody waited.
	Event string `json:"event"`
	// Caller is the proven name of who called, Claimed the name that the caller gives itself, TokenID the id of the token as in
	// the API server's audit.
	Caller  string `json:"caller,omitempty"`
	Claimed string `json:"claimed,omitempty"`
	TokenID string `json:"token_id,omitempty"`
	// Method is the gRPC method, Node the node that it is about.
	Method string `json:"method,omitempty"`
	Node   string `json:"node,omitempty"`
	// Order is the order's id, PlanDigest the digest of the plan to apply, in hex; Target and Backup what else was asked for.
	Order      string `json:"order,omitempty"`
	PlanDigest string `json:"plan_digest,omitempty"`
	Target     string `json:"target,omitempty"`
	Backup     string `json:"backup,omitempty"`
	// Acceptance is the id of what was accepted or withdrawn, Finding which finding, Selector of which nodes, Reason why and
	// Until to when, in RFC 3339.
	Acceptance string `json:"acceptance,omitempty"`
	Finding    string `json:"finding,omitempty"`
	Selector   string `json:"selector,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Until      string `json:"until,omitempty"`
	// Outcome is "done" of an acceptance, of an order the node's answer ("done", "refused", "failed", "interrupted"), or the status of a call that ended without one
	// ("UNAVAILABLE", "CANCELLED", …).
	Outcome string `json:"outcome"`
	// Message says more, for people.
	Message string `json:"message,omitempty"`
	// Seconds is how long the call took.
	Seconds float64 `json:"seconds"`
}

// LogValue has records in the program's own log look like the others there.
func (r Record) LogValue() slog.Value {
	attributes := []slog.Attr{slog.String("event", r.Event)}
	for _, field := range [][2]string{
		{"caller", r.Caller}, {"claimed", r.Claimed}, {"token_id", r.TokenID}, {"method", r.Method}, {"node", r.Node}, {"order", r.Order},
		{"plan_digest", r.PlanDigest}, {"target", r.Target}, {"backup", r.Backup},
		{"acceptance", r.Acceptance}, {"finding", r.Finding}, {"selector", r.Selector}, {"reason", r.Reason}, {"until", r.Until}, {"outcome", r.Outcome}, {"message", r.Message},
	} {
		if field[1] != "" {
			attributes = append(attributes, slog.String(field[0], field[1]))
		}
	}
	return slog.GroupValue(append(attributes, slog.Float64("seconds", r.Seconds))...)
}

// Log writes records. Its methods may be called from any goroutine.
type Log struct {
	mu   sync.Mutex
	to   io.Writer
	told *slog.Logger
	also func(Record)
}

// New writes to a file, each record in one write. What cannot be written is told to the log, record and all.
func New(to io.Writer, log *slog.Logger) *Log { return &Log{to: to, told: log} }

// ToLog makes records of the program's own log out of audit records.
func ToLog(log *slog.Logger) *Log { return &Log{told: log} }

// Also has every record handed to somebody else, too. It is to be called before the first Write.
func (l *Log) Also(also func(Record)) { l.also = also }

// Write writes a record.
func (l *Log) Write(record Record) {
	record.Time = record.Time.UTC()
	record.Message = short(record.Message)
	if l.also != nil {
		l.also(record)
	}
	line, err := json.Marshal(record)
	if err == nil && l.to != nil {
		l.mu.Lock()
		_, err = l.to.Write(append(line, '\n'))
		l.mu.Unlock()
	}
	switch {
	case err != nil:
		l.told.Error("an audit record cannot be written", "error", err, "audit", record)
	case l.to == nil:
		l.told.Info("audit", "audit", record)
	}
}

// maxMessage bounds what is for people, in bytes.
const maxMessage = 1024

func short(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return text[:maxMessage] + "…"
}
