package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const kindKernel = offrampv1.SectionKind_SECTION_KIND_KERNEL

// readKernel reports the running kernel and the host's operating system.
func readKernel(host Host) *offrampv1.Section {
	release, err := readValue(host.sysctlPath("kernel/osrelease"))
	if err != nil {
		return failed(kindKernel, fmt.Errorf("read the kernel's release: %w", err))
	}
	content := &offrampv1.KernelFacts{Release: release, Machine: machine()}
	content.Major, content.Minor, content.Patch = parseRelease(release)
	// These two are missing in odd containers only, and nothing is concluded from an empty one.
	content.Version, _ = readValue(host.sysctlPath("kernel/version"))
	content.BootId, _ = readValue(host.sysctlPath("kernel/random/boot_id"))
	system := readOSRelease(host.Root)
	content.OsId, content.OsVersionId, content.OsPrettyName = system["ID"], system["VERSION_ID"], system["PRETTY_NAME"]

	section := read(kindKernel, false, &offrampv1.SectionStable{
		Content: &offrampv1.SectionStable_Kernel{Kernel: content},
	})
	if booted, err := bootTime(host); err == nil {
		section.Volatile.Content = &offrampv1.SectionVolatile_Kernel{
			Kernel: &offrampv1.KernelVolatile{BootedAt: timestamppb.New(booted)},
		}
	}
	return section
}

// parseRelease reads the leading numbers of `uname -r`, whatever a vendor appends: "5.14.0-427.13.1.el9_4.x86_64" is 5, 14,
// 0 and "6.8-rc1" is 6, 8, 0. All zero when it does not begin with two numbers.
func parseRelease(release string) (major, minor, patch uint32) {
	major, rest, ok := leadingNumber(release)
	rest, dot := strings.CutPrefix(rest, ".")
	if !ok || !dot {
		return 0, 0, 0
	}
	minor, rest, ok = leadingNumber(rest)
	if !ok {
		return 0, 0, 0
	}
	if rest, dot = strings.CutPrefix(rest, "."); dot {
		patch, _, _ = leadingNumber(rest)
	}
	return major, minor, patch
}

// leadingNumber cuts the digits off the front of text. ok is false when there are none, or too many.
func leadingNumber(text string) (number uint32, rest string, ok bool) {
	rest = strings.TrimLeft(text, "0123456789")
	parsed, err := strconv.ParseUint(text[:len(text)-len(rest)], 10, 32)
	if err != nil {
		return 0, text, false
	}
	return uint32(parsed), rest, true
}

// bootTime is btime of /proc/stat, in seconds since 1970 by the node's clock.
func bootTime(host Host) (time.Time, error) {
	stat, err := os.ReadFile(filepath.Join(host.Proc, "stat"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the boot time: %w", err)
	}
	for line := range strings.Lines(string(stat)) {
		if value, found := strings.CutPrefix(line, "btime "); found {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Unix(seconds, 0), err
		}
	}
	return time.Time{}, fmt.Errorf("read the boot time: no btime in %s", filepath.Join(host.Proc, "stat"))
}

// machine is `uname -m`. No file has it on kernels before 6.1.
func machine() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Machine[:])
}
