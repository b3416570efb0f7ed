package collect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ipvsVisitor is told of each line of the table, with the virtual server that it is or belongs to.
type ipvsVisitor func(server *virtualServer, line []byte)

// ipvsReader reads the IPVS table, as often as it takes for two readings to agree. Not for concurrent use.
//
// The kernel hands /proc/net/ip_vs out in pieces of a page, and loses entries between two pieces when another network
// namespace has virtual servers: it keeps its place by counting those of all namespaces (ip_vs_info_seq_next), and goes on
// from there counting those of this one alone (ip_vs_info_array in net/netfilter/ipvs/ip_vs_ctl.c, up to 6.12 at least). Two
// readings can be equal and lack the same ones. So a table of several pieces is compared with the kernel's list over generic
// netlink, and read from there where the file is not all of it.
type ipvsReader struct {
	host Host
	seed maphash.Seed
	// skew is how much to read first, 0 for no limit.
	skew int
	// proven is the content of a table from the file that is known to be all, once isProven.
	proven   uint64
	isProven bool
	// overNetlink: the file loses entries.
	overNetlink bool
}

func newIPVSReader(host Host) *ipvsReader { return &ipvsReader{host: host, seed: maphash.MakeSeed()} }

// read reads the table once. begin, where it is not nil, makes a visitor for it; when it is called again, what the visitor
// before was told is void.
func (r *ipvsReader) read(ctx context.Context, begin func() ipvsVisitor) (*ipvsTable, error) {
	if begin == nil {
		begin = func() ipvsVisitor { return nil }
	}
	if !r.overNetlink {
		table, err := r.readFile(ctx, begin())
		if !errors.Is(err, errLost) {
			return table, err
		}
		r.overNetlink = true
	}
	table, err := r.readNetlink(ctx, begin())
	if err != nil {
		// What moved may have been all that the file lacked.
		r.overNetlink = false
	}
	return table, err
}

// alternate moves the seams of the next reading: the kernel fills one page at a time, half a page puts those of every other
// reading in between.
func (r *ipvsReader) alternate() { r.skew = os.Getpagesize()/2 - r.skew }

// errLost says that the file lacks virtual servers.
var errLost = errors.New("the file lacks virtual servers")

func (r *ipvsReader) readFile(ctx context.Context, visit ipvsVisitor) (*ipvsTable, error) {
	file, err := openIPVS(r.host)
	if err != nil {
		return nil, err
	}
	isKernels := isProcFile(file)
	pieces := &pieceCounter{reader: &shortFirstRead{reader: file, limit: r.skew}}
	table, err := parseIPVSLines(pieces, r.seed, visit)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read the IPVS table: %w", err)
	}
	if table.repeats() {
		return nil, errTorn
	}
	if !isKernels || pieces.count <= 1 || r.isProven && table.content == r.proven {
		return table, nil
	}
	return table, r.prove(ctx, table)
}

// prove compares a table from the file with the kernel's own list. Without the right to ask for that, nothing is said: the
// statistics of node ports say that it is missing.
func (r *ipvsReader) prove(ctx context.Context, table *ipvsTable) error {
	list, err := withIPVS(ctx, func(s *socket, family int) ([]ipvsService, error) { return listIPVSServices(ctx, s, family) })
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := table.compare(list); err != nil {
		return err
	}
	r.proven, r.isProven = table.content, true
	return nil
}

// compare returns nil for the same virtual servers, errLost where the table lacks some, errTorn where it has others.
func (t *ipvsTable) compare(list []ipvsService) error {
	// The usual case without a map: both are in the kernel's order.
	sameOrder := slices.EqualFunc(t.servers, list, func(server virtualServer, service ipvsService) bool {
		return server.tableKey() == service.key()
	})
	if sameOrder {
		return nil
	}
	count := make(map[tableKey]int, len(list))
	for i := range list {
		count[list[i].key()]++
	}
	for i := range t.servers {
		key := t.servers[i].tableKey()
		if count[key] == 0 {
			return errTorn
		}
		count[key]--
	}
	if len(t.servers) < len(list) {
		return errLost
	}
	return nil
}

// readNetlink reads all of it over generic netlink, in the words of the file. The list is asked for before and after: that it
// is the same says that nothing came or went meanwhile.
func (r *ipvsReader) readNetlink(ctx context.Context, visit ipvsVisitor) (*ipvsTable, error) {
	// The question alone would load ip_vs.
	file, err := openIPVS(r.host)
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, fmt.Errorf("look for the IPVS table: %w", err)
	}
	text, err := withIPVS(ctx, func(s *socket, family int) (*bytes.Buffer, error) { return ipvsText(ctx, s, family) })
	if err != nil {
		return nil, err
	}
	return parseIPVSLines(text, r.seed, visit)
}

func ipvsText(ctx context.Context, s *socket, family int) (*bytes.Buffer, error) {
	list, err := listIPVSServices(ctx, s, family)
	if err != nil {
		return nil, err
	}
	text := bytes.NewBufferString("IP Virtual Server version \n" + ipvsHeaderServer + "\n" + ipvsHeaderReal + "\n")
	for i := range list {
		list[i].appendLine(text)
		if err := list[i].appendDests(ctx, s, family, text); err != nil {
			return nil, err
		}
	}
	again, err := listIPVSServices(ctx, s, family)
	if err == nil && !slices.Equal(list, again) {
		err = errTorn
	}
	return text, err
}

// withIPVS has ask speak with IPVS over generic netlink. That ip_vs is gone is errTorn: it was there a moment ago.
func withIPVS[T any](ctx context.Context, ask func(s *socket, family int) (T, error)) (answer T, err error) {
	s, err := openSocket(unix.NETLINK_GENERIC)
	if err != nil {
		return answer, err
	}
	defer s.close()
	family, err := findFamily(ctx, s, "IPVS")
	if errors.Is(err, unix.ENOENT) {
		return answer, errTorn
	}
	if err != nil {
		return answer, err
	}
	return ask(s, family)
}

// isProcFile tells the kernel's file from one that stands in for it.
func isProcFile(file *os.File) bool {
	var at unix.Statfs_t
	return unix.Fstatfs(int(file.Fd()), &at) == nil && at.Type == unix.PROC_SUPER_MAGIC
}

// pieceCounter counts the pieces that a file is handed out in.
type pieceCounter struct {
	reader io.Reader
	count  int
}

// Read implements io.Reader.
func (p *pieceCounter) Read(buffer []byte) (int, error) {
	n, err := p.reader.Read(buffer)
	if n > 0 {
		p.count++
	}
	return n, err
}
