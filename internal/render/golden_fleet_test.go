package render

import (
	"errors"
	"io"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// fleetGoldens are the answers about many nodes.
func fleetGoldens() map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{
		"readiness-alone.txt":   func(w io.Writer) error { return Readiness(w, alone()) },
		"readiness-crowded.txt": func(w io.Writer) error { return Readiness(w, crowded()) },
		"ready-for.txt":         func(w io.Writer) error { return Ready(w, asked140(), "blocked: not for 1.40") },
		"steps.txt":             func(w io.Writer) error { return Steps(w, sampleFleet()) },
		"steps-none.txt":        func(w io.Writer) error { return Steps(w, alone()) },
		"findings.txt":          func(w io.Writer) error { return Findings(w, sampleFleet(), false) },
		"findings-wide.txt":     func(w io.Writer) error { return Findings(w, sampleFleet(), true) },
		"findings-none.txt":     func(w io.Writer) error { return Findings(w, alone(), false) },
		"findings.csv":          func(w io.Writer) error { return FindingsCSV(w, sampleFleet()) },
		"leftovers.txt":         func(w io.Writer) error { return Leftovers(w, sampleNodes()[1:], sampleFleet()) },
		"leftovers-none.txt":    func(w io.Writer) error { return Leftovers(w, nil, alone()) },
		"nodes.csv":             func(w io.Writer) error { return NodesCSV(w, sampleNodes()) },
		"changes.txt":           func(w io.Writer) error { return Changes(w, sampleChanges()) },
		"changes-none.txt":      func(w io.Writer) error { return Changes(w, nil) },
		"changes.csv":           func(w io.Writer) error { return ChangesCSV(w, sampleChanges().GetChanges()) },
		"acceptances.txt":       func(w io.Writer) error { return Acceptances(w, sampleAcceptances(), noon) },
		"acceptances-none.txt":  func(w io.Writer) error { return Acceptances(w, nil, noon) },
		"timeline.txt":          func(w io.Writer) error { return Timeline(w, asked140().GetUpgrade().GetMilestones()) },
		"service.txt":           func(w io.Writer) error { return wholeService(w, false) },
		"service-wide.txt":      func(w io.Writer) error { return wholeService(w, true) },
		"service-json.txt": func(w io.Writer) error {
			return JSONLine(w, &offrampv1.GetServiceResponse{Event: &offrampv1.GetServiceResponse_Node{Node: sampleAnswers()[0]}})
		},
		"screen.ansi": func(w io.Writer) error { return Readiness(Screen{w}, sampleFleet()) },
	}
}

func wholeService(w io.Writer, wide bool) error {
	failed := ServiceHead(w, sampleService())
	for _, node := range sampleAnswers() {
		failed = errors.Join(failed, NodeService(w, node, wide))
	}
	end := &offrampv1.ServiceSummary{Asked: 5, Answered: 3, SilentSamples: []string{"worker-1", "worker-4"}}
	return errors.Join(failed, Balance(w, sampleAnswers()), ServiceEnd(w, end))
}
