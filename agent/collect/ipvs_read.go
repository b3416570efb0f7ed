package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
)

// errNoIPVS says that ip_vs is not in the kernel.
var errNoIPVS = errors.New("the kernel has no ip_vs")

// openIPVS opens the IPVS table. The file is there if and only if ip_vs is, and opening it loads nothing.
func openIPVS(host Host) (*os.File, error) {
	file, err := os.Open(filepath.Join(host.Proc, "net/ip_vs"))
	if !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	if _, err := os.Stat(filepath.Join(host.Proc, "net")); err != nil {
		return nil, fmt.Errorf("look for the IPVS table: %w", err)
	}
	return nil, errNoIPVS
}

// shortFirstRead limits the first read, when limit is not 0. The kernel hands the table out in pieces and finds its place by
// counting: an entry that is removed meanwhile makes it skip the one at the seam. Other seams keep two readings from skipping
// the same.
type shortFirstRead struct {
	reader io.Reader
	limit  int
}

// Read implements io.Reader.
func (s *shortFirstRead) Read(buffer []byte) (int, error) {
	if s.limit > 0 && s.limit < len(buffer) {
		buffer = buffer[:s.limit]
	}
	s.limit = 0
	return s.reader.Read(buffer)
}

// repeats tells whether an entry is there twice, which the kernel does not allow: one was added before the place it was
// reading at. Firewall marks are left out, since the file does not tell IPv4 from IPv6 ones.
func (t *ipvsTable) repeats() bool {
	type key struct {
		protocol string
		address  netip.AddrPort
	}
	seen := make(map[key]struct{}, len(t.servers))
	marks := 0
	for _, server := range t.servers {
		if server.protocol == fwmProtocol {
			marks++
			continue
		}
		seen[key{server.protocol, server.address}] = struct{}{}
	}
	return len(seen)+marks != len(t.servers)
}

// readAgreedIPVS reads the table until two readings agree, and between those two what its entries are attributed by.
func readAgreedIPVS(ctx context.Context, host Host, attribute func(context.Context) claims) (*ipvsTable, claims, uint32, error) {
	reader := newIPVSReader(host)
	var between claims
	var previous *ipvsTable
	table, attempts, err := agreed(ctx, func(ctx context.Context) (*ipvsTable, error) {
		if previous != nil && len(previous.servers) > 0 {
			between = attribute(ctx)
		}
		table, err := reader.read(ctx, nil)
		if err != nil {
			table = nil
		}
		previous = table
		reader.alternate()
		return table, err
	}, func(a, b *ipvsTable) bool { return a.content == b.content })
	return table, between, attempts, err
}
