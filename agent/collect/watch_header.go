package collect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// header is something cheap that shows whether a section is worth reading.
type header uint8

const (
	headerIPVS header = iota
	headerIPSets
	headerLegacyIPv4
	headerLegacyIPv6
	headerIPVSWhole // now and then
)

// kinds are the sections that depend on what a header stands for: whose a virtual server is stands in the sets.
func (h header) kinds() []offrampv1.SectionKind {
	switch h {
	case headerIPVS, headerIPVSWhole:
		return []offrampv1.SectionKind{kindIPVS}
	case headerIPSets:
		return []offrampv1.SectionKind{kindIPVS, kindIPSets}
	case headerLegacyIPv4:
		return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV4, kindIPSets}
	case headerLegacyIPv6:
		return []offrampv1.SectionKind{offrampv1.SectionKind_SECTION_KIND_IPTABLES_LEGACY_IPV6, kindIPSets}
	default:
		return nil
	}
}

// readHeaders returns a fingerprint of each, of the whole IPVS table only when it is asked for. What cannot be read has that
// of its error, so that it is only news once.
func (s *Scanner) readHeaders(ctx context.Context, whole bool) map[header]uint64 {
	legacyIPv4, legacyIPv6 := legacyIPv4(), legacyIPv6()
	headers := map[header]uint64{
		headerIPVS: s.fingerprint(func(hash *maphash.Hash) error {
			for _, cidr := range s.excludeCIDRs() {
				maphash.WriteComparable(hash, cidr)
			}
			return digestIPVS(s.config.Host, hash)
		}),
		headerIPSets:     s.fingerprint(func(hash *maphash.Hash) error { return digestIPSets(ctx, s.modules, hash) }),
		headerLegacyIPv4: s.fingerprint(func(hash *maphash.Hash) error { return digestLegacy(s.config.Host, &legacyIPv4, hash) }),
		headerLegacyIPv6: s.fingerprint(func(hash *maphash.Hash) error { return digestLegacy(s.config.Host, &legacyIPv6, hash) }),
	}
	if whole {
		headers[headerIPVSWhole] = s.fingerprint(func(hash *maphash.Hash) error { return digestWholeIPVS(s.config.Host, hash) })
	}
	return headers
}

func (s *Scanner) fingerprint(digest func(*maphash.Hash) error) uint64 {
	var hash maphash.Hash
	hash.SetSeed(s.seed)
	if err := digest(&hash); err != nil {
		_, _ = hash.WriteString(err.Error())
	}
	return hash.Sum64()
}

// ipvsGlance is how much of a big IPVS table is looked at each time. Its order is that of a hash over the whole table.
const ipvsGlance = 64 << 10

// digestIPVS takes the number of virtual servers and the beginning of the table, without counters of connections. Where the
// number cannot be asked for it takes the whole table.
func digestIPVS(host Host, hash *maphash.Hash) error {
	file, err := openIPVS(host)
	if err != nil {
		return err
	}
	limit := int64(ipvsGlance)
	servers, err := countIPVS()
	if err != nil {
		limit = 1 << 40
	}
	table, err := glanceIPVS(io.LimitReader(file, limit), hash.Seed())
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	maphash.WriteComparable(hash, [2]uint64{uint64(servers), table})
	return nil
}

// digestWholeIPVS takes the whole table, without counters of connections: real servers that come, go or change their weight
// beyond the glance show nowhere else. One reading, which may skip an entry while others go: then it is read in full for
// nothing, or shows the next time.
func digestWholeIPVS(host Host, hash *maphash.Hash) error {
	file, err := openIPVS(host)
	if err != nil {
		return err
	}
	table, err := glanceIPVS(file, hash.Seed())
	maphash.WriteComparable(hash, table)
	return errors.Join(err, file.Close())
}

// glanceIPVS digests a table that may end anywhere.
func glanceIPVS(r io.Reader, seed maphash.Seed) (uint64, error) {
	p := &ipvsParser{names: map[string]string{}}
	p.hash.SetSeed(seed)
	err := p.read(r)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return p.hash.Sum64(), err
}

const (
	ipvsGetInfo = 1024 + 64 + 64 + 1 // IP_VS_SO_GET_INFO of linux/ip_vs.h
	// ipvsInfoSize is sizeof(struct ip_vs_getinfo): version, size of the connection table, num_services.
	ipvsInfoSize = 12
)

// countIPVS returns how many virtual servers there are (those of IPv4 alone, before kernel 6.x). The caller has made sure
// that ip_vs is there; the question loads nothing. It needs CAP_NET_ADMIN.
func countIPVS() (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket for IPVS: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var info [ipvsInfoSize]byte
	length := uint32(len(info))
	_, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, ipvsGetInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&length)), 0) //nolint:gosec // how a structure is handed over
	if failed != 0 {
		return 0, fmt.Errorf("ask IPVS how much it holds: %w", failed)
	}
	return binary.NativeEndian.Uint32(info[8:]), nil
}

func digestIPSets(ctx context.Context, mods *modules, hash *maphash.Hash) error {
	s, err := openIPSet(mods)
	if err != nil {
		return err
	}
	defer s.close()
	headers, err := dumpIPSetHeaders(ctx, s)
	for _, header := range headers {
		header.memory = 0
		maphash.WriteComparable(hash, header)
	}
	return err
}

// digestLegacy takes the tables of iptables-legacy with their sizes and numbers of entries.
func digestLegacy(host Host, layout *legacyLayout, hash *maphash.Hash) error {
	names, err := legacyTables(host, layout)
	if err != nil || len(names) == 0 {
		return err
	}
	s, err := openLegacy(layout)
	if err != nil {
		return err
	}
	for _, name := range names {
		var info *legacyInfo
		if info, err = s.info(name); err != nil {
			break
		}
		_, _ = hash.WriteString(name)
		maphash.WriteComparable(hash, *info)
	}
	return errors.Join(err, s.close())
}
