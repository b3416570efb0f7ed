package captures_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"offramp.dev/offramp/e2e/captures"
)

func TestNames(t *testing.T) {
	want := []string{
		"after-kube-proxy-cleanup", "iptables", "iptables-sync-failed", "ipvs", "ipvs-then-iptables", "ipvs-then-nftables",
		"nftables",
	}
	if got := captures.Names(); !slices.Equal(got, want) {
		t.Errorf("captures are %v, want %v", got, want)
	}
}

func TestEveryCaptureHasWhatEveryNodeHas(t *testing.T) {
	for _, name := range captures.Names() {
		for _, file := range []string{
			"owners.txt", "uname.txt", "sysctls.txt", "ip-addr.txt", "iptables-nft-save.txt", "ip6tables-nft-save.txt",
			"nft-ruleset.txt", "proc-net-ip_vs.txt",
		} {
			if content, err := captures.Read(name, file); err != nil || len(content) == 0 {
				t.Errorf("%s/%s: %d bytes, error %v", name, file, len(content), err)
			}
		}
	}
}

func TestReadSaysWhatIsMissing(t *testing.T) {
	if _, err := captures.Read("nftables", "ipset-save.txt"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, want that of a missing file", err)
	}
}
