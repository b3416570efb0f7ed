package lab_test

import (
	"strings"
	"testing"

	"offramp.dev/offramp/e2e/lab"
	"offramp.dev/offramp/e2e/lab/labtest"
)

func TestDisk(t *testing.T) {
	l := labtest.Start(t)
	guest := labtest.Boot(t, l, lab.VM{Name: "disk", Kernel: "5.10", Disk: 32})
	if err := guest.MountDisk(t.Context(), "/var/lib/offramp"); err != nil {
		t.Fatal(err)
	}
	kind, err := guest.Output(t.Context(), "busybox", "stat", "-f", "-c", "%T", "/var/lib/offramp")
	if err != nil || !strings.HasPrefix(kind, "ext2/ext3") {
		t.Errorf("the file system is %q (%v)", kind, err)
	}
	if err := guest.Put(t.Context(), "/var/lib/offramp/journal", strings.NewReader("x"), 0o600); err != nil {
		t.Error(err)
	}
}
