package cleanup

// Guards lists every guard. docs/guards.md says the same; a test compares.
func Guards() []Guard {
	return append(deciding(), doing()...)
}

func deciding() []Guard {
	return []Guard{
		{
			ID: GuardModeUnknown, Title: "It could not be told which mode of kube-proxy runs, or that none does",
			Remedy: "Let the agent see the host's processes and kube-proxy's metrics address; where no kube-proxy is to run, say so with --assert-no-kube-proxy REASON.",
		},
		{
			ID: GuardModeIsNotTarget, Title: "kube-proxy does not run in the target mode",
			Remedy: "Switch kube-proxy to the target mode first and restart it, or choose the target that runs.",
		},
		{
			ID: GuardNotInSync, Title: "kube-proxy has not written all it was told to",
			Remedy: "Look into kube-proxy's log, mend what fails and restart it.",
		},
		{
			ID: GuardSyncUnknown, Title: "It could not be told whether kube-proxy has written all it was told to",
			Remedy: "Let the agent reach kube-proxy's metrics and health addresses; try again where they only did not answer in time.",
		},
		{
			ID: GuardNeverSynced, Title: "The kernel does not show what the running mode should have written",
			Remedy: "Find out in kube-proxy's log why its rules could not be written, mend that and restart it. What the old mode left may carry the traffic.",
		},
		{
			ID: GuardSharedMatchesSets, Title: "A chain that iptables mode should have rewritten still matches ipsets of ipvs mode",
			Remedy: "iptables mode never synced here and IPVS carries the traffic: mend kube-proxy and restart it.",
		},
		{
			ID: GuardSharedJumpsAway, Title: "A chain that ipvs mode should have rewritten still jumps to a chain of iptables mode",
			Remedy: "ipvs mode never synced here: mend kube-proxy and restart it.",
		},
		{
			ID: GuardMixedBackends, Title: "kube-proxy's chains stand in both iptables backends, and one of them is in use",
			Remedy: "Reboot the node, or move it to nftables mode: then both backends can be cleaned.",
		},
		{
			ID: GuardForeignJump, Title: "A rule of somebody else jumps to a chain that would go", Overridable: false,
			Remedy: "Find out who made that rule and have it removed or changed; a chain that is jumped to cannot go.",
		},
		{
			ID: GuardForeignRuleInside, Title: "A chain that would go holds a rule of somebody else", Overridable: true,
			Remedy: "Find out who made that rule and move it to a chain of its own.",
		},
		{
			ID: GuardForeignSetMatch, Title: "A rule of somebody else matches an ipset that would go", Overridable: false,
			Remedy: "Find out who made that rule and have it removed or changed; a set that is matched cannot go.",
		},
		{
			ID: GuardForeignMark, Title: "A rule of somebody else uses the mark by which kube-proxy masquerades", Overridable: true,
			Remedy: "Find out whether its packets are still to be masqueraded: the chain that does it would go.",
		},
		{
			ID: GuardCNIConfiguration, Title: "A CNI configuration names a chain that would go", Overridable: true,
			Remedy: "Remove externalSetMarkChain from it (portmap then uses a chain of its own) and restart what reads it.",
		},
		{
			ID: GuardBootFile, Title: "A file that is applied at boot names what would go", Overridable: true,
			Remedy: "Take kube-proxy's names out of that file: it would fail at the next boot, or bring them back.",
		},
		{
			ID: GuardHostUnread, Title: "The host's files could not be looked at for names of what would go", Overridable: true,
			Remedy: "Let the agent see the host's root file system (--host-root).",
		},
		{
			ID: GuardConnections, Title: "Established connections lead through virtual servers that would go", Overridable: true,
			Remedy: "Wait for them with --wait-drained DURATION, or say how many may be cut with --max-connections N.",
		},
		{
			ID: GuardSockets, Title: "Sockets of the host have an address of kube-ipvs0 as their own", Overridable: true,
			Remedy: "Wait for them with --wait-drained DURATION, or have them closed with --close-sockets.",
		},
		{
			ID: GuardAcceptUnderDrop, Title: "Rules that accept traffic would go from a chain that drops what is not accepted", Overridable: true,
			Remedy: "Have the host's firewall accept the traffic of Services (forwarded to pods, health-check node ports) by itself.",
		},
		{
			ID: GuardAPIServer, Title: "The API server that a kubeconfig of this node names is reached through a virtual server that would go", Overridable: true,
			Remedy: "Point the kubeconfig to an address that is not kube-proxy's.",
		},
		{
			ID: GuardKeptServerNeedsLink, Title: "A virtual server that stays has its address on kube-ipvs0 alone", Overridable: true,
			Remedy: "Find out who made the virtual server, and give its address to a link of its own or remove it.",
		},
		{
			ID: GuardUnattributed, Title: "Virtual servers could not be attributed to anybody", Overridable: false,
			Remedy: "Let the agent read the ipsets and the node's addresses (run it as root).",
		},
		{
			ID: GuardSectionUnread, Title: "A part of the node could not be read, or kept changing",
			Remedy: "Run the agent as root in the host's network namespace; look at what keeps changing it.",
		},
		{
			ID: GuardTableOwned, Title: "A table of kube-proxy's belongs to a process that still runs",
			Remedy: "End the process that made it: the table then ends with it.",
		},
	}
}

func doing() []Guard {
	return []Guard{
		{
			ID: GuardLockHeld, Title: "The lock of iptables is held",
			Remedy: "Find out who holds /run/xtables.lock and try again.",
		},
		{
			ID: GuardCleanupRunning, Title: "Another clean-up is running on this node",
			Remedy: "Wait for it to end.",
		},
		{
			ID: GuardNoRoom, Title: "There is no room for the backup and the journal",
			Remedy: "Make room where --state-dir is, or choose another directory.",
		},
		{
			ID: GuardNoDurableStorage, Title: "There is no storage that survives a restart",
			Remedy: "Choose a --state-dir on a disk of the host.",
		},
		{
			ID: GuardPlanChanged, Title: "The node is not as it was when the plan was made",
			Remedy: "Make a new plan, look at it and apply that.",
		},
		{
			ID: GuardNotDrained, Title: "Connections that would be cut were still there when the wait ran out",
			Remedy: "Wait longer (--wait-drained), say how many may be cut (--max-connections) or close the sockets (--close-sockets).",
		},
	}
}
