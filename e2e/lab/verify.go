package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// verify reads the restored state back with the native tools and compares it with the capture.
func (r restoring) verify(ctx context.Context) error {
	for _, check := range []struct {
		what, file string
		argv       []string
		keep       func(string) []string
	}{
		{"virtual and real servers", "ipvsadm-save.txt", []string{"ipvsadm", "-Sn"}, ipvsLines},
		{"sets", "ipset-save.txt", []string{"ipset", "save"}, setLines},
		{"iptables rules", "iptables-nft-save.txt", []string{"iptables-nft-save"}, ruleLines},
		{"ip6tables rules", "ip6tables-nft-save.txt", []string{"ip6tables-nft-save"}, ruleLines},
		{"legacy iptables rules", "iptables-legacy-save.txt", []string{"iptables-legacy-save"}, ruleLines},
		{"legacy ip6tables rules", "ip6tables-legacy-save.txt", []string{"ip6tables-legacy-save"}, ruleLines},
		{"nftables lines", "nft-ruleset.txt", []string{"nft", "list", "ruleset"}, tableLines},
		{"addresses", "ip-addr.txt", []string{"ip", "address", "show"}, addressLines},
	} {
		saved, err := r.optional(check.file)
		if err != nil {
			return err
		}
		if check.file == "ip-addr.txt" {
			saved = onNodeLink(saved)
		}
		want := check.keep(saved)
		if len(want) == 0 {
			// Asking for what was not there would load its module.
			continue
		}
		out, err := r.guest.Output(ctx, check.argv...)
		if err != nil {
			return err
		}
		if err := sameLines(check.what, want, check.keep(out)); err != nil {
			return err
		}
	}
	return nil
}

// sameLines compares two lists as sorted lines and names some of what differs.
func sameLines(what string, want, got []string) error {
	slices.Sort(want)
	slices.Sort(got)
	if slices.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("%d %s in the guest, %d in the capture; missing %q, too many %q",
		len(got), what, len(want), sample(without(want, got)), sample(without(got, want)))
}

func without(all, drop []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(drop, line) })
}

func sample(lines []string) []string { return lines[:min(len(lines), 3)] }

// matching returns the lines, without space around them, that keep takes.
func matching(text string, keep func(line string) bool) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); keep(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func ipvsLines(text string) []string {
	return matching(text, func(line string) bool { return strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, "-a ") })
}

// setLines has each set by name and type, and each entry. Sizes are left out: kernels choose them.
func setLines(text string) []string {
	lines := matching(text, func(line string) bool { return line != "" })
	for i, line := range lines {
		if fields := strings.Fields(line); fields[0] == "create" {
			lines[i] = strings.Join(fields[:3], " ")
		}
	}
	return lines
}

func ruleLines(text string) []string {
	return matching(text, func(line string) bool { return strings.HasPrefix(line, "-A ") })
}

// tableLines counts on nft's printing being the same for the same ruleset, but for the order of elements and the values
// of counters; a line is reduced to what is left of both.
func tableLines(text string) []string {
	lines := matching(kubeProxyTables(text), func(line string) bool { return line != "" })
	for i, line := range lines {
		words := strings.Fields(strings.NewReplacer(",", " ", "elements", "").Replace(line))
		lines[i] = fmt.Sprintf("%d words", len(words))
		if len(words) > 0 && (words[0] == "chain" || words[0] == "set" || words[0] == "map" || words[0] == "table") {
			lines[i] = strings.Join(words, " ")
		}
	}
	return lines
}

// addressLines has the addresses of eth0 and kube-ipvs0.
func addressLines(text string) []string {
	var lines []string
	for _, link := range parseLinks(text) {
		if link.name == "eth0" || link.name == dummyLink {
			for _, address := range link.addresses {
				lines = append(lines, link.name+" "+address)
			}
		}
	}
	return lines
}
