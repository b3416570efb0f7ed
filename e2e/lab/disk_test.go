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

// What was written to the disk and synced is there for the next guest after the first lost power.
func TestDiskOutlivesPowerOff(t *testing.T) {
	l := labtest.Start(t)
	first := labtest.Boot(t, l, lab.VM{Name: "before", Kernel: "5.10", Disk: 32})
	if err := first.MountDisk(t.Context(), "/mnt"); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Output(t.Context(), "sh", "-c", "echo kept > /mnt/kept; sync"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := labtest.Boot(t, l, lab.VM{Name: "after", Kernel: "5.10", DiskOf: first})
	if err := second.MountDisk(t.Context(), "/mnt"); err != nil {
		t.Fatal(err)
	}
	if kept, err := second.Get(t.Context(), "/mnt/kept"); err != nil || string(kept) != "kept\n" {
		t.Errorf("the file holds %q (%v)", kept, err)
	}
}
