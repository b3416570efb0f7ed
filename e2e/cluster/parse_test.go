package cluster

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseState(t *testing.T) {
	const text = `==> ipvsadm
-A -t 10.96.0.1:443 -s rr
-a -t 10.96.0.1:443 -r 198.18.0.1:6443 -m -w 1
-A -f 7 -s rr
==> ipset
create KUBE-CLUSTER-IP hash:ip,port family inet hashsize 1024 maxelem 65536
add KUBE-CLUSTER-IP 10.96.0.1,tcp:443
add KUBE-CLUSTER-IP 10.96.0.10,tcp:80
create KUBE-6-CLUSTER-IP hash:ip,port family inet6 hashsize 1024 maxelem 65536
add KUBE-6-CLUSTER-IP fd00:10:96::10,tcp:80
create cali40s hash:ip family inet
add cali40s 1.2.3.4
==> link
5: kube-ipvs0    inet 10.96.0.1/32 scope global kube-ipvs0\       valid_lft forever
5: kube-ipvs0    inet6 fd00:10:96::10/128 scope global \       valid_lft forever
there
==> nft4
*nat
:OUTPUT ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:KUBE-FIREWALL - [0:0]
:CNI-HOSTPORT - [0:0]
-A OUTPUT -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-SERVICES -j RETURN
-A CNI-HOSTPORT -j RETURN
==> nft6
==> legacy4
:KUBE-PROXY-CANARY - [0:0]
==> legacy6
==> tables
table ip nat
table ip kube-proxy
table ip6 kube-proxy
table ip not-kube-proxy
==> sysctls
vs/conntrack:1
conf/all/arp_ignore:0
`
	want := State{
		VirtualServers: 2, RealServers: 1, Sets4: 1, Sets6: 1, Entries4: 2, Entries6: 1, Link: true, Addresses: 2,
		NFT: Rules{Chains4: 1, Rules4: 2}, Legacy: Rules{Chains4: 1}, Tables: []string{"ip kube-proxy", "ip6 kube-proxy"},
		Sysctls: map[string]string{"vs/conntrack": "1", "conf/all/arp_ignore": "0"},
	}
	if diff := cmp.Diff(want, parseState(text)); diff != "" {
		t.Errorf("state differs (-want +got):\n%s", diff)
	}
}

func TestSynced(t *testing.T) {
	const name = "kubeproxy_sync_proxy_rules_last_"
	last4, last6 := name+`timestamp_seconds{ip_family="IPv4"} 1.7e+09`+"\n", name+`timestamp_seconds{ip_family="IPv6"} 1.7e+09`+"\n"
	for _, c := range []struct {
		name, metrics string
		want          bool
	}{
		{"nothing yet", "", false},
		{"one family", last4, false},
		{"both families", last4 + last6, true},
		{"a family that never was", last4 + name + `timestamp_seconds{ip_family="IPv6"} 0` + "\n", false},
		{"asked again since", last4 + last6 + name + `queued_timestamp_seconds{ip_family="IPv6"} 1.8e+09` + "\n", false},
		{"asked before", last4 + last6 + name + `queued_timestamp_seconds{ip_family="IPv6"} 1.6e+09` + "\n", true},
		{"no number", last4 + name + `timestamp_seconds{ip_family="IPv6"} soon` + "\n", false},
	} {
		if got := synced(c.metrics); got != c.want {
			t.Errorf("%s: in sync is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestInPrivate(t *testing.T) {
	files := map[string]string{"b": "two", "a": "one"}
	command, stdin, err := inPrivate(files, "program", "argument")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/mnt", "program", "argument"}, command[len(command)-3:]); diff != "" {
		t.Errorf("the command ends otherwise (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(stdin)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[header.Name] = string(content)
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

func TestOwnMetrics(t *testing.T) {
	const metrics = `# HELP go_gc_duration_seconds x
go_gc_duration_seconds 1
# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram
kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="1"} 1
kubeproxy_sync_proxy_rules_duration_seconds_sum 1
kubernetes_build_info{git_version="v1.37.2"} 1
`
	const want = `# TYPE kubeproxy_sync_proxy_rules_duration_seconds histogram
kubeproxy_sync_proxy_rules_duration_seconds_sum 1
kubernetes_build_info{git_version="v1.37.2"} 1
`
	if got := ownMetrics(metrics); got != want {
		t.Errorf("metrics are\n%s\nwant\n%s", got, want)
	}
}

func TestWithoutWarnings(t *testing.T) {
	if got := withoutWarnings("# Warning: iptables-legacy tables present\nXT target MASQUERADE not found\n"); got != "" {
		t.Errorf("%q is left", got)
	}
	if got := withoutWarnings("# Warning: a\nipset: cannot open session\n"); got != "ipset: cannot open session" {
		t.Errorf("%q is left, want the error", got)
	}
}

func TestPartsKeepsEmptyOnes(t *testing.T) {
	want := map[string]string{"a": "1\n2\n", "b": "", "c": "3\n"}
	if diff := cmp.Diff(want, parts("==> a\n1\n2\n==> b\n==> c\n3\n")); diff != "" {
		t.Errorf("parts differ (-want +got):\n%s", diff)
	}
}
