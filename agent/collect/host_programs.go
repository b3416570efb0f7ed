package collect

import (
	"path"
	"slices"
	"strings"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

// hostPrograms are the programs whose version matters, with the packages that bring them.
func hostPrograms() map[string]string {
	return map[string]string{"nft": "nftables", "iptables": "iptables", "ipset": "ipset"}
}

// readPrograms reports nft, iptables and ipset where they are on the host. They are never run: the version is that of the
// package, as the lists of dpkg and apk tell it. That of rpm is a database and is not read.
func readPrograms(search *searcher) []*offrampv1.HostProgram {
	versions := packageVersions(search)
	var programs []*offrampv1.HostProgram
	for program, pack := range hostPrograms() {
		for _, folder := range []string{"usr/sbin", "usr/bin", "sbin", "usr/local/sbin", "usr/local/bin"} {
			if !search.isFile(path.Join(folder, program)) {
				continue
			}
			found := &offrampv1.HostProgram{Path: "/" + path.Join(folder, program)}
			if !strings.HasPrefix(folder, "usr/local") {
				found.Version = versions[pack]
			}
			programs = append(programs, found)
			break
		}
	}
	slices.SortFunc(programs, func(a, b *offrampv1.HostProgram) int { return strings.Compare(a.GetPath(), b.GetPath()) })
	return programs
}

// packageVersions returns the installed versions of the packages that matter, without a distribution's own addition.
func packageVersions(search *searcher) map[string]string {
	versions := map[string]string{}
	listed := false
	quiet := &searcher{tree: search.tree, cache: search.cache}
	for _, list := range []struct {
		file string
		read func() func(string) []string
	}{
		{"var/lib/dpkg/status", func() func(string) []string { return dpkgLine(new(dpkgStanza)) }},
		{"lib/apk/db/installed", func() func(string) []string { return apkLine(new(dpkgStanza)) }},
	} {
		lines, found, err := quiet.lines("packages", list.file, list.read())
		if err != nil {
			search.note(err.Error())
		}
		listed = listed || found
		for _, line := range lines {
			if name, version, found := strings.Cut(line, " "); found {
				versions[name] = clean(upstreamVersion(version))
			}
		}
	}
	if !listed {
		search.note("versions of programs: no list of packages of dpkg or apk is in sight")
	}
	return versions
}

// dpkgStanza is what was read of the package that is being described.
type dpkgStanza struct {
	name      string
	installed bool
}

func (d *dpkgStanza) wanted() bool {
	for _, pack := range hostPrograms() {
		if d.name == pack {
			return true
		}
	}
	return false
}

// dpkgLine reads a line of dpkg's status (man 5 deb-control): Package, then Status, then Version.
func dpkgLine(at *dpkgStanza) func(string) []string {
	return func(line string) []string {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "Package":
			*at = dpkgStanza{name: value}
		case "Status":
			at.installed = value == "install ok installed" || value == "hold ok installed"
		case "Version":
			if at.wanted() && at.installed {
				return []string{at.name + " " + value}
			}
		}
		return nil
	}
}

// apkLine reads a line of apk's list: P:name, then V:version.
func apkLine(at *dpkgStanza) func(string) []string {
	return func(line string) []string {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == "P" {
			*at = dpkgStanza{name: value}
		}
		if key == "V" && at.wanted() {
			return []string{at.name + " " + value}
		}
		return nil
	}
}

// upstreamVersion takes an epoch and a revision away: "1:1.0.6-2+deb12u2" is 1.0.6.
func upstreamVersion(version string) string {
	if _, after, found := strings.Cut(version, ":"); found {
		version = after
	}
	if dash := strings.LastIndexByte(version, '-'); dash > 0 {
		version = version[:dash]
	}
	return version
}
