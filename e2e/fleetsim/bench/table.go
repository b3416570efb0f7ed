package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The tables stand between these lines, with the name of what measured them.
const (
	begin = "<!-- measured by make %s: begin -->\n"
	end   = "<!-- measured by make %s: end -->\n"
)

type column func(*result) string

func perNode(bytes float64, r *result) string {
	return fmt.Sprintf("%.1f", bytes/1024/float64(r.total()))
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func seconds(d time.Duration) string { return measured(d > 0, "%.1f", d.Seconds()) }

// measured is a figure, or a dash where that was not measured.
func measured(was bool, format string, figures ...any) string {
	if !was {
		return "–"
	}
	return fmt.Sprintf(format, figures...)
}

func rows() []struct {
	name string
	of   column
} {
	return []struct {
		name string
		of   column
	}{
		{"nodes, each with a TLS stream", func(r *result) string { return fmt.Sprint(r.nodes) }},
		{"nodes whose state alone is held", func(r *result) string { return fmt.Sprint(r.state) }},
		{"resident memory, unchanged (MiB)", func(r *result) string { return fmt.Sprintf("%.0f", float64(r.quiet.Resident)/(1<<20)) }},
		{"resident memory per node, unchanged (KiB)", func(r *result) string { return perNode(float64(r.quiet.Resident), r) }},
		{"  of that beyond an aggregator without nodes", func(r *result) string {
			return perNode(float64(r.quiet.Resident)-float64(r.empty.Resident), r)
		}},
		{"  stacks of goroutines", func(r *result) string { return perNode(r.quiet.Stacks, r) }},
		{"  heap in use, garbage included", func(r *result) string { return perNode(r.quiet.HeapInUse, r) }},
		{"goroutines per node", func(r *result) string { return fmt.Sprintf("%.2f", r.quiet.Goroutines/float64(r.total())) }},
		{"resident memory per node, after each third of the changes (KiB)", func(r *result) string {
			var thirds []string
			for _, usage := range append(slices.Clone(r.along), r.changed) {
				thirds = append(thirds, perNode(float64(usage.Resident), r))
			}
			return strings.Join(thirds, " / ")
		}},
		{"processor of an unchanged fleet (of one)", func(r *result) string { return fmt.Sprintf("%.1f %%", 100*r.idleShare) }},
		{"requests to the API server, unchanged (a second)", func(r *result) string {
			return fmt.Sprintf("%.1f, %.1f of them TokenReviews", r.idleRequests, r.idleReviews)
		}},
		{"bytes of an agent, sent / received (a minute)", func(r *result) string { return fmt.Sprintf("%.0f / %.0f", r.bytesOut, r.bytesIn) }},
		{"changed reports (a second)", func(r *result) string {
			return fmt.Sprintf("%.0f", float64(r.changes)/r.changing.Seconds())
		}},
		{"processor while they change (of one)", func(r *result) string { return fmt.Sprintf("%.1f %%", 100*r.changeShare) }},
		{"readiness, median / p99 (ms)", func(r *result) string {
			return milliseconds(r.readiness.At(0.5)) + " / " + milliseconds(r.readiness.At(0.99))
		}},
		{"first page of the nodes, median / p99 (ms)", func(r *result) string { return milliseconds(r.pages.At(0.5)) + " / " + milliseconds(r.pages.At(0.99)) }},
		{"change at the node to watcher, median / p99 (ms)", func(r *result) string { return milliseconds(r.heard.At(0.5)) + " / " + milliseconds(r.heard.At(0.99)) }},
		{"processor for an arrival (ms)", func(r *result) string { return fmt.Sprintf("%.1f", 1000*r.arriving/float64(r.total())) }},
		{"nodes that went away without a word: known to be silent", func(r *result) string {
			return measured(r.dead > 0, "%d of %d", r.silent, r.dead)
		}},
		{"every node changes within a minute: a watcher has heard of all after (s)", func(r *result) string { return seconds(r.flooded.took) }},
		{"  processor meanwhile (of one)", func(r *result) string { return measured(r.flooded.took > 0, "%.1f %%", 100*r.flooded.share) }},
		{"all nodes asked for a Service: answers", func(r *result) string { return measured(r.asked > 0, "%d", r.answered) }},
		{"  the last of them after (s)", func(r *result) string { return seconds(r.asked) }},
		{"all connections cut: everybody is back after (s)", func(r *result) string { return seconds(r.spreadCut.took) }},
		{"  attempts that failed", func(r *result) string { return measured(r.spreadCut.took > 0, "%d", r.spreadCut.failed) }},
		{"the same, all coming back at one moment, after (s)", func(r *result) string { return seconds(r.togetherCut.took) }},
		{"  attempts that failed", func(r *result) string { return measured(r.togetherCut.took > 0, "%d", r.togetherCut.failed) }},
		{"restart: the answer is complete after (s)", func(r *result) string { return seconds(r.back) }},
		{"  attempts that failed at an aggregator that listened", func(r *result) string { return measured(r.back > 0, "%d", r.failed) }},
		{"  peak of the memory, of the memory before", func(r *result) string {
			return measured(r.back > 0, "%.2f", float64(r.restarted.Peak)/float64(max(1, r.quiet.Resident)))
		}},
	}
}

func table(results []*result) string {
	text := &strings.Builder{}
	for i, row := range rows() {
		fmt.Fprintf(text, "| %s |", row.name)
		for _, r := range results {
			fmt.Fprintf(text, " %s |", row.of(r))
		}
		text.WriteByte('\n')
		if i == 0 {
			text.WriteString("|---|" + strings.Repeat("---|", len(results)) + "\n")
		}
	}
	return text.String()
}

// write puts the tables into the document, between the marks.
func write(path string, s settings, results []*result) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	begin, end := fmt.Sprintf(begin, s.place), fmt.Sprintf(end, s.place)
	before, rest, begun := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return errors.New("the document has no place for the tables of " + s.place)
	}
	text := before + begin + "\n" + about(s) + "\n" + table(results) + "\n" + end + after
	return os.WriteFile(path, []byte(text), 0o644)
}

// about says what was measured, where and under which load.
func about(s settings) string {
	version, _ := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%s, version %s, %s, Linux %s, %s, %d processors; load of the machine at the end %s; unchanged for %s, then %.0f changes a second for %s.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace(string(version)), runtime.Version(),
		strings.TrimSpace(string(kernel)), processor(), runtime.NumCPU(), strings.TrimSpace(string(load)), s.settle, s.rate, s.churn)
}

func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
