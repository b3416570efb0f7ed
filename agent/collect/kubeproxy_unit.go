package collect

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// maxUnitFiles bounds how many units of /etc/systemd/system are looked at.
const maxUnitFiles = 256

// unitFolders are where systemd looks for units, what wins first (man 5 systemd.unit).
func unitFolders() []string {
	return []string{
		"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system",
	}
}

// unitNames are units that start a kube-proxy or a kubelet, in whichever folder they are. In /etc every unit is looked at.
func unitNames() []string {
	return []string{
		"kube-proxy.service", "kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service",
		"snap.microk8s.daemon-kubelite.service", "snap.microk8s.daemon-proxy.service", "k0sworker.service", "k0scontroller.service",
		"snap.kube-proxy.daemon.service",
	}
}

// unit is a service of systemd's.
type unit struct {
	name, path string
	// lines are the commands of ExecStart, split into words, variables put in.
	lines [][]string
	err   error
}

// unitList is the units that matter, by name.
type unitList struct {
	units   []unit
	missing []string
}

// readUnits reads the units that may start a kube-proxy. One that is masked (a link to /dev/null) or empty starts nothing.
func readUnits(tree *hostTree) unitList {
	var list unitList
	seen := map[string]bool{}
	for i, folder := range unitFolders() {
		names, _, err := tree.list(folder)
		// What is in /run or /usr/local was put there by hand, and those are hardly ever mounted.
		if err != nil && (folder == "etc/systemd/system" || folder == "usr/lib/systemd/system") {
			list.missing = append(list.missing, err.Error())
		}
		if i > 0 {
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(unitNames(), name) })
		}
		names = slices.DeleteFunc(names, func(name string) bool { return path.Ext(name) != ".service" || seen[name] })
		for _, name := range names[:min(len(names), maxUnitFiles)] {
			seen[name] = true
			list.add(tree, folder, name)
		}
	}
	return list
}

func (l *unitList) add(tree *hostTree, folder, name string) {
	where := path.Join(folder, name)
	if tree.isLink(where) {
		// An alias, or masked. What it leads to is in a folder of its own, but for what people link in from elsewhere.
		if target, err := tree.dir.Readlink(where); err == nil && target == "/dev/null" {
			return
		}
	}
	text, found, err := tree.read(where)
	if !found && err == nil || err == nil && strings.TrimSpace(string(text)) == "" {
		return
	}
	read := unit{name: name, path: where, err: err}
	if err == nil {
		read.lines = parseUnit(tree, unitText(tree, name, string(text)))
	}
	l.units = append(l.units, read)
}

// unitText is a unit with its drop-ins, which come after it, sorted by name.
func unitText(tree *hostTree, name, text string) string {
	for _, folder := range []string{"usr/lib/systemd/system", "etc/systemd/system"} {
		names, _, err := tree.list(path.Join(folder, name+".d"))
		for _, dropIn := range names {
			if more, found, err2 := tree.read(path.Join(folder, name+".d", dropIn)); found && err == nil && err2 == nil &&
				path.Ext(dropIn) == ".conf" {
				text += "\n" + string(more)
			}
		}
	}
	return text
}

// parseUnit returns the commands of a service (man 5 systemd.service): ExecStart with continued lines joined, what an empty
// one before took back left out, and variables of Environment and EnvironmentFile put in.
func parseUnit(tree *hostTree, text string) [][]string {
	var commands []string
	variables := map[string]string{}
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		key, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if !found || strings.HasPrefix(key, "#") || strings.HasPrefix(key, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ExecStart":
			commands = append(commands, value)
			if value == "" {
				commands = nil
			}
		case "Environment":
			setVariables(variables, splitWords(value))
		case "EnvironmentFile":
			if file, found, err := tree.read(hostPath(strings.TrimPrefix(value, "-"))); found && err == nil {
				setVariables(variables, environmentLines(string(file)))
			}
		}
	}
	lines := make([][]string, 0, len(commands))
	for _, command := range commands {
		lines = append(lines, expand(splitWords(strings.TrimLeft(command, "@-:+!|")), variables))
	}
	return lines
}

// environmentLines are the assignments of a file of variables, one a line, the value maybe in quotes.
func environmentLines(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "=")
		if found && !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, ";") {
			lines = append(lines, name+"="+unquote(strings.TrimSpace(value)))
		}
	}
	return lines
}

func setVariables(variables map[string]string, assignments []string) {
	for _, assignment := range assignments {
		if name, value, found := strings.Cut(assignment, "="); found {
			variables[name] = value
		}
	}
}

// expand puts variables in: $NAME as a word of its own becomes as many words as it holds, ${NAME} is put in as it is.
// What would grow beyond any command line stays as it is.
func expand(words []string, variables map[string]string) []string {
	var expanded []string
	budget := maxProcFile
	for _, word := range words {
		if name, is := strings.CutPrefix(word, "$"); is && !strings.HasPrefix(name, "{") {
			if budget -= len(variables[name]); budget > 0 {
				expanded = append(expanded, splitWords(variables[name])...)
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(variables)) {
			growth := strings.Count(word, "${"+name+"}") * len(variables[name])
			if growth > 0 && growth < budget {
				budget -= growth
				word = strings.ReplaceAll(word, "${"+name+"}", variables[name])
			}
		}
		expanded = append(expanded, word)
	}
	return expanded
}
