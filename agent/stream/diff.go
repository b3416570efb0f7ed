package stream

import (
	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// maxReport is where a report is split. It leaves room for the frame of a message below the 1 MiB of agent.proto.
const maxReport = 1<<20 - 64<<10

// sent remembers which sections the aggregator has.
type sent map[offrampv1.SectionKind]facts.Digest

// known reads what a Welcome names. A digest of a wrong length is nothing that we could have sent.
func known(welcome *offrampv1.Welcome) sent {
	has := sent{}
	for _, section := range welcome.GetKnown() {
		digest, _ := facts.ParseDigest(section.GetDigest())
		has[section.GetKind()] = digest
	}
	return has
}

// reports returns what the aggregator lacks of a snapshot, in as few messages as the limit allows, and notes it as sent.
func (has sent) reports(taken *snapshot) []*offrampv1.Report {
	var reports []*offrampv1.Report
	size := maxReport
	for _, one := range has.lacking(taken) {
		section := &offrampv1.SectionReport{Kind: one.kind, Stable: one.encoded, Volatile: one.volatile}
		takes := proto.Size(section) + 16
		if size+takes > maxReport {
			reports, size = append(reports, &offrampv1.Report{}), 0
		}
		last := reports[len(reports)-1]
		last.Sections = append(last.Sections, section)
		size += takes
		has[one.kind] = one.digest
	}
	return reports
}

// lacking lists the sections with another digest. What the aggregator has and this agent does not read (it was another
// version before) is taken back, so that nobody believes it for ever.
func (has sent) lacking(taken *snapshot) []section {
	var lacking []section
	read := map[offrampv1.SectionKind]bool{}
	for _, one := range taken.sections {
		read[one.kind] = true
		if digest, reported := has[one.kind]; !reported || digest != one.digest {
			lacking = append(lacking, one)
		}
	}
	for _, kind := range facts.Kinds() {
		digest, reported := has[kind]
		if encoded, none := unreadable("this agent does not read it"); reported && !read[kind] && digest != none {
			lacking = append(lacking, section{kind: kind, encoded: encoded, digest: none})
		}
	}
	return lacking
}

// heartbeat carries what moves all the time, and nothing else.
func heartbeat(taken *snapshot) *offrampv1.Heartbeat {
	beat := &offrampv1.Heartbeat{}
	for _, one := range taken.sections {
		if one.volatile != nil {
			beat.Sections = append(beat.Sections, &offrampv1.SectionHeartbeat{Kind: one.kind, Volatile: one.volatile})
		}
	}
	return beat
}
