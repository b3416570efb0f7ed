package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseSpan reads a length of time: "90m", "24h", "7d". A day is 24 hours.
func parseSpan(text string) (time.Duration, error) {
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no number of days, such as 30d", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	span, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no length of time, such as 24h or 30d", text)
	}
	return span, nil
}

// parseDate reads a date (midnight, UTC) or a moment: "2027-01-31", "2027-01-31T12:00:00Z".
func parseDate(text string) (time.Time, bool) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// parseUntil reads when something ends: a date, or a length of time from now.
func parseUntil(text string, now time.Time) (time.Time, error) {
	at, isDate := parseDate(text)
	if !isDate {
		span, err := parseSpan(text)
		if err != nil {
			return time.Time{}, fmt.Errorf("%w, and no date, such as 2027-01-31", err)
		}
		at = now.Add(span)
	}
	if !at.After(now) {
		return time.Time{}, fmt.Errorf("%q is not in the future", text)
	}
	return at, nil
}

// parseSince reads when something began: a date, or a length of time before now.
func parseSince(text string, now time.Time) (time.Time, error) {
	at, isDate := parseDate(text)
	if !isDate {
		span, err := parseSpan(text)
		if err != nil {
			return time.Time{}, fmt.Errorf("%w, and no date, such as 2027-01-31", err)
		}
		at = now.Add(-span)
	}
	if !at.Before(now) {
		return time.Time{}, fmt.Errorf("%q is not in the past", text)
	}
	return at, nil
}
