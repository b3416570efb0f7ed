package readiness

// Rules returns every rule, sorted by group: what the node is, what runs, how it is configured, what was left, who else is
// there, what could not be read, what the cluster says.
func Rules() []Rule {
	groups := [][]Rule{
		kernelRules(), hostRules(), modeRules(), syncRules(), configRules(), leftoverRules(), trafficRules(), serviceRules(), foreignRules(),
		attributionRules(), readingRules(), clusterRules(),
	}
	var rules []Rule
	for _, group := range groups {
		rules = append(rules, group...)
	}
	return rules
}
