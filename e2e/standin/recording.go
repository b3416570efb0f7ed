package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// recording is what kube-proxy answered when the capture was made.
type recording struct {
	mode    string
	metrics string
	health  health
	// started is when the stand-in started.
	started time.Time
}

// health is kube-proxy's answer at /healthz (pkg/proxy/healthcheck/proxy_health.go).
type health struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyHealth `json:"status,omitempty"`
}

type familyHealth struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// load reads a capture's folder. A capture without a running kube-proxy has nothing to serve, which is an error.
func load(dir fs.FS) (recording, error) {
	mode, err := fs.ReadFile(dir, "proxyMode.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return recording{}, fmt.Errorf("no kube-proxy ran when this capture was made: %w", err)
	}
	if err != nil {
		return recording{}, fmt.Errorf("reading the mode: %w", err)
	}
	metrics, err := fs.ReadFile(dir, "metrics.txt")
	if err != nil {
		return recording{}, fmt.Errorf("reading the metrics: %w", err)
	}
	answer, err := fs.ReadFile(dir, "healthz.json")
	if err != nil {
		return recording{}, fmt.Errorf("reading the health: %w", err)
	}
	r := recording{mode: strings.TrimSpace(string(mode)), metrics: string(metrics)}
	if err := json.Unmarshal(answer, &r.health); err != nil {
		return recording{}, fmt.Errorf("decoding the health: %w", err)
	}
	if r.health.CurrentTime.IsZero() {
		return recording{}, errors.New("the health has no current time")
	}
	return r, nil
}

// shift is how far the capture's times are moved: what was now becomes now.
func (r recording) shift(now time.Time) time.Duration { return now.Sub(r.health.CurrentTime) }

// healthAt is the health with every time as far before now as it was when the capture was made.
func (r recording) healthAt(now time.Time) health {
	by := r.shift(now)
	h := r.health
	h.LastUpdated, h.CurrentTime = h.LastUpdated.Add(by), h.CurrentTime.Add(by)
	h.Status = map[string]familyHealth{}
	for family, status := range r.health.Status {
		h.Status[family] = familyHealth{LastUpdated: status.LastUpdated.Add(by), Healthy: status.Healthy}
	}
	return h
}

// metricsAt is the metrics with the times of syncs moved likewise, and the start of the process being the stand-in's.
func (r recording) metricsAt(now time.Time) string {
	sample := regexp.MustCompile(`(?m)^(kubeproxy_[a-z_]*_timestamp_seconds(?:\{[^}]*\})?|process_start_time_seconds) (\S+)$`)
	return sample.ReplaceAllStringFunc(r.metrics, func(line string) string {
		name, text, _ := strings.Cut(line, " ")
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case err != nil || value == 0:
			// A gauge that was never set is 0 and stays it.
			return line
		case name == "process_start_time_seconds":
			value = seconds(r.started)
		default:
			value += r.shift(now).Seconds()
		}
		return name + " " + strconv.FormatFloat(value, 'e', -1, 64)
	})
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / float64(time.Second) }
