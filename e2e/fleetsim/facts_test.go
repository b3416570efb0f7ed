package fleetsim

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"offramp.dev/offramp/internal/facts"
)

// leastReport is what the median report has to hold at least, in bytes.
const leastReport = 2600

func load(t *testing.T) *Templates {
	t.Helper()
	templates, err := LoadTemplates()
	if err != nil {
		t.Fatal(err)
	}
	return templates
}

// sections returns the encoded sections of a node, each judged as an aggregator judges it.
func sections(t *testing.T, templates *Templates, of State) [][]byte {
	t.Helper()
	node, err := templates.Facts(of, time.Unix(1_800_000_000, 0))
	if err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, section := range node.GetSections() {
		encoded, _, err := facts.Encode(section.GetStable())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := facts.Decode(section.GetKind(), encoded); err != nil {
			t.Errorf("an aggregator refuses %v: %v", section.GetKind(), err)
		}
		if err := facts.CheckVolatile(section.GetKind(), section.GetVolatile()); err != nil {
			t.Errorf("an aggregator refuses what moves of %v: %v", section.GetKind(), err)
		}
		all = append(all, encoded)
		all = append(all, make([]byte, proto.Size(section.GetVolatile())))
	}
	return all
}

func TestTheMedianReportIsAsLargeAsARealOne(t *testing.T) {
	templates := load(t)
	var sizes []int
	for number, name := range Names(100) {
		size := 0
		for _, section := range sections(t, templates, State{Name: name, Address: nodeAddress(number), Number: number}) {
			size += len(section)
		}
		sizes = append(sizes, size)
	}
	slices.Sort(sizes)
	t.Logf("reports of %d to %d bytes, the median %d", sizes[0], sizes[99], sizes[50])
	if sizes[50] < leastReport {
		t.Errorf("the median report has %d bytes, less than %d", sizes[50], leastReport)
	}
}

// Nodes in one state share what nodes share, and no more: at least what has a name, an address or a time differs.
func TestNodesDiffer(t *testing.T) {
	templates := load(t)
	states := len(templates.texts)
	one := sections(t, templates, State{Name: "a", Address: "10.0.0.1", Number: 0})
	other := sections(t, templates, State{Name: "b", Address: "10.0.0.2", Number: states})
	changed := sections(t, templates, State{Name: "a", Address: "10.0.0.1", Number: 0, Version: 1})
	if same := equal(one, other); same == len(one) || same == 0 {
		t.Errorf("%d of %d sections of two nodes are the same", same, len(one))
	}
	if equal(one, changed) == len(one) {
		t.Error("a change changes nothing")
	}
}

func equal(a, b [][]byte) (same int) {
	for i := range a {
		if i < len(b) && string(a[i]) == string(b[i]) {
			same++
		}
	}
	return same
}
