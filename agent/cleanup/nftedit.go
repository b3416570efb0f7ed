package cleanup

import "golang.org/x/sys/unix"

// Of linux/netfilter/nf_tables.h, where x/sys has no name for them.
const nftaTableName = unix.NFTA_TABLE_NAME

// deleteRule deletes one rule by the handle that the kernel gave it: handles are never used again in a table.
func (b *nftBatch) deleteRule(family uint8, table, chain string, handle uint64) {
	b.add(unix.NFT_MSG_DELRULE, 0, family,
		nftText(unix.NFTA_RULE_TABLE, table), nftText(unix.NFTA_RULE_CHAIN, chain), nftNumber64(unix.NFTA_RULE_HANDLE, handle))
}

// emptyChain deletes all rules of a chain of kube-proxy's own. Never call it for a built-in chain.
func (b *nftBatch) emptyChain(family uint8, table, chain string) {
	b.add(unix.NFT_MSG_DELRULE, 0, family, nftText(unix.NFTA_RULE_TABLE, table), nftText(unix.NFTA_RULE_CHAIN, chain))
}

// deleteChain deletes a chain, and what rules it has. The kernel refuses while something still jumps there (EBUSY).
func (b *nftBatch) deleteChain(family uint8, table, chain string) {
	b.add(unix.NFT_MSG_DELCHAIN, 0, family, nftText(unix.NFTA_CHAIN_TABLE, table), nftText(unix.NFTA_CHAIN_NAME, chain))
}

// deleteEmptyChain deletes a chain in which nothing is left. The kernel refuses while anything is, or something still jumps
// there (EBUSY): that is what NLM_F_NONREC stands for (nf_tables_delchain).
func (b *nftBatch) deleteEmptyChain(family uint8, table, chain string) {
	b.add(unix.NFT_MSG_DELCHAIN, unix.NLM_F_NONREC, family, nftText(unix.NFTA_CHAIN_TABLE, table), nftText(unix.NFTA_CHAIN_NAME, chain))
}

// deleteTable deletes a table with all that is in it.
func (b *nftBatch) deleteTable(family uint8, table string) {
	b.add(unix.NFT_MSG_DELTABLE, 0, family, nftText(nftaTableName, table))
}
