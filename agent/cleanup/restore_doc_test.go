package cleanup

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"offramp.dev/offramp/internal/kubeproxy"
	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

const restoreHead = `# The way back

` + "`offramp-agent cleanup restore [ID]`" + ` brings back what a clean-up removed, from the backup that was written before its first
change, in the order nfacct objects, ipsets, chains and jumps, tables of nftables mode, virtual servers, kube-ipvs0, sysctls.

- **Nothing that is there is touched.** A set, chain, table, virtual server or link of the same name stays as it is: kube-proxy,
  or somebody else, has made it since. A jump comes back only together with the chain that it leads to, or
  where that chain never went and no such jump stands there.
- **A reboot ends it.** What the backup saved belonged to a kernel that is gone.
- **Under an unknown mode nothing comes back.**
- Rules of the nft backend come back from the kernel's own bytes, in one transaction for each family, at the places where they
  stood; rules of iptables-legacy from the text that iptables-legacy-restore itself printed, in one go for each table.
- Addresses that another link has by now are left out of kube-ipvs0.

This file is written by a test of agent/cleanup: ` + "`go test ./agent/cleanup -run TestRestoreDoc -update`" + `.

## What comes back while which kube-proxy runs

`

const restoreTail = `
Chains and jumps, by who made them:

`

const restoreFoot = `
What does not come back by itself can be brought back by hand: the backup's folder has each kind in the format of its native
tool, and manifest.json says with which command. Under a live kube-proxy do so only after it was moved back to the mode that
made these things: virtual servers and kube-ipvs0 beside it take traffic away from it.

| file | by hand |
|---|---|
| ` + "`iptables-nft.rules`, `ip6tables-nft.rules`, `iptables-legacy.rules`, `ip6tables-legacy.rules`" + ` | ` + "`TOOL-restore --noflush < FILE`" + `; after the sets. Lines that begin with "only offramp-agent can restore this" hold a match that was not decoded. |
| ` + "`ipset.save`" + ` | ` + "`ipset restore < ipset.save`" + ` |
| ` + "`ipvsadm.save`" + ` | ` + "`ipvsadm -R < ipvsadm.save`" + ` |
| ` + "`ip.batch`" + ` | ` + "`ip -batch ip.batch`" + ` |
| ` + "`nfacct.save`" + ` | ` + "`nfacct add NAME`" + ` for each |
| ` + "`sysctl.conf`" + ` | ` + "`sysctl -p sysctl.conf`" + ` |
| ` + "`objects.json`" + ` | read by offramp-agent alone; tables of nftables mode are only in here |
`

func restoreDoc() string {
	modes := []offrampv1.ProxyMode{
		offrampv1.ProxyMode_PROXY_MODE_NONE, offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_IPTABLES,
		offrampv1.ProxyMode_PROXY_MODE_IPVS, offrampv1.ProxyMode_PROXY_MODE_UNKNOWN,
	}
	var doc strings.Builder
	doc.WriteString(restoreHead)
	row := func(name string, allows func(offrampv1.ProxyMode) bool) {
		fmt.Fprintf(&doc, "| %s |", name)
		for _, mode := range modes {
			fmt.Fprintf(&doc, " %s |", map[bool]string{true: "yes", false: "no"}[allows(mode)])
		}
		doc.WriteByte('\n')
	}
	head := func(first string) {
		fmt.Fprintf(&doc, "| %s | none | nftables | iptables | ipvs | unknown |\n|---|---|---|---|---|---|\n", first)
	}
	head("what")
	for _, class := range []restoreClass{
		restoreAccounting, restoreSets, restoreChains, restoreTables, restoreServers, restoreLink, restoreSysctls,
	} {
		row(string(class), func(mode offrampv1.ProxyMode) bool { return restoreAllows(class, mode) })
	}
	doc.WriteString(restoreTail)
	head("made by")
	for _, owner := range []kubeproxy.Owner{kubeproxy.OwnerIPVS, kubeproxy.OwnerIPTables, kubeproxy.OwnerShared} {
		row(string(owner), func(mode offrampv1.ProxyMode) bool { return restoreAllowsOwner(owner, mode) })
	}
	doc.WriteString(restoreFoot)
	return doc.String()
}

// docs/restore.md says what the code does.
func TestRestoreDoc(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "restore.md")
	want := restoreDoc()
	if asked := flag.Lookup("update"); asked != nil && asked.Value.String() == "true" {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("the code (-), docs/restore.md (+):\n%s", diff)
	}
}

// By hand from promise 7: under a live nftables or iptables kube-proxy virtual servers and the link never come back.
func TestNothingComesBackThatWouldDoHarm(t *testing.T) {
	for _, mode := range []offrampv1.ProxyMode{
		offrampv1.ProxyMode_PROXY_MODE_NFTABLES, offrampv1.ProxyMode_PROXY_MODE_IPTABLES, offrampv1.ProxyMode_PROXY_MODE_IPVS,
		offrampv1.ProxyMode_PROXY_MODE_UNKNOWN, offrampv1.ProxyMode_PROXY_MODE_UNSPECIFIED,
	} {
		for _, class := range []restoreClass{restoreServers, restoreLink, restoreTables} {
			if restoreAllows(class, mode) {
				t.Errorf("%s come back under %v", class, mode)
			}
		}
	}
	for _, owner := range []kubeproxy.Owner{kubeproxy.OwnerKubelet, kubeproxy.OwnerKernel, kubeproxy.OwnerUnknown, kubeproxy.Foreign("calico")} {
		if restoreAllowsOwner(owner, offrampv1.ProxyMode_PROXY_MODE_NONE) {
			t.Errorf("chains of %s come back", owner)
		}
	}
}
