package collect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const kindSysctls = offrampv1.SectionKind_SECTION_KIND_SYSCTLS

// routeLocalnet is set by iptables mode and never put back (pkg/proxy/iptables/proxier.go).
const routeLocalnet = "net/ipv4/conf/all/route_localnet"

// readSysctls reports what ipvs mode sets on a kernel of this release, and route_localnet.
func readSysctls(host Host) *offrampv1.Section {
	if _, err := os.Stat(host.sysctlPath("net")); err != nil {
		return failed(kindSysctls, err)
	}
	release, err := readValue(host.sysctlPath("kernel/osrelease"))
	if err != nil {
		return failed(kindSysctls, err)
	}
	major, minor, _ := parseRelease(release)
	content := &offrampv1.SysctlsFacts{Values: []*offrampv1.Sysctl{readSysctl(host, routeLocalnet, "")}}
	for _, sysctl := range kubeproxy.IPVSSysctls(major, minor) {
		content.Values = append(content.Values, readSysctl(host, sysctl.Path, sysctl.Value))
	}
	slices.SortFunc(content.Values, func(a, b *offrampv1.Sysctl) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return read(kindSysctls, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Sysctls{Sysctls: content},
	})
}

func readSysctl(host Host, path, ipvsModeValue string) *offrampv1.Sysctl {
	sysctl := &offrampv1.Sysctl{Path: path, IpvsModeValue: ipvsModeValue}
	value, err := readValue(host.sysctlPath(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		sysctl.State = offrampv1.SectionState_SECTION_STATE_ABSENT
	case err != nil:
		sysctl.State = offrampv1.SectionState_SECTION_STATE_UNREADABLE
		sysctl.Error = shorten(err.Error())
	default:
		sysctl.State = offrampv1.SectionState_SECTION_STATE_PRESENT
		sysctl.Value = value
	}
	return sysctl
}

// sysctlPath takes a path, never a dotted name: names of links have dots.
func (h Host) sysctlPath(path string) string { return filepath.Join(h.Proc, "sys", path) }

// readValue reads a file of one value, white space around it trimmed.
func readValue(path string) (string, error) {
	value, err := os.ReadFile(path) //nolint:gosec // a parameter below a root that the caller chose
	if err != nil {
		return "", err
	}
	return printable([]byte(strings.TrimSpace(string(value)))), nil
}
