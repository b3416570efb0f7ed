package cleanup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"offramp.dev/offramp/internal/kubeproxy"
)

// LegacyRunner runs iptables-legacy-restore or ip6tables-legacy-restore: program is one of these two names, nothing else is
// ever asked for. It returns what the program printed, also when it failed.
type LegacyRunner func(ctx context.Context, program string, args []string, input []byte) (output []byte, err error)

// RunLegacy runs the program from the PATH, and kills it when the context ends: it changes a table in one system call or not
// at all.
func RunLegacy(ctx context.Context, program string, args []string, input []byte) ([]byte, error) {
	command := exec.CommandContext(ctx, program, args...) //nolint:gosec // program is one of two fixed names
	command.Stdin = bytes.NewReader(input)
	command.WaitDelay = time.Second
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return output, err
}

var (
	// errNoLegacyTool says that this node (or image) has no program to change legacy tables with.
	errNoLegacyTool = errors.New("there is no iptables-legacy-restore here")
	// errNoTable says that the kernel has no such table; asking the program about it would make one.
	errNoTable = errors.New("the table does not exist")
)

// legacyTable is one table of iptables-legacy.
type legacyTable struct {
	family kubeproxy.Family
	name   string
}

func (t legacyTable) program() string {
	if t.family == kubeproxy.IPv6 {
		return "ip6tables-legacy-restore"
	}
	return "iptables-legacy-restore"
}

// exists reports whether the kernel has the table: it then is in the file that only a loaded ip_tables provides.
func (t legacyTable) exists(proc string) error {
	file := proc + "/net/ip_tables_names"
	if t.family == kubeproxy.IPv6 {
		file = proc + "/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file) //nolint:gosec // below a root or folder that the operator names
	if err != nil {
		return errors.Join(errNoTable, err)
	}
	if !slices.Contains(strings.Fields(string(names)), t.name) {
		return errNoTable
	}
	return nil
}

// legacyTools runs the program, bounded in time.
type legacyTools struct {
	run  LegacyRunner
	proc string
	// wait is how long the program may wait for the lock that all users of legacy tables take.
	wait time.Duration
}

// legacyGrace is what the program may take beside the wait for the lock: 5,000 chains take it 0.1 s on a quiet node.
const legacyGrace = 30 * time.Second

func (l legacyTools) restore(ctx context.Context, table legacyTable, lines []byte, options ...string) ([]byte, error) {
	if err := table.exists(l.proc); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.wait+legacyGrace)
	defer cancel()
	input := slices.Concat([]byte("*"+table.name+"\n"), lines, []byte("COMMIT\n"))
	args := append([]string{"--noflush", "-w", strconv.Itoa(int(l.wait.Seconds()))}, options...)
	output, err := l.run(ctx, table.program(), args, input)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errNoLegacyTool
	}
	return output, err
}

// list returns the table's rules as the program itself prints them: a line that it printed is one that it understands.
// With --test it commits nothing.
func (l legacyTools) list(ctx context.Context, table legacyTable) (*legacyListing, error) {
	output, err := l.restore(ctx, table, []byte("-S\n"), "--test")
	if err != nil {
		return nil, fmt.Errorf("list the legacy table %s: %w", table.name, err)
	}
	return parseLegacyListing(string(output))
}

// legacyListing is what "-S" prints of a table.
type legacyListing struct {
	// chains are the user-defined ones, in order.
	chains []string
	// rules are the lines "-A CHAIN …" of each chain, in order.
	rules map[string][]string
}

func parseLegacyListing(text string) (*legacyListing, error) {
	listing := &legacyListing{rules: map[string][]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.SplitN(line, " ", 3)
		switch {
		case len(fields) == 3 && fields[0] == "-P":
		case len(fields) == 2 && fields[0] == "-N":
			listing.chains = append(listing.chains, fields[1])
		case len(fields) == 3 && fields[0] == "-A":
			listing.rules[fields[1]] = append(listing.rules[fields[1]], line)
		default:
			return nil, fmt.Errorf("a line of a legacy table is not understood: %q", line)
		}
	}
	return listing, nil
}
