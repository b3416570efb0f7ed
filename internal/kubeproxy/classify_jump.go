package kubeproxy

// JumpOwner tells whose a jump is.
//
// One that stands in a built-in chain is kube-proxy's or kubelet's only with exactly their table, chains, comment and
// matches; with any other text it is OwnerUnknown when it leads to a chain of theirs, and else belongs to whoever owns
// the chain it leads to. One that stands in somebody's own chain belongs to that chain's owner, except that what leads
// out of a chain of kube-proxy's or kubelet's into somebody else's was put there by that somebody.
func JumpOwner(jump Jump) Owner {
	from := ChainOwner(Chain{Table: jump.Table, Name: jump.From, Family: jump.Family})
	to := ChainOwner(Chain{Table: jump.Table, Name: jump.To, Family: jump.Family})
	switch {
	case from == OwnerKernel:
		return builtinJumpOwner(jump, to)
	case isKubernetes(from) && !isKubernetes(to):
		return to
	default:
		return from
	}
}

func builtinJumpOwner(jump Jump, to Owner) Owner {
	if !isKubernetes(to) {
		return to
	}
	if jump.OtherMatches {
		return OwnerUnknown
	}
	rule := jumpRule{jump.Table, jump.From, jump.To, jump.Comment, jump.CtStateNew}
	if owner, found := jumpOwners()[rule]; found {
		return owner
	}
	return OwnerUnknown
}

func isKubernetes(owner Owner) bool { return owner.IsKubeProxy() || owner == OwnerKubelet }
