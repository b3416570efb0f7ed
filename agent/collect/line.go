package collect

import (
	"encoding/hex"
	"fmt"
	"strings"

	"offramp.dev/offramp/internal/kubeproxy"
)

// ruleLine is a rule for people to read: as iptables-save would print it where it is understood, and what is not as its name
// and its bytes.
type ruleLine struct {
	words []string
	// targets are the chains that it leads to, bytes as the kernel has them.
	targets []string
	// sets are anonymous sets or maps of nf_tables that it looks into.
	sets []string
}

func (l *ruleLine) add(words ...string) { l.words = append(l.words, words...) }

func (l *ruleLine) text(chain string) string {
	return "-A " + printable([]byte(chain)) + " " + strings.Join(l.words, " ")
}

// says reports whether the line has these words one after the other.
func (l *ruleLine) says(words ...string) bool {
	return strings.Contains(" "+strings.Join(l.words, " ")+" ", " "+strings.Join(words, " ")+" ")
}

func (l *ruleLine) jump(option, chain string) {
	l.add(option, printable([]byte(chain)))
	l.targets = append(l.targets, chain)
}

// maxRawBytes bounds how much is shown of what is not understood.
const maxRawBytes = 64

// raw shows data that is not understood: without the zeros that it ends in.
func raw(data []byte) string {
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	if end > maxRawBytes {
		return hex.EncodeToString(data[:maxRawBytes]) + "…"
	}
	return hex.EncodeToString(data[:end])
}

// lineNames names what rules know by number.
type lineNames struct {
	family kubeproxy.Family
	sets   setNames
}

func (n lineNames) set(index uint16) string {
	if set, known := n.sets[index]; known {
		return printable([]byte(set.Name))
	}
	return fmt.Sprintf("#%d", index)
}

// not is what iptables-save writes before an option that is inverted.
func (l *ruleLine) not(inverted bool) {
	if inverted {
		l.add("!")
	}
}

// quoted writes a comment as iptables-save does: in quotes unless it is but letters, digits, "-" and "_".
func quoted(text []byte) string {
	shown := printable(text)
	plain := !strings.ContainsFunc(shown, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	if plain && shown != "" {
		return shown
	}
	return `"` + strings.NewReplacer(`"`, `\"`, `'`, `\'`).Replace(shown) + `"`
}
