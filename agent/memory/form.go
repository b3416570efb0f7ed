package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"offramp.dev/offramp/agent/collect"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// formVersion is the form of the file. Fields may be added to it.
const formVersion = 1

var errGarbled = errors.New("the memory is garbled")

// form is the file.
type form struct {
	Form int    `json:"form"`
	Node string `json:"node"`
	// Mode is the number of a ProxyMode.
	Mode         int32     `json:"mode,omitempty"`
	ProxyVersion string    `json:"kube_proxy_version,omitempty"`
	BootID       string    `json:"boot_id,omitempty"`
	NoneSeen     time.Time `json:"none_seen,omitzero"`
	// ExcludeCIDRs is ipvs.excludeCIDRs as last seen.
	ExcludeCIDRs []string `json:"ipvs_exclude_cidrs,omitempty"`
	// History is the rest, as JSON of offramp.v1.HistoryFacts.
	History json.RawMessage `json:"history"`
}

func encode(node string, kept *collect.Kept) ([]byte, error) {
	history := &offrampv1.HistoryFacts{
		Since: timestamppb.New(kept.Since), ModeChanges: kept.Changes, Entries: kept.Entries,
	}
	if !kept.NoneSince.IsZero() {
		history.NoKubeProxySince = timestamppb.New(kept.NoneSince)
	}
	told, err := protojson.Marshal(history)
	if err != nil {
		return nil, fmt.Errorf("encode the memory: %w", err)
	}
	text, err := json.Marshal(form{
		Form: formVersion, Node: node, Mode: int32(kept.Mode), ProxyVersion: kept.ProxyVersion, BootID: kept.BootID,
		NoneSeen: kept.NoneSeen, ExcludeCIDRs: kept.ExcludeCIDRs, History: told,
	})
	if err != nil {
		return nil, fmt.Errorf("encode the memory: %w", err)
	}
	return append(text, '\n'), nil
}

// decode takes what encode made, now or in another version of that form. Anything else is errGarbled.
func decode(node string, text []byte) (*collect.Kept, error) {
	told, err := parse(text)
	if err != nil {
		return nil, err
	}
	if told.Node != node {
		return nil, fmt.Errorf("%w: it is of node %.100q, not %q", errGarbled, told.Node, node)
	}
	history := &offrampv1.HistoryFacts{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(told.History, history); err != nil {
		return nil, fmt.Errorf("%w: %w", errGarbled, err)
	}
	if !history.GetSince().IsValid() {
		return nil, fmt.Errorf("%w: it does not say since when", errGarbled)
	}
	kept := &collect.Kept{
		Since: history.GetSince().AsTime(), ProxyVersion: told.ProxyVersion, BootID: told.BootID, NoneSeen: told.NoneSeen,
		Changes: history.GetModeChanges(), Entries: history.GetEntries(), ExcludeCIDRs: told.ExcludeCIDRs,
	}
	if _, known := offrampv1.ProxyMode_name[told.Mode]; known {
		kept.Mode = offrampv1.ProxyMode(told.Mode)
	}
	if since := history.GetNoKubeProxySince(); since != nil && !told.NoneSeen.IsZero() {
		kept.NoneSince = since.AsTime()
	}
	if err := checkTimes(kept); err != nil {
		return nil, err
	}
	return kept, nil
}

// parse takes the file apart as far as it is not HistoryFacts.
func parse(text []byte) (*form, error) {
	told := &form{}
	if err := json.Unmarshal(text, told); err != nil {
		return nil, fmt.Errorf("%w: %w", errGarbled, err)
	}
	if told.Form != formVersion {
		return nil, fmt.Errorf("%w: its form is %d, not %d", errGarbled, told.Form, formVersion)
	}
	for _, cidr := range told.ExcludeCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return nil, fmt.Errorf("%w: an excluded CIDR: %w", errGarbled, err)
		}
	}
	return told, nil
}

func checkTimes(kept *collect.Kept) error {
	for _, change := range kept.Changes {
		if !change.GetAt().IsValid() {
			return fmt.Errorf("%w: a change of the mode has no time", errGarbled)
		}
	}
	for _, entry := range kept.Entries {
		if !entry.GetAt().IsValid() {
			return fmt.Errorf("%w: an entry has no time", errGarbled)
		}
	}
	return nil
}
