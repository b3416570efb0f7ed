package collect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	offrampv1 "offramp.dev/offramp/proto/offramp/v1"
)

func TestParseRelease(t *testing.T) {
	for release, want := range map[string][3]uint32{
		"6.18.44-fc-v782":                     {6, 18, 44},
		"5.14.0-427.13.1.el9_4.x86_64":        {5, 14, 0},
		"6.6.87.2-microsoft-standard-WSL2":    {6, 6, 87},
		"6.1.0-rc1+":                          {6, 1, 0},
		"6.8.0+deb13":                         {6, 8, 0},
		"6.8-rc1":                             {6, 8, 0},
		"5.10":                                {5, 10, 0},
		"4.18.0-553.el8_10.x86_64":            {4, 18, 0},
		"5.10.0-30-cloud-amd64":               {5, 10, 0},
		"6.1.":                                {6, 1, 0},
		"6":                                   {},
		"6-rc1":                               {},
		"6.x":                                 {},
		"":                                    {},
		"custom-6.1.0":                        {},
		"99999999999.1.0":                     {},
		"6.1.99999999999":                     {6, 1, 0},
		".6.1":                                {},
		"-6.1":                                {},
		strings.Repeat("9", 40) + "." + "1.2": {},
	} {
		major, minor, patch := parseRelease(release)
		if got := [3]uint32{major, minor, patch}; got != want {
			t.Errorf("%q is %v, want %v", release, got, want)
		}
	}
}

func kernelFiles() map[string]string {
	return map[string]string{
		"proc/sys/kernel/osrelease":      "5.14.0-427.13.1.el9_4.x86_64\n",
		"proc/sys/kernel/version":        "#1 SMP PREEMPT_DYNAMIC Wed Apr 10 10:29:16 EDT 2024\n",
		"proc/sys/kernel/random/boot_id": "db0031f2-87da-4ae9-a26c-4a7941105737\n",
		"proc/stat":                      "cpu  1 2 3\nbtime 1796056784\nprocesses 9\n",
		"usr/lib/os-release": "# comment\nNAME=\"Red Hat Enterprise Linux\"\nID=\"rhel\"\nVERSION_ID='9.4'\n\n" +
			`PRETTY_NAME="Red Hat \"Plow\" \$9.4"` + "\n",
	}
}

func TestReadKernel(t *testing.T) {
	section := readKernel(hostOf(t, kernelFiles()))
	wantState(t, section, sectionPresent)
	want := &offrampv1.KernelFacts{
		Release: "5.14.0-427.13.1.el9_4.x86_64", Version: "#1 SMP PREEMPT_DYNAMIC Wed Apr 10 10:29:16 EDT 2024",
		Machine: machine(), Major: 5, Minor: 14, Patch: 0,
		OsId: "rhel", OsVersionId: "9.4", OsPrettyName: `Red Hat "Plow" $9.4`,
		BootId: "db0031f2-87da-4ae9-a26c-4a7941105737",
	}
	if diff := cmp.Diff(want, section.GetStable().GetKernel(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	booted := timestamppb.New(time.Unix(1796056784, 0))
	if diff := cmp.Diff(booted, section.GetVolatile().GetKernel().GetBootedAt(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if machine() == "" {
		t.Error("this machine has no name")
	}
}

func TestReadKernelWithLittleInSight(t *testing.T) {
	host := hostOf(t, map[string]string{"proc/sys/kernel/osrelease": "6.1.0-57-cloud-amd64\n", "proc/stat": "cpu 1\n"})
	section := readKernel(host)
	wantState(t, section, sectionPresent)
	if got := section.GetStable().GetKernel(); got.GetMinor() != 1 || got.GetOsId() != "" || got.GetBootId() != "" {
		t.Errorf("%v", got)
	}
	if section.GetVolatile().GetKernel() != nil {
		t.Error("a boot time out of nothing")
	}
	wantState(t, readKernel(hostOf(t, nil)), sectionUnreadable)
}

// os-release is a symbolic link nearly everywhere, and on a mounted host an absolute one must stay on that host.
func TestOSReleaseLinksStayBelowTheRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "os-release")
	writeFile(t, outside, "ID=outside\n")
	for name, test := range map[string]struct{ target, want string }{
		"relative":              {"../usr/lib/os-release", "host"},
		"absolute":              {"/usr/lib/os-release", "host"},
		"absolute, two steps":   {"/etc/static/os-release", "host"},
		"up and out":            {"../../../../../../../../usr/lib/os-release", "host"},
		"to a file not of ours": {outside, "fallback"},
		"to itself":             {"os-release", "fallback"},
		"to a folder":           {"/usr", "fallback"},
		"to a process' file":    {"/proc/self/exe", "fallback"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			content := "ID=host\n"
			if test.want == "fallback" {
				content = "ID=fallback\n"
			}
			writeFile(t, filepath.Join(root, "usr/lib/os-release"), content)
			writeFile(t, filepath.Join(root, "etc/hostname"), "x")
			links := map[string]string{"etc/os-release": test.target, "etc/static": "/etc/deeper", "etc/deeper": "/usr/lib"}
			for link, target := range links {
				if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
					t.Fatal(err)
				}
			}
			if got := readOSRelease(root)["ID"]; got != test.want {
				t.Errorf("ID %q, want %q", got, test.want)
			}
		})
	}
}

func TestOSReleaseMissing(t *testing.T) {
	if got := readOSRelease(filepath.Join(t.TempDir(), "nowhere")); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestParseOSRelease(t *testing.T) {
	got := parseOSRelease("ID=debian\n#ID=no\nA=\"x\"\nB='y $z'\nC=\"half\nD=\n  E=1  \nnot a line\nF=\"a\\\\b\"\nG=\"\xff\"")
	want := map[string]string{
		"ID": "debian", "A": "x", "B": "y $z", "C": `"half`, "D": "", "E": "1", "F": `a\\b`, "G": `\xff`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseOSRelease(f *testing.F) {
	f.Add("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, value := range parseOSRelease(text) {
			if strings.ToValidUTF8(value, "") != value {
				t.Errorf("%q cannot be sent", value)
			}
		}
	})
}
