package kubeproxy

// ChainOwner tells whose a chain is, by its name and table alone.
// Built-in chains, and names that nobody known uses, are OwnerUnknown... to be filled in.
func ChainOwner(Chain) Owner { return OwnerUnknown }

// JumpOwner tells whose a jump is. It is kube-proxy's only with exactly kube-proxy's table, chains, comment and matches.
func JumpOwner(Jump) Owner { return OwnerUnknown }

// SetOwner tells whose an ipset is.
func SetOwner(Set) Owner { return OwnerUnknown }

// TableOwner tells whose a native nftables table is.
func TableOwner(Table) Owner { return OwnerUnknown }

// LinkOwner tells whose a link is.
func LinkOwner(Link) Owner { return OwnerUnknown }

// VirtualServerOwner tells whose a virtual server is, and what that was concluded from in a few words.
// sets is nil when kube-proxy's sets could not be read: then nothing can be attributed.
func VirtualServerOwner(VirtualServer, ServicePorts, LocalAddresses) (Owner, string) {
	return OwnerUnknown, ""
}
