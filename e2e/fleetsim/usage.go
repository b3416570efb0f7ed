package fleetsim

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process takes at one moment.
type Usage struct {
	// Resident and Peak are the process's memory now and at the most, in bytes.
	Resident, Peak uint64
	// CPU is the time it has had since its start.
	CPU time.Duration
	// Goroutines, and bytes of heap in use and of stacks, by its own word; Allocated and Objects count since the start.
	Goroutines, HeapInUse, Stacks, Allocated, Objects float64
	// At is when this was.
	At time.Time
}

// ticks are those of a second in /proc (USER_HZ, the same on every Linux).
const ticks = 100

// Usage asks the kernel and the aggregator itself what it takes.
func (a *Aggregator) Usage(ctx context.Context) (Usage, error) {
	u := Usage{At: time.Now()}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID()))
	if err != nil {
		return u, fmt.Errorf("read what the aggregator takes: %w", err)
	}
	u.Resident, u.Peak = kibibytes(string(status), "VmRSS:"), kibibytes(string(status), "VmHWM:")
	if u.CPU, err = cpuTime(a.PID()); err != nil {
		return u, err
	}
	return u, a.scrape(ctx, &u)
}

func kibibytes(status, name string) uint64 {
	for line := range strings.Lines(status) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			kib, _ := strconv.ParseUint(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the time a process had: %w", err)
	}
	// The name in parentheses may hold anything; utime and stime are fields 14 and 15.
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, nil
}

// scrape reads the aggregator's own metrics.
func (a *Aggregator) scrape(ctx context.Context, u *Usage) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Metrics+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("ask for metrics: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for metrics: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	figures := map[string]*float64{
		"go_goroutines": &u.Goroutines, "go_memstats_heap_inuse_bytes": &u.HeapInUse, "go_memstats_stack_inuse_bytes": &u.Stacks,
		"go_memstats_alloc_bytes_total": &u.Allocated, "go_memstats_mallocs_total": &u.Objects,
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if figure := figures[name]; figure != nil {
			*figure, _ = strconv.ParseFloat(value, 64)
		}
	}
	return lines.Err()
}

// Share is the part of one processor that was used between two moments.
func Share(from, to Usage) float64 {
	return float64(to.CPU-from.CPU) / float64(to.At.Sub(from.At))
}
