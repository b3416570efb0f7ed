package render

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Word is how people say a value of any of Offramp's enums: PHASE_SWITCHED_DIRTY is "switched-dirty". A value that is not
// set, or that this version does not know, is "unknown".
func Word(value protoreflect.Enum) string {
	values := value.Descriptor().Values()
	known := values.ByNumber(value.Number())
	if known == nil || value.Number() == 0 {
		return "unknown"
	}
	prefix := strings.TrimSuffix(string(values.ByNumber(0).Name()), "UNSPECIFIED")
	word := strings.TrimPrefix(string(known.Name()), prefix)
	return strings.ReplaceAll(strings.ToLower(word), "_", "-")
}

// count says "1 chain", "2 chains", "10,000 chains".
func count(n uint64, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "y"):
		return number(n) + " " + strings.TrimSuffix(thing, "y") + "ies"
	case strings.HasSuffix(thing, "s"):
		return number(n) + " " + thing + "es"
	}
	return number(n) + " " + thing + "s"
}

// number groups digits by thousands.
func number(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// moment is a time as people and scripts read it, in UTC.
func moment(at *timestamppb.Timestamp) string {
	if at == nil {
		return "never"
	}
	return at.AsTime().UTC().Format("2006-01-02 15:04:05Z")
}

// age is how long ago something was, to the largest unit: "12s", "5m", "3h", "9d". A clock that is behind gives "0s".
func age(at *timestamppb.Timestamp, now time.Time) string {
	if at == nil {
		return "never"
	}
	return span(now.Sub(at.AsTime()))
}

func span(passed time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		letter string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if passed >= unit.length {
			return strconv.FormatInt(int64(passed/unit.length), 10) + unit.letter
		}
	}
	return strconv.FormatInt(max(0, int64(passed/time.Second)), 10) + "s"
}

// joinParts joins what is not empty with commas.
func joinParts(parts ...string) string {
	kept := make([]string, 0, len(parts))
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ", ")
}
