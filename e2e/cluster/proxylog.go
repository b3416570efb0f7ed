package cluster

import (
	"regexp"
	"strings"
)

// ErrorLine is a line of kube-proxy's log that reports an error.
type ErrorLine struct {
	// File is the source file that wrote it, without its line number.
	File string
	// Text is what it says, with the lines that follow it and belong to it.
	Text string
}

// errorLine is klog's head of an error or fatal line: E1130 17:20:00.000000   123 file.go:12] text. What follows
// indented belongs to it.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} [0-9:.]+ +\d+ ([^ ]+?):\d+\] (.*(?:\n[\t ].*)*)$`)

// ErrorLines are the lines of a kube-proxy's log that report an error.
func ErrorLines(log string) []ErrorLine {
	var found []ErrorLine
	for _, match := range errorLine.FindAllStringSubmatch(log, -1) {
		found = append(found, ErrorLine{File: match[1], Text: match[2]})
	}
	return found
}

// explanation says why a kube-proxy that works logs an error.
type explanation struct {
	file  string
	start string // of the text, without the lines of an error of several
	why   string
}

// explanations are all errors that kube-proxy 1.34 and 1.37 were seen to log on a node that is as it should be.
func explanations() []explanation {
	return []explanation{
		{"server.go", `"Kube-proxy configuration may be incomplete or incorrect" err="nodePortAddresses is unset`, "advice about a default"},
		{"server.go", `"Kube-proxy configuration may be incomplete or incorrect" err="cluster appears to be dual-stack but nodePortAddresses`, "advice about a default"},
		{"server_linux.go", `"The ipvs proxier `, "the warning of ipvs mode's end"},
		{"proxier.go", `"Failed to list existing sets" err="receiveAckAware: netlink receive: no such file or directory"`, "nftables mode asks for sets before it has made its table"},
		{"metrics_linux.go", `"failed to collect nfacct counter" err="object not found"`, "metrics are asked for before the first sync makes the objects"},
		{"service_health.go", `"Failed to start healthcheck" err="listen tcp 0.0.0.0:30200: bind: address already in use"`, "in 1.34 both families listen at 0.0.0.0, and the second finds it taken"},
		{"metrics.go", `"failed to collect nfacct counter" err="object not found"`, "the same in 1.34"},
		{"cleanup.go", `"Failed to execute iptables-restore"`, "the iptables cleaner cannot delete chains that ipvs mode's rules refer to"},
		{"proxier.go", `"Failed to execute iptables-restore" err=< table=`, "the same in 1.34: it names the table, which a sync that fails does not"},
		{"proxier.go", `"Error removing iptables rules in ipvs proxier"`, "the same in 1.34"},
		{"cleanup.go", `"Error removing iptables rules in ipvs proxier"`, "the ipvs cleaner cannot delete chains that iptables mode's rules refer to"},
		{"server.go", `"Error running ProxyServer" err="encountered an error while tearing down rules"`, "--cleanup reports that one of the cleaners failed"},
		{"proxier.go", `"Failed to delete service" err="no such process" ipFamily="IPv4" virtualServer="0.0.0.0:0/"`, "ipvs mode takes a foreign virtual server by firewall mark for one at 0.0.0.0:0, and cannot delete that"},
		{"run.go", `"command failed" err="encountered an error while tearing down rules"`, "--cleanup reports that one of the cleaners failed"},
	}
}

// multiline is an error of several lines, which klog puts between err=< and >.
var multiline = regexp.MustCompile(`(?s)err=<\n.*\n\s*> ?`)

// Explain says why a kube-proxy that works logs this, or "" where nobody knows.
func (l ErrorLine) Explain() string {
	text := multiline.ReplaceAllString(l.Text, "err=< ")
	for _, e := range explanations() {
		if l.File == e.file && strings.HasPrefix(text, e.start) {
			return e.why
		}
	}
	return ""
}

// Unexplained are the error lines of a log that no kube-proxy which works should write.
func Unexplained(log string) []ErrorLine {
	var rest []ErrorLine
	for _, line := range ErrorLines(log) {
		if line.Explain() == "" {
			rest = append(rest, line)
		}
	}
	return rest
}
