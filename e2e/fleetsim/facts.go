package fleetsim

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// reports are what the real agent reported of real node states; see record.
//
//go:embed testdata
var reports embed.FS

// The name and the addresses of the node that was recorded: what differs from node to node.
const (
	recordedNode     = "node-0"
	recordedAddress  = "10.0.2.15"
	recordedAddress6 = "fec0::15"
	recordedSLAAC    = "fec0::5054:ff:fe12:3456"
)

// Templates are the recorded reports, as text in which the node's name and address can be replaced.
type Templates struct{ texts []string }

// LoadTemplates reads the recorded reports.
func LoadTemplates() (*Templates, error) {
	t := &Templates{}
	files, err := fs.ReadDir(reports, "testdata")
	if err != nil {
		return nil, fmt.Errorf("read the recorded reports: %w", err)
	}
	for _, file := range files {
		text, err := reports.ReadFile(path.Join("testdata", file.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the recorded reports: %w", err)
		}
		t.texts = append(t.texts, string(text))
	}
	return t, nil
}

// State is what makes a node's report differ from that of another node in the same state.
type State struct {
	// Name and Address of the node; Number tells it from all others.
	Name, Address string
	Number        int
	// Version counts the changes since the start of a run.
	Version int
}

// Facts are what the node reports: one of the recorded states, with its own name, addresses, processes and memory.
func (t *Templates) Facts(of State, now time.Time) (*offrampv1.NodeFacts, error) {
	text := strings.NewReplacer(
		`"`+recordedNode+`"`, `"`+of.Name+`"`, recordedAddress, of.Address, recordedAddress6, fmt.Sprintf("fec0::%x:15", of.Number),
		recordedSLAAC, fmt.Sprintf("fec0::5054:ff:%x:%x", of.Number>>16, of.Number&0xffff),
	).Replace(t.texts[of.Number%len(t.texts)])
	facts := &offrampv1.NodeFacts{}
	if err := protojson.Unmarshal([]byte(text), facts); err != nil {
		return nil, fmt.Errorf("make a report of a recorded one: %w", err)
	}
	for _, section := range facts.GetSections() {
		vary(section.GetStable(), of)
		if moving := section.GetVolatile(); moving != nil {
			moving.ReadAt, moving.ReadTook = timestamppb.New(now), durationpb.New(time.Duration(1+of.Number%7)*time.Millisecond)
		}
	}
	return facts, nil
}

// vary gives a section what no two nodes have in common, and what changed since the start.
func vary(stable *offrampv1.SectionStable, of State) {
	if kernel := stable.GetKernel(); kernel != nil {
		kernel.BootId = fmt.Sprintf("52347ac5-f897-4954-9924-%012x", of.Number)
	}
	if proxy := stable.GetKubeProxy(); proxy != nil {
		for _, process := range proxy.GetProcesses() {
			process.Pid = int32(1000 + of.Number%30000)
		}
	}
	shift := time.Duration(of.Number) * time.Second
	if history := stable.GetHistory(); history != nil {
		history.Since = later(history.GetSince(), shift)
		for _, entry := range history.GetEntries() {
			entry.At = later(entry.GetAt(), shift)
		}
		for _, change := range history.GetModeChanges() {
			change.At = later(change.GetAt(), shift)
		}
	}
	if servers := stable.GetIpvs(); servers != nil {
		servers.VirtualServers += uint64(of.Version)
	}
	if ipsets := stable.GetIpsets(); ipsets != nil {
		ipsets.Sets += uint64(of.Version)
	}
}

func later(at *timestamppb.Timestamp, by time.Duration) *timestamppb.Timestamp {
	if at == nil {
		return nil
	}
	return timestamppb.New(at.AsTime().Add(by))
}
