package kube_test

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/cluster/kube"
	"offramp.dev/offramp/e2e/lab"
)

// What was built says that it is what upstream calls so. Nothing is built here.
func TestVersions(t *testing.T) {
	for program, want := range map[kube.Program]string{
		kube.Etcd:      "etcd Version: 3.7.3",
		kube.APIServer: "Kubernetes v1.37.2",
		kube.Proxy137:  "Kubernetes v1.37.2",
		kube.Proxy134:  "Kubernetes v1.34.4",

		kube.Kubelet:    "Kubernetes v1.37.2",
		kube.Controller: "Kubernetes v1.37.2",
		kube.Scheduler:  "Kubernetes v1.37.2",
		kube.CoreDNS:    "CoreDNS-1.15.0",
	} {
		t.Run(program.Name+" "+program.Version, func(t *testing.T) {
			there, err := kube.Cached(t.Context(), program)
			if err != nil {
				t.Fatal(err)
			}
			if !there {
				t.Skip("it is not in the cache; make e2e builds it")
			}
			path, err := kube.Build(t.Context(), program, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), path, "--version").Output()
			if first, _, _ := strings.Cut(string(out), "\n"); first != want || err != nil {
				t.Errorf("it says it is %q (%v), want %q", first, err, want)
			}
		})
	}
}

func TestAnEmptyCacheHasNothing(t *testing.T) {
	t.Setenv(lab.CacheVariable, t.TempDir())
	if there, err := kube.Cached(t.Context(), kube.Etcd); there || err != nil {
		t.Errorf("an empty cache has etcd: %v (%v)", there, err)
	}
}
