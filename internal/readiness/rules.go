package readiness

// Rules returns every rule, sorted by group: what the node is, what runs, what was left, who else is there, what could
// not be read.
func Rules() []Rule {
	groups := [][]Rule{kernelRules(), modeRules(), syncRules(), leftoverRules(), foreignRules(), attributionRules(), readingRules()}
	var rules []Rule
	for _, group := range groups {
		rules = append(rules, group...)
	}
	return rules
}
