package lab

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// MirrorVariable names the environment variable that gives the archive's address, for hosts that are not Debian and for
// suites that have moved to another archive.
const MirrorVariable = "OFFRAMP_DEBIAN_MIRROR"

// source is one archive of the host's apt configuration.
type source struct {
	uri, suite string
	signedBy   string
}

// mirror returns the address of Debian's archive: what MirrorVariable says, else the one that the host itself uses.
func mirror(aptDir string) (source, error) {
	if uri := os.Getenv(MirrorVariable); uri != "" {
		return source{uri: uri}, nil
	}
	for _, s := range hostSources(aptDir) {
		if isDebianArchive(s) {
			return s, nil
		}
	}
	return source{}, fmt.Errorf("no Debian archive in the sources of %s: set %s to the address of one", aptDir, MirrorVariable)
}

// isDebianArchive tells the main archive from those of security updates and of others: its path ends in debian, and the
// suite has no part of its own.
func isDebianArchive(s source) bool {
	parsed, err := url.Parse(s.uri)
	if err != nil || strings.ContainsAny(s.suite, "-/") {
		return false
	}
	return filepath.Base(strings.TrimSuffix(parsed.Path, "/")) == "debian"
}

func hostSources(aptDir string) []source {
	var all []source
	lists, _ := filepath.Glob(filepath.Join(aptDir, "sources.list.d", "*.list"))
	for _, path := range append([]string{filepath.Join(aptDir, "sources.list")}, lists...) {
		all = append(all, readWith(path, parseOneLine)...)
	}
	files, _ := filepath.Glob(filepath.Join(aptDir, "sources.list.d", "*.sources"))
	for _, path := range files {
		all = append(all, readWith(path, parseDeb822)...)
	}
	return all
}

// readWith parses a file; one that cannot be read has no sources.
func readWith(path string, parse func(string) []source) []source {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return parse(string(text))
}

// parseOneLine reads the format of sources.list(5): deb [option=value …] uri suite component….
func parseOneLine(text string) []source {
	var all []source
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		s := source{}
		rest = strings.TrimSpace(rest)
		if options, after, found := strings.Cut(strings.TrimPrefix(rest, "["), "]"); found && rest[0] == '[' {
			rest, s.signedBy = after, option(options, "signed-by")
		}
		if fields := strings.Fields(rest); len(fields) >= 2 {
			s.uri, s.suite = fields[0], fields[1]
			all = append(all, s)
		}
	}
	return all
}

func option(options, key string) string {
	for word := range strings.FieldsSeq(options) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

// parseDeb822 reads the stanzas of a .sources file.
func parseDeb822(text string) []source {
	var all []source
	for stanza := range strings.SplitSeq(text, "\n\n") {
		fields := deb822Fields(stanza)
		if strings.EqualFold(fields["enabled"], "no") || !strings.Contains(" "+fields["types"]+" ", " deb ") {
			continue
		}
		for uri := range strings.FieldsSeq(fields["uris"]) {
			for suite := range strings.FieldsSeq(fields["suites"]) {
				all = append(all, source{uri: uri, suite: suite, signedBy: keyFile(fields["signed-by"])})
			}
		}
	}
	return all
}

// keyFile drops a key that stands in the sources file itself.
func keyFile(signedBy string) string {
	if strings.HasPrefix(signedBy, "/") {
		return signedBy
	}
	return ""
}

// deb822Fields reads one stanza; keys in lower case, continued lines joined, comment lines dropped.
func deb822Fields(stanza string) map[string]string {
	fields := map[string]string{}
	key := ""
	for line := range strings.Lines(stanza) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
			fields[key] = strings.TrimSpace(fields[key] + " " + strings.TrimSpace(line))
		default:
			name, value, _ := strings.Cut(line, ":")
			key = strings.ToLower(strings.TrimSpace(name))
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields
}
