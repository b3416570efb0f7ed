package probe

import (
	"fmt"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const (
	works         = offrampv1.ProbeVerdict_PROBE_VERDICT_WORKS
	failedBefore  = offrampv1.ProbeVerdict_PROBE_VERDICT_FAILED_BEFORE
	broken        = offrampv1.ProbeVerdict_PROBE_VERDICT_BROKEN
	endpointsFail = offrampv1.ProbeVerdict_PROBE_VERDICT_ENDPOINTS_FAIL
	notCompared   = offrampv1.ProbeVerdict_PROBE_VERDICT_NOT_COMPARED
	fails         = offrampv1.ProbeVerdict_PROBE_VERDICT_FAILS
)

// Compare says what a clean-up did to connections. after are the attempts at those that worked before, in the same order; nil
// where nothing was tried again.
func Compare(before, after []Attempt) []*offrampv1.Probe {
	probes := make([]*offrampv1.Probe, 0, len(before))
	for i := range before {
		one := said(&before[i])
		switch {
		case before[i].Failed != nil:
			one.BeforeError, one.AfterError, one.Verdict = one.GetAfterError(), "", failedBefore
		case len(after) > 0:
			one.AfterError, one.AnsweringEndpoints = errorText(after[0].Failed), addresses(&after[0])
			one.Verdict = judge(&after[0], broken)
			after = after[1:]
		}
		probes = append(probes, one)
	}
	return probes
}

// Now says how connections are, where nothing is known of before.
func Now(attempts []Attempt) []*offrampv1.Probe {
	probes := make([]*offrampv1.Probe, 0, len(attempts))
	for i := range attempts {
		one := said(&attempts[i])
		one.Verdict = judge(&attempts[i], fails)
		probes = append(probes, one)
	}
	return probes
}

// judge says what an attempt tells; whileAnswering is what it is called that the Service fails and an endpoint answers.
func judge(attempt *Attempt, whileAnswering offrampv1.ProbeVerdict) offrampv1.ProbeVerdict {
	switch {
	case attempt.Failed == nil:
		return works
	case len(attempt.Answering) > 0:
		return whileAnswering
	case len(attempt.Endpoints) == 0:
		return notCompared
	default:
		return endpointsFail
	}
}

func said(attempt *Attempt) *offrampv1.Probe {
	return &offrampv1.Probe{
		Name: attempt.Name, Protocol: attempt.Protocol, Service: attempt.Service.String(),
		AfterError: errorText(attempt.Failed), AnsweringEndpoints: addresses(attempt), Verdict: works,
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func addresses(attempt *Attempt) []string {
	words := make([]string, 0, len(attempt.Answering))
	for _, endpoint := range attempt.Answering {
		words = append(words, endpoint.String())
	}
	return words
}

// Broken are the probes that worked before and fail now while an endpoint answers.
func Broken(probes []*offrampv1.Probe) []*offrampv1.Probe { return withVerdict(probes, broken) }

// Failing are the probes that say that a Service's path does not work, or that it may not.
func Failing(probes []*offrampv1.Probe) []*offrampv1.Probe {
	return withVerdict(probes, broken, fails, notCompared)
}

func withVerdict(probes []*offrampv1.Probe, verdicts ...offrampv1.ProbeVerdict) []*offrampv1.Probe {
	var found []*offrampv1.Probe
	for _, probe := range probes {
		if slices.Contains(verdicts, probe.GetVerdict()) {
			found = append(found, probe)
		}
	}
	return found
}

// Sentence says one probe in a line for people.
func Sentence(probe *offrampv1.Probe) string {
	head := fmt.Sprintf("%s %s %s", probe.GetName(), probe.GetProtocol(), probe.GetService())
	switch probe.GetVerdict() {
	case works:
		return head + ": answers"
	case failedBefore:
		return head + ": failed before anything was changed: " + probe.GetBeforeError()
	case broken:
		return fmt.Sprintf("%s: BROKEN: answered before and fails now (%s), while %s answers",
			head, probe.GetAfterError(), strings.Join(probe.GetAnsweringEndpoints(), ", "))
	case fails:
		return fmt.Sprintf("%s: FAILS (%s), while %s answers", head, probe.GetAfterError(), strings.Join(probe.GetAnsweringEndpoints(), ", "))
	case endpointsFail:
		return fmt.Sprintf("%s: fails (%s), and so do its endpoints", head, probe.GetAfterError())
	default:
		return fmt.Sprintf("%s: fails (%s), and no endpoint is known that could be asked", head, probe.GetAfterError())
	}
}
