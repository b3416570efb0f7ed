package lab_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

func TestBoot(t *testing.T) {
	l := labtest.Start(t)
	for _, kernel := range lab.Kernels() {
		t.Run(kernel, func(t *testing.T) {
			guest := labtest.Boot(t, l, lab.VM{Name: "boot", Kernel: kernel})
			out, err := guest.Output(t.Context(), "uname", "-r")
			if err != nil || !strings.HasPrefix(out, kernel+".") {
				t.Errorf("uname -r says %q (%v), want %s.…", out, err, kernel)
			}
		})
	}
}
