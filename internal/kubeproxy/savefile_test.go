package kubeproxy_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/internal/kubeproxy"
)

// saved is what an iptables-save or ip6tables-save file holds.
type saved struct {
	chains []kubeproxy.Chain // user-defined ones
	jumps  []savedJump
	// services are the rules of nat KUBE-SERVICES.
	services []kubeproxy.ChainRule
}

type savedJump struct {
	kubeproxy.Jump
	text string // the whole line
}

// parseSave reads the output of iptables-save. It is a reader of its own, not the product's.
func parseSave(t *testing.T, text string, family kubeproxy.Family) saved {
	t.Helper()
	var out saved
	var table string
	user := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
			clear(user)
		case strings.HasPrefix(line, ":"):
			name, rest, _ := strings.Cut(line[1:], " ")
			if strings.HasPrefix(rest, "-") {
				user[name] = true
				out.chains = append(out.chains, kubeproxy.Chain{Table: table, Name: name, Family: family})
			}
		case strings.HasPrefix(line, "-A "):
			out.addRule(t, table, line, family, user)
		}
	}
	return out
}

func (s *saved) addRule(t *testing.T, table, line string, family kubeproxy.Family, user map[string]bool) {
	t.Helper()
	rule := parseRule(t, words(t, line))
	rule.Table, rule.Family, rule.text = table, family, line
	to := rule.To
	if user[to] {
		s.jumps = append(s.jumps, rule.savedJump)
	} else {
		to = ""
	}
	if table == "nat" && rule.From == "KUBE-SERVICES" {
		s.services = append(s.services, kubeproxy.ChainRule{HasSetMatch: rule.hasSet, Comment: rule.Comment, To: to})
	}
}

type parsedRule struct {
	savedJump
	hasSet bool
}

func parseRule(t *testing.T, args []string) parsedRule {
	t.Helper()
	var rule parsedRule
	conntracks := 0
	for i := 0; i < len(args); i++ {
		next := func() string {
			i++
			if i >= len(args) {
				t.Fatalf("rule ends early: %q", args)
			}
			return args[i]
		}
		switch args[i] {
		case "-A":
			rule.From = next()
		case "-j", "-g":
			rule.To = next()
			return rule.withState(conntracks)
		case "--comment":
			rule.Comment = next()
		case "-m":
			switch next() {
			case "comment":
			case "conntrack":
				conntracks++
			case "set":
				rule.hasSet = true
				rule.OtherMatches = true
			default:
				rule.OtherMatches = true
			}
		case "--ctstate":
			rule.CtStateNew = next() == "NEW"
			rule.OtherMatches = rule.OtherMatches || !rule.CtStateNew
		default:
			rule.OtherMatches = true
		}
	}
	return rule
}

func (r parsedRule) withState(conntracks int) parsedRule {
	r.OtherMatches = r.OtherMatches || conntracks > 1 || (conntracks == 1 && !r.CtStateNew)
	return r
}

// words splits a line at blanks, minding double quotes and backslashes within them.
func words(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	var word strings.Builder
	quoted, started := false, false
	for i := 0; i < len(line); i++ {
		switch char := line[i]; {
		case char == '"':
			quoted, started = !quoted, true
		case char == '\\' && quoted && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case char == ' ' && !quoted:
			if started {
				out = append(out, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteByte(char)
			started = true
		}
	}
	if quoted {
		t.Fatalf("open quote: %s", line)
	}
	if started {
		out = append(out, word.String())
	}
	return out
}
