package lab

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestKernelsAreInOrder(t *testing.T) { compare(t, []string{"5.10", "6.1", "6.12"}, Kernels()) }

func TestWantedModule(t *testing.T) {
	for path, want := range map[string]bool{
		"net/netfilter/ipvs/ip_vs.ko": true, "net/netfilter/nf_tables.ko.xz": true, "drivers/net/dummy.ko": true,
		"drivers/net/dummy.ko.xz": true, "drivers/net/dummyish.ko": false, "drivers/net/ethernet/x.ko": false,
		"fs/ext4/ext4.ko": false, "net/netfilterish/x.ko": false, "drivers/virtio/virtio_pci.ko": true,
	} {
		if wantedModule(path) != want {
			t.Errorf("%s: want %v", path, want)
		}
	}
}

func TestOpenKernelSaysWhatToRemove(t *testing.T) {
	dir := t.TempDir()
	if _, err := openKernel("6.1", dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error for an empty folder is %v", err)
	}
	writeFile(t, filepath.Join(dir, "lib/modules/6.1.0-1-cloud-amd64/modules.dep"), "")
	if _, err := openKernel("6.1", dir); err == nil || !strings.Contains(err.Error(), "vmlinuz-6.1.0-1-cloud-amd64") {
		t.Errorf("error without an image is %v", err)
	}
	writeFile(t, filepath.Join(dir, "boot/vmlinuz-6.1.0-1-cloud-amd64"), "")
	if k, err := openKernel("6.1", dir); err != nil || k.release != "6.1.0-1-cloud-amd64" {
		t.Errorf("%+v (%v)", k, err)
	}
}

func TestParseAccel(t *testing.T) {
	for text, want := range map[string]Accel{"": Auto, "auto": Auto, "tcg": TCG, "kvm": KVM} {
		if got, err := ParseAccel(text); got != want || err != nil {
			t.Errorf("%q: %s (%v)", text, got, err)
		}
	}
	if _, err := ParseAccel("fast"); err == nil || !strings.Contains(err.Error(), AccelVariable) {
		t.Errorf("error is %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for number, want := range map[int]string{0: "198.18.0.1", 1: "198.18.1.2", 249: "198.18.1.250", 250: "198.18.2.1", 1000: "198.18.5.1"} {
		if got := address(trafficNetwork, number); got != want {
			t.Errorf("%d: %s, want %s", number, got, want)
		}
	}
}

func TestArgumentsChooseTheAcceleration(t *testing.T) {
	for accel, want := range map[Accel]string{TCG: "-accel tcg,thread=multi -cpu max ", KVM: "-accel kvm "} {
		line := strings.Join(arguments(machineSpec{accel: accel, memory: 512, number: 258}), " ")
		for _, part := range []string{want, "-smp 1 -m 512M", "mac=52:54:00:18:01:02", "mac=52:54:00:19:01:02", "-no-reboot"} {
			if !strings.Contains(line, part) {
				t.Errorf("%s: no %q in %s", accel, part, line)
			}
		}
	}
}

func TestConsoleNoticesALineInPieces(t *testing.T) {
	c := newConsole("up now")
	for _, piece := range []string{"booting\r\nu", "p n", "ow\r\n", "up now\r\n"} {
		if _, err := c.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-c.ready:
			if piece == "u" {
				t.Error("noticed too early")
			}
		default:
			if strings.HasPrefix(piece, "ow") {
				t.Error("not noticed")
			}
		}
	}
	compare(t, "booting\nup now\nup now\n", c.String())
	for range 100 {
		_, _ = c.Write([]byte("more\n"))
	}
	if lines := strings.Count(c.tail(), "\n") + 1; lines != 40 {
		t.Errorf("the tail has %d lines", lines)
	}
}

