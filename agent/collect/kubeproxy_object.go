package collect

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSettings bounds each list of settings that is reported.
	maxSettings = 64
	// maxSetting bounds one text among them, in bytes.
	maxSetting = 256
	// maxMarkBit is the highest bit of a packet's mark.
	maxMarkBit = 31
)

// clean makes a text of a configuration fit to be reported.
func clean(text string) string { return cut(printable([]byte(text)), maxSetting) }

func bounded(items []string) []string {
	items = items[:min(len(items), maxSettings)]
	for i, item := range items {
		items[i] = clean(item)
	}
	return items
}

// first returns the value of the first of these names that the object has.
func (o object) first(names []string) any {
	for _, name := range names {
		if value, found := o[name]; found {
			return value
		}
	}
	return nil
}

func (o object) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { _, found := o[name]; return found })
}

// text returns a text, and "" for anything else.
func (o object) text(names ...string) string {
	text, _ := o.first(names).(string)
	return clean(text)
}

// on returns a truth value, and false for anything else. k3s and rke2 take it as a text, too.
func (o object) on(names ...string) bool {
	switch value := o.first(names).(type) {
	case bool:
		return value
	case string:
		return isTrue(value)
	default:
		return false
	}
}

func (o object) object(names ...string) object {
	inner, _ := o.first(names).(map[string]any)
	return inner
}

// objects returns the objects of a list; what else is in it is left out.
func (o object) objects(names ...string) []object {
	var items []object
	list, _ := o.first(names).([]any)
	for _, item := range list {
		if inner, ok := item.(map[string]any); ok {
			items = append(items, inner)
		}
	}
	return items
}

// words returns the texts of a list in full, or a single text as a list of one.
func (o object) words(names ...string) []string {
	switch value := o.first(names).(type) {
	case string:
		return []string{value}
	case bool, float64:
		return []string{fmt.Sprint(value)}
	case []any:
		var words []string
		for _, item := range value {
			if item != nil {
				words = append(words, fmt.Sprint(item))
			}
		}
		return words
	default:
		return nil
	}
}

// list returns the texts of a list, fit to be reported.
func (o object) list(names ...string) []string { return bounded(o.words(names...)) }

// bit returns the number of a bit of the mark, and -1 where none is set.
func (o object) bit(names ...string) int32 {
	number, ok := o.first(names).(float64)
	if !ok || number != math.Trunc(number) || number < 0 || number > maxMarkBit {
		return -1
	}
	return int32(number)
}

func parseBit(text string) int32 {
	bit, err := strconv.ParseUint(text, 10, 8)
	if err != nil || bit > maxMarkBit {
		return -1
	}
	return int32(bit)
}

// gates writes feature gates as "KubeProxyIPVS=true", sorted.
func (o object) gates() []string {
	var gates []string
	for name, value := range o {
		if on, ok := value.(bool); ok {
			gates = append(gates, name+"="+strconv.FormatBool(on))
		}
	}
	slices.Sort(gates)
	return bounded(gates)
}

// gatesFromFlags writes the items of --feature-gates the same way; the last of a name counts.
func gatesFromFlags(items []string) []string {
	gates := object{}
	for _, item := range items {
		if name, value, found := strings.Cut(item, "="); found {
			gates[name] = isTrue(value)
		}
	}
	return gates.gates()
}
