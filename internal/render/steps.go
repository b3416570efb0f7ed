package render

import (
	"io"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// Steps writes what to do next, in order, with the commands. Commands are never wrapped: they are there to be copied.
func Steps(w io.Writer, fleet *offrampv1.GetReadinessResponse) error {
	var p page
	p.line(0, "Target %s, as of %s", Word(fleet.GetTarget()), moment(fleet.GetAt()))
	p.missing(fleet)
	p.unread(fleet.GetUnread())
	if len(fleet.GetSteps()) == 0 {
		p.line(0, "Nothing is left to do.")
	}
	for i, step := range fleet.GetSteps() {
		p.blank()
		p.step(uint64(i+1), step)
	}
	return p.flush(w)
}

// step writes one step under its number.
func (p *page) step(place uint64, step *offrampv1.Step) {
	waits := ""
	if step.GetWaits() {
		waits = " (waits for the steps before it)"
	}
	p.line(0, "%s. %s%s", number(place), strong.on(Clean(step.GetTitle())), waits)
	p.stepBody(4, step)
}

func (p *page) stepBody(indent int, step *offrampv1.Step) {
	p.wrap(indent, indent, Clean(step.GetWhy()))
	if step.GetNodes() > 0 {
		p.line(indent, "on %s", samples(step.GetNodes(), step.GetNodeSamples()))
	}
	for _, command := range step.GetCommands() {
		p.text.WriteString(strings.Repeat(" ", indent) + "$ " + Clean(command) + "\n")
	}
}

// nextStep writes the first step, and how to see the others.
func (p *page) nextStep(steps []*offrampv1.Step) {
	if len(steps) == 0 {
		return
	}
	p.blank()
	p.line(0, "Next step: %s", strong.on(Clean(steps[0].GetTitle())))
	p.stepBody(4, steps[0])
	if rest := len(steps) - 1; rest > 0 {
		p.line(4, "then %s: kubectl offramp next", count(uint64(rest), "more step"))
	}
}

// upgrade writes the answer about a version.
func (p *page) upgrade(answer *offrampv1.UpgradeAnswer) {
	if answer == nil {
		return
	}
	p.line(0, "Kubernetes %s: %s", orUnknown(answer.GetVersion()), verdictWord(answer.GetVerdict()))
	for _, reason := range answer.GetReasons() {
		p.line(2, "- %s", Clean(reason))
	}
	p.milestones(2, answer.GetMilestones())
}

// Timeline writes when what happens to ipvs mode.
func Timeline(w io.Writer, milestones []*offrampv1.Milestone) error {
	var p page
	p.milestones(0, milestones)
	return p.flush(w)
}

func (p *page) milestones(indent int, milestones []*offrampv1.Milestone) {
	for _, milestone := range milestones {
		planned := ""
		if milestone.GetPlanned() {
			planned = " (planned)"
		}
		p.line(indent, "%s%s  %s [%s]", Clean(milestone.GetVersion()), planned, Clean(milestone.GetWhat()), Clean(milestone.GetSource()))
	}
}