func TestBootRefusesBadNames(t *testing.T) {
	for _, name := range []string{"", "UPPER", "a b", "-a", "a-", "a=b", strings.Repeat("a", 64)} {
		if _, err := (&Lab{}).Boot(t.Context(), VM{Name: name, Kernel: "6.1"}); err == nil || !strings.Contains(err.Error(), "no name") {
			t.Errorf("%q: error is %v", name, err)
		}
	}
}

func TestUnknownKernelNamesTheKnown(t *testing.T) {
	_, err := (&Lab{}).kernel(t.Context(), "4.19")
	if err == nil || !strings.Contains(err.Error(), "5.10, 6.1, 6.12") {
		t.Errorf("error is %v", err)
	}
}

func TestCheckToolsSaysHowToGetThem(t *testing.T) {
	look := func(name string) (string, error) {
		if name == "ipvsadm" || name == "iptables-legacy" {
			return "", os.ErrNotExist
		}
		return "/bin/" + name, nil
	}
	err := checkTools(look)
	if err == nil || !strings.Contains(err.Error(), "not here: iptables-legacy, ipvsadm.") ||
		!strings.HasSuffix(err.Error(), "\n\tapt-get install --no-install-recommends iptables ipvsadm") {
		t.Errorf("error is %v", err)
	}
	if err := checkTools(func(string) (string, error) { return "", nil }); err != nil {
		t.Errorf("with everything there: %v", err)
	}
}

func TestFetchSaysWhatToDoWhenASuiteHasMoved(t *testing.T) {
	if _, err := lookProgram("apt-get"); err != nil {
		t.Skip("needs apt-get")
	}
	t.Setenv(MirrorVariable, "file:"+t.TempDir())
	err := fetchKernel(t.Context(), "bullseye", filepath.Join(t.TempDir(), "bullseye"))
	if err == nil || !strings.Contains(err.Error(), "set "+MirrorVariable) || !strings.Contains(err.Error(), "Debian bullseye") {
		t.Errorf("error is %v", err)
	}
}

// fakeProc writes the comm and stat files of processes, each given as its name and its parent.
func fakeProc(t *testing.T, processes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for pid, text := range processes {
		name, parent, _ := strings.Cut(text, "<")
		writeFile(t, filepath.Join(dir, pid, "comm"), name+"\n")
		writeFile(t, filepath.Join(dir, pid, "stat"), pid+" ("+name+") S "+parent+" 1 1 0 -1")
	}
	return dir
}

func TestGoAncestors(t *testing.T) {
	proc := fakeProc(t, map[string]string{
		"50": "vmexec<40", "40": "go<30", "30": "go<20", "20": "make<10", "10": "go<1",
		"60": "a) R (b<20", "70": "lab.test<1", "80": "orphan<0", "90": "x<91", "91": "gopher<1",
	})
	compare(t, []ancestor{{child: 50, pid: 40}, {child: 40, pid: 30}}, goAncestors(proc, 50))
	for _, pid := range []int{60, 70, 80, 90, 99} {
		if got := goAncestors(proc, pid); got != nil {
			t.Errorf("%d has ancestors %v", pid, got)
		}
	}
	if got := parent(proc, 60); got != 20 {
		t.Errorf("a name with parentheses has parent %d", got)
	}
}

func TestWaitForOrphaned(t *testing.T) {
	self := ancestor{child: os.Getpid(), pid: os.Getppid()}
	ctx, cancel := context.WithTimeout(t.Context(), 3*orphanPoll)
	defer cancel()
	began := time.Now()
	waitForOrphaned(ctx, []ancestor{self})
	if ctx.Err() == nil {
		t.Error("taken for an orphan")
	}
	waitForOrphaned(t.Context(), []ancestor{self, {child: os.Getpid(), pid: 1 << 30}})
	if took := time.Since(began); took > 20*orphanPoll {
		t.Errorf("noticed after %s", took)
	}
}

func TestPackagesHaveNoDuplicates(t *testing.T) {
	var names []string
	for _, p := range Packages() {
		if slices.Contains(names, p.Name) {
			t.Errorf("%s is named twice", p.Name)
		}
		names = append(names, p.Name)
	}
}
