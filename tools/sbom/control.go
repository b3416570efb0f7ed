package main

import (
	"net/url"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// control is the fields of a Debian package's control file, by name. Of a field of several lines it has the first.
type control map[string]string

func parseControl(text string) control {
	fields := control{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, ":")
		if found && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// component names the package as scanners of vulnerabilities do: by its purl, and by its source where that has another name or
// version, since advisories are about sources of a release.
func (c control) component(release string) cdx.Component {
	query := url.Values{"arch": {c["Architecture"]}}
	if source := c["Source"]; source != "" {
		query.Set("upstream", strings.ReplaceAll(strings.NewReplacer("(", "", ")", "").Replace(source), " ", "@"))
	}
	if release != "" {
		query.Set("distro", "debian-"+release)
	}
	id := "pkg:deb/debian/" + url.PathEscape(c["Package"]) + "@" + url.PathEscape(c["Version"]) + "?" + query.Encode()
	return cdx.Component{
		BOMRef: id, Type: cdx.ComponentTypeLibrary, Name: c["Package"], Version: c["Version"], PackageURL: id,
		Description: c["Description"], Publisher: c["Maintainer"],
	}
}
